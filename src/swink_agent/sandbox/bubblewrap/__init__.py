"""The back end that uses namespaces, made by the program `bwrap`, and a system call filter."""
