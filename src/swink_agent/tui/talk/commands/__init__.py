"""The commands that a person may write in place of a prompt: `/model`, `#help` and the rest.

Owns the one table that help, completion and dispatch read, and what is a command at all. What each does is in the
modules beside this one, loaded when the first command is given.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..conversation import Conversation

__all__ = ["COMMANDS", "Command", "command_in", "commands", "run_command"]

_COMMAND = re.compile(r"([/#][A-Za-z][A-Za-z-]*)(?:[ \t]+(.*))?", re.DOTALL)


class Command(NamedTuple):
    """One command. `usage` is what may follow its name; `is_for_rest` if it can only be given between runs."""

    name: str
    usage: str
    help: str
    action: str
    """The module beside this one and the function in it."""
    is_for_rest: bool = False


COMMANDS = (
    Command("#help", "", "keys and commands", "viewing:show_help"),
    Command("#clear", "", "clear the view; nothing is forgotten", "viewing:clear"),
    Command("#info", "", "model, session, folder, tools and limits", "viewing:show_info"),
    Command("#copy", "", "copy the last answer", "viewing:copy_answer"),
    Command("#sessions", "", "the sessions of this folder", "sessions:list_sessions"),
    Command("#save", "[title]", "name this session, which is saved as it happens", "sessions:save"),
    Command("#load", "id|title", "go on with another session", "sessions:load", is_for_rest=True),
    Command("#keys", "", "the keys of providers that are set", "keys:list_keys"),
    Command("#key", "[provider]", "store the key of a provider", "keys:store_key"),
    Command("#approve", "smart|on|off", "which calls are asked about", "modes:approve"),
    Command("/model", "[provider:model]", "ask another model", "models:choose_model", is_for_rest=True),
    Command("/thinking", "[level]", "how much the model is to reason", "models:choose_thinking", is_for_rest=True),
    Command("/system", "[text]", "show or replace the instructions", "models:system", is_for_rest=True),
    Command("/plan", "", "plan without changing anything, and back", "modes:plan", is_for_rest=True),
    Command("/editor", "[text]", "write a prompt in your own editor", "modes:editor"),
    Command("/queue", "text", "a follow-up for when the run would stop, as Tab does", "modes:queue"),
    Command("/compact", "[instructions]", "sum the conversation up to make room", "sessions:compact", is_for_rest=True),
    Command("/usage", "", "tokens, cost and how full the window is", "viewing:show_usage"),
    Command("/reset", "", "forget all and begin a new session", "sessions:reset", is_for_rest=True),
    Command("/resume", "[id]", "go on with a session from a list", "sessions:resume", is_for_rest=True),
    Command("/fork", "", "go on in a copy of this session", "sessions:fork", is_for_rest=True),
    Command("/rewind", "", "go back to a message, with the files if you want", "rewinding:rewind", is_for_rest=True),
    Command("/export", "[html|markdown|json] [file]", "write the session to a file", "sessions:export"),
    Command("/theme", "[dark|light|contrast|plain]", "the colours", "viewing:theme"),
    Command("/quit", "", "leave", "modes:leave"),
    Command("/q", "", "leave", "modes:leave"),
)
commands = COMMANDS
_BY_NAME = {command.name: command for command in COMMANDS}


def command_in(text: str) -> tuple[str, str] | None:
    """The name and the rest of a text that is a command, or looks like one; `None` for a prompt.

    A path (`/usr/bin`), a heading (`# Title`) and a number (`#12`) are none; and a space before it makes any text a
    prompt.
    """
    found = _COMMAND.fullmatch(text.rstrip())
    return None if found is None else (found.group(1), (found.group(2) or "").strip())


async def run_command(conversation: Conversation, name: str, rest: str) -> None:
    """Does what the command says; a wrong one is told of, with the nearest that there is."""
    from swink_agent.app.errors import ApplicationError

    command = _BY_NAME.get(name.lower())
    if command is None:
        conversation.notice(_unknown(name), "error")
        return
    if command.is_for_rest and conversation.is_running:
        conversation.notice(f"{command.name} has to wait: a run goes on, which Esc stops")
        return
    from importlib import import_module

    module, _, function = command.action.partition(":")
    try:
        # What can only be done between runs is done as a whole between them.
        with conversation.holding() if command.is_for_rest else nullcontext():
            await getattr(import_module(f"{__name__}.{module}"), function)(conversation, rest)
    except ApplicationError as error:
        conversation.notice(str(error), "error")
    except Exception as error:  # a mistake of ours: the conversation goes on, and it is told without what it quotes
        conversation.notice(f"{command.name} failed, and should not have: {type(error).__name__}", "error")


def _unknown(name: str) -> str:
    from swink_agent.core.texts.likeness import close_names

    near = close_names(name, _BY_NAME, n=1, cutoff=0.5) or close_names(name[1:], [known[1:] for known in _BY_NAME], n=1)
    meant = next((known for known in _BY_NAME if near and known in (near[0], f"/{near[0]}", f"#{near[0]}")), "")
    hint = f"did you mean {meant}?" if meant else "#help lists them;"
    return f"no command is called {name[:60]}; {hint} A space before it sends it as a prompt"
