"""Finds secrets in what is shown, stored or sent, and replaces them by placeholders."""
