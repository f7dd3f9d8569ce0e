"""Which shell commands may run unasked: how they are read, and what each may reach."""
