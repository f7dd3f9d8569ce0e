"""Prompts before they are sent: text, history, completion, pastes and pictures. Independent of Textual."""
