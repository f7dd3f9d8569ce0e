"""The store of durable runs: its tables, and the code that reads and writes them."""
