"""The terminal UI: a conversation in a full screen."""
