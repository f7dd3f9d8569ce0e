"""Confines child processes: limits what they read, write and reach, and kills everything that they start.

    profile   the rights of a child, as data; the paths that are hidden and protected by default
    names     the names in a project that programs run by themselves
    open      chooses a back end by trial, never by the name of a program
    widened   the profile of a command with more access
    process   an opened sandbox and its processes
    programs  makes sure that commands cannot write what this program starts or runs from

Importing this module loads no back end.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
