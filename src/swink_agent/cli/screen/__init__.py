"""The formatting of stdout and stderr for people."""
