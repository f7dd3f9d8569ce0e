"""Evaluators: how an attempt is scored."""
