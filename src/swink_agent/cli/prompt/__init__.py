"""`swink -p`: from the command line to an answer."""
