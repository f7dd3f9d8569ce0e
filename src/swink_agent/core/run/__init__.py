"""The parts of one run: its state, transcript, turns, events and waiting calls, and waits that an abort always ends."""
