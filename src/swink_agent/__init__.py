"""Swink Agent: a provider-agnostic loop for LLM agents.

This module is the public namespace: every public name of the core is importable from here, and so are the main names
of the other rooms. A room is loaded when a name of it is first asked for. The rooms behind it:

    core      the loop, its types and its agent      core/loop.py is where to start reading
    adapters  the providers, over plain HTTP          loaded when a model of theirs is first used
    local     the model on this machine               likewise
    tools     bash, files and search                  beneath a root that they cannot leave
    sandbox   how a child process is confined         chosen by trial
    approvals what may run unasked, and how people are asked
    policies  limits, guards and records              one to a file
    rendering what was said, as safe HTML, Markdown and rows
    memory    what is kept of a conversation, and what of it is still sent
    evals     cases, an agent that runs on them, and scores for what it did
    app, cli  settings, keys and the `swink` command
    testing   scripted models, checkers, servers and fakes, for your own tests; import it by name
"""

import sys

if sys.argv[:1] == ["-m"]:  # Python is still looking for the module that it is to run
    from ._start import is_looked_for, leave_working_folder

    if is_looked_for():
        leave_working_folder()  # before anything else is imported, where swink_agent.pth was not read

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")

__version__ = "0.1.0"
