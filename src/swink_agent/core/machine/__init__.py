"""What is on the machine: files, and optional packages."""
