"""Policies about which tool calls may run."""
