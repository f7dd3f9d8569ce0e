"""The agent: a loop with a memory, queues, subscribers and an abort, and the parts that it is made of."""
