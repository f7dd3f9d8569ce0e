"""What all values share, what is known of a model, and what hints may name without loading it."""
