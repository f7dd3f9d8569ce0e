"""Compares texts in bounded time, and escapes them."""
