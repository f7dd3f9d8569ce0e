"""The conversation behind the terminal UI and the browser. It uses neither, and does not draw."""
