"""From a conversation to the text and grammar for a model, and from its text to a reply."""
