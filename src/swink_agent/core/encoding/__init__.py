"""Other forms of messages and events: JSON, the stream of a reply, pictures and documents from files."""
