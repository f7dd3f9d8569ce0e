"""The loop and all it stands on. Imports the standard library, msgspec and, on first use, jsonschema-rs.

The files here are the nouns of the specification, and `loop.py` the sentence that they make. What they stand on has
rooms: `run` what one run has, `agent` what an agent has, `values`, `schemas`, `secrets` and `texts` what data
needs.
"""
