"""The tools that read and change files, and their common parts."""
