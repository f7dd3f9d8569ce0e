"""The parts of one run: its state, its transcript, its events, and waits that an abort always ends."""
