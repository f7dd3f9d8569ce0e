"""The user's trust in folders and installed packages, and what these may set."""
