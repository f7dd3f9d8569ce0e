"""The parts that the terminal UI is made of, each drawing itself."""
