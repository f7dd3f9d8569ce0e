"""Walls made of namespaces, by the program `bwrap`, with a system call filter."""
