"""Replays recorded sessions offline, and reports the first difference."""
