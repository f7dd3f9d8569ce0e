"""Runs of a set: making attempts, keeping results, comparing and gating them."""
