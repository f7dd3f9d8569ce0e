"""Takes the working folder off `sys.path` when the program is started with `python -m swink_agent`.

A model writes in that folder, and `python -m` puts it in front of all others. Python itself imports a few modules from
there before our first line; only `swink` or `python -P -m swink_agent` prevent that (see SECURITY.md). This module
imports nothing that could still come from the folder: `os` and `sys` are always loaded.
"""

import os
import sys


def is_looked_for() -> bool:
    """Whether Python is looking for this package to run it with `-m`, and not for one that imports it."""
    return sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].endswith("swink_agent")


def leave_working_folder() -> None:
    """Removes the working folder from the front of `sys.path` if `python -m` has put it there."""
    try:
        if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
            del sys.path[0]
    except FileNotFoundError:  # the folder was deleted, so Python has not put it there
        pass
