"""The back end without namespaces: Landlock rules, a system call filter, and a guardian that answers the filter."""
