"""The folder that tools work in and cannot leave, and the files there that a conversation has seen."""
