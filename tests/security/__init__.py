"""A hostile model against the whole program, and ordinary work."""
