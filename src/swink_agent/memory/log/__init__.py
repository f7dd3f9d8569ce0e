"""The records of a session: how they are written and read, and what they add up to."""
