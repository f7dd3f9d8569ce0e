"""Completion of a command line by the shell."""
