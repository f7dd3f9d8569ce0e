"""Takes the working folder off `sys.path` when the program is started with `python -m swink_agent`.

A model can write to that folder, and `python -m` puts it first on the path. Python imports a few modules from there
before our first line runs; only `swink` and `python -P -m swink_agent` prevent that (see SECURITY.md). This module
imports only `os` and `sys`: they are always loaded already, so they cannot come from the folder.
"""

import os
import sys


def is_looked_for() -> bool:
    """Whether `-m` names this package itself, and not a module that imports it."""
    return sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].endswith("swink_agent")


def leave_working_folder() -> None:
    """Removes the working folder from the front of `sys.path` if `python -m` has put it there."""
    try:
        if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
            del sys.path[0]
    except FileNotFoundError:  # the folder was deleted, so Python has not put it there
        pass
