"""Where the logs of sessions are kept: files in a folder, or rows of a database."""
