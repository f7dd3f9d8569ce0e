"""The `Agent` class and its parts: the state between runs, running, queues, subscribers, delegates."""
