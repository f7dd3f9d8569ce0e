"""Snapshots of a folder, so that a run's changes there can be taken back."""
