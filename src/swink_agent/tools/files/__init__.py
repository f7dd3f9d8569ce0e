"""The tools that read and change files, and what they share."""
