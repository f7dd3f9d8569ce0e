"""Keys of providers, and the key for placeholders of secrets."""
