"""The Textual widgets, one per file."""
