"""Direct kernel interfaces of the back ends: system calls, filters, mounts, processes."""
