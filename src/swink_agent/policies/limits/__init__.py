"""Policies that limit what a run may use."""
