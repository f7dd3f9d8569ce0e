"""Shell commands that run: to their end within a call, or in the background."""
