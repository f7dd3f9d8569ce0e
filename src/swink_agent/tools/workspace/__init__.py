"""The folder that tools work in and cannot leave, and what a conversation has seen in it."""
