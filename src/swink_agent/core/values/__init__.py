"""What all values share, how they are read from JSON, and what hints may name without loading it."""
