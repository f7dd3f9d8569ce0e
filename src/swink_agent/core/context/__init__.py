"""The context of a request: snapshots of a history, token budgets, and what a transform may know about its run."""
