"""The application: settings, keys, and the standard agent that all front ends share.

Connects the packages below it into one product. How anything is shown is in `cli` and `tui`. Importing this module
loads nothing.
"""
