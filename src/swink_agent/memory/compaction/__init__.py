"""Shortens conversations that exceed the model's context window: summaries and token counting."""
