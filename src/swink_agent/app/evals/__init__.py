"""Evaluations of the standard agent, or of a project's own."""
