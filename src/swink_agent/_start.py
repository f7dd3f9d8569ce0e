"""How `python -m swink_agent` starts without looking into the working folder.

Owns the moment at which that folder leaves `sys.path`; what Python loads before, `swink_agent.pth` beside the package
has loaded in time. Imports nothing that could still be taken from the folder: `os` and `sys` are always there.
"""

import os
import sys

__all__ = ["is_looked_for", "leave_working_folder"]


def is_looked_for() -> bool:
    """Whether the module that Python is looking for, to run it, is this package and not one that imports it."""
    return sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].endswith("swink_agent")


def leave_working_folder() -> None:
    """Takes the working folder, where a model writes, from the front of the path if `python -m` has put it there."""
    try:
        if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
            del sys.path[0]
    except FileNotFoundError:  # the folder is gone, and so Python has not put it there
        pass
