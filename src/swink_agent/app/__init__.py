"""The application: settings, keys, and the standard agent that the command line and the terminal UI share.

Owns the wiring of the rooms below it into one product. Does not own how anything is shown: that is in `cli` and `tui`.
Importing this module loads nothing.
"""
