"""Prompts before they are sent: text, history, completion, pastes and pictures. Uses no screen."""
