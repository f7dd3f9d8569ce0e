"""The loop and everything that it stands on. It imports the standard library, msgspec and, on first use, jsonschema-rs."""
