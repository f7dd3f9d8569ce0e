"""Secrets: how they are found in what is shown, stored and sent on, and what stands in their place."""
