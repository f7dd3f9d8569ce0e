"""JSON Schema from Python types, and Python values from JSON."""
