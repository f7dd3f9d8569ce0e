"""Policies that keep a record of a run."""
