"""`python -m swink_agent`: the same as the `swink` command."""

import sys

from ._start import leave_working_folder

leave_working_folder()

from .cli import main  # noqa: E402 - not before the line above

if __name__ == "__main__":
    sys.exit(main())
