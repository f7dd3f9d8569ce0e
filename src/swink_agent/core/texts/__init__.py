"""Compares texts in bounded time, and finds characters that hide something."""
