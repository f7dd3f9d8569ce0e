"""Turns a conversation into the text and grammar for a model, and the model's text into a reply."""
