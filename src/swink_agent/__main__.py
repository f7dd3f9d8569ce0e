"""`python -m swink_agent`: the same as the `swink` command."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
