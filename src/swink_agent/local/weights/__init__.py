"""The weights of models: where they come from and where they are kept."""
