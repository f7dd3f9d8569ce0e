"""Decides what a command may change in a repository, and checks what it left there that would run later."""
