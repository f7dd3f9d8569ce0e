"""The file of a session: its records, how they are written and read, and what they add up to."""
