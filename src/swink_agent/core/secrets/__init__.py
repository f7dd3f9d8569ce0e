"""Finds secrets in data that is shown, stored or sent, and replaces them by placeholders."""
