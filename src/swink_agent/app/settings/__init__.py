"""Settings: their names, their sources, and the file that the user keeps."""
