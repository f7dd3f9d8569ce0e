"""The conversation that the terminal UI and the browser show. It depends on neither, and does not draw."""
