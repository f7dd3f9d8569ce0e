"""How a child process is confined: what it may read, write and reach, and that nothing of it is left behind.

    profile   what a child may do, as data; what is hidden and protected unless said otherwise
    open      the back ends, and the trial that chooses one: never by the name of a program
    process   an opened sandbox and the processes in it
    programs  what this program starts and runs from, and that no command can write it

Importing this module loads no back end.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
