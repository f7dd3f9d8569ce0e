"""Runs of the standard agent: headless, recorded, replayed, undone."""
