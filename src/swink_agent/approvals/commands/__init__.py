"""Decides which shell commands may run unasked: parses them and checks what each part may reach."""
