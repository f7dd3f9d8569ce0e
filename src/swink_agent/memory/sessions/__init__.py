"""Sessions: creating, opening, listing and describing them."""
