"""Compares texts in bounded time."""
