"""The wall around the folder that tools work in, and what a conversation has seen beneath it."""
