"""Settings: their names, their sources, and the user's file."""
