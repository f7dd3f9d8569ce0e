"""Comparing texts in bounded time, and what hides in them."""
