"""What Textual draws: one widget to a file."""
