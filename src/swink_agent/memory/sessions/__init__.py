"""Sessions: making one, opening one, listing them, and what is known of each."""
