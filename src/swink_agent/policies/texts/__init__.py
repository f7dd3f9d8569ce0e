"""Policies about what texts say."""
