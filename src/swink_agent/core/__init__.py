"""The loop and all it stands on. Imports the standard library, msgspec and, on first use, jsonschema-rs."""
