"""Snapshots of a folder, so that what a run did there can be taken back."""
