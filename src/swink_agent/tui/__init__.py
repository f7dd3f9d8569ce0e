"""The terminal UI: a full-screen conversation, and the same renderer without a screen for `--inline`."""
