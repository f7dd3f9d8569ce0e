"""The context of a request: snapshots of a history, token budgets, and the facts that transforms get about a run."""
