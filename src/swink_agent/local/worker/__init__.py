"""The process that holds a model in memory."""
