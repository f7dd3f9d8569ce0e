"""Walls without namespaces: Landlock rules, a system call filter, and a guardian that answers what the filter asks."""
