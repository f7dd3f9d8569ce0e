"""Swink Agent: a provider-agnostic loop for LLM agents.

This module is the public namespace: every public name of the core is importable from here, and so are the main names
of the other packages. A package is loaded when one of its names is first used. The packages:

    core      the loop, its types and its agent      core/loop.py is where to start reading
    adapters  the providers, over plain HTTP          loaded when a model of theirs is first used
    local     the model on this machine               loaded in the same way
    tools     bash, files and search                  confined to one folder
    sandbox   how a child process is confined         chosen by trial
    approvals which calls run without a question, and how people are asked
    policies  limits, guards and records              one per file
    rendering messages as safe HTML, Markdown and terminal rows
    memory    sessions, replay, search and compaction
    durable   runs on many workers                    needs the extra `durable`
    mcp       tools of MCP servers, and tools for MCP clients
    skills    folders with a SKILL.md                 read when a model needs them
    telemetry runs as spans and metrics of OpenTelemetry
    evals     cases, runs of an agent on them, and scores
    app, cli  settings, keys and the `swink` command
    tui, web  the agent in a terminal and in a browser
    acp       the agent for editors                   loaded by `swink acp`
    testing   scripted models, checkers, servers and fakes, for your own tests; import it by name
"""

import sys

if sys.argv[:1] == ["-m"]:  # Python is still looking for the module to run
    from ._start import is_looked_for, leave_working_folder

    if is_looked_for():
        leave_working_folder()  # before anything else is imported

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")

__version__ = "0.1.0"
