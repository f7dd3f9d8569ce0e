"""The store of durable runs: its tables, and all that is read from them and written to them."""
