"""The agent loop and everything that it needs. Imports the standard library, msgspec and, on first use, jsonschema-rs.

The files here define the terms of the specification, and `loop.py` combines them. Packages: `run` (the state of a run),
`agent` (the `Agent` class), `context` (which messages are sent), `encoding` (other forms of messages and events),
`values`, `schemas`, `secrets` and `texts` (data), `machine` (files and optional packages).
"""
