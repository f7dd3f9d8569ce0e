"""The comparison of texts, and characters that hide something."""
