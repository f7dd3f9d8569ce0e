"""The `Agent` class and its parts: its state, how it runs, values as answers, delegates, and what records it."""
