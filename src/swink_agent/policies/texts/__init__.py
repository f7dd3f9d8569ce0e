"""Policies about the content of texts."""
