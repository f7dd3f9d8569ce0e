"""What one run stands on: its state, its transcript, its events, and waiting in a way that an abort always ends."""
