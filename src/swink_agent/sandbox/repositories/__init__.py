"""What a command may change in a repository, and the look at what it left there that would run later."""
