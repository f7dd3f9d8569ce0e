"""What a person sees on stdout and stderr."""
