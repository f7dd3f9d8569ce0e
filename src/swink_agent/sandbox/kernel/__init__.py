"""What the back ends ask of the kernel directly: system calls, filters, mounts, processes."""
