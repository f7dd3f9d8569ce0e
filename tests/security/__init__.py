"""A hostile model against the whole house, and ordinary work beside it."""
