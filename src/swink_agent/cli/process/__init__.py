"""The process around a command: streams, signals, errors, exit codes."""
