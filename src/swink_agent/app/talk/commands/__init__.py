"""The commands that a user may type instead of a prompt: `/model`, `/help` and others.

Help, completion and dispatch use the table here. The other modules of this package implement the commands; each is
imported when its first command runs.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from swink_agent.app.agent.prompt_commands import PromptCommand
    from swink_agent.app.trust.trust import Project

    from ..conversation import Conversation

__all__ = ["COMMANDS", "Command", "command_in", "is_command", "own_commands", "run_command"]

_COMMAND = re.compile(r"(#[A-Za-z][A-Za-z-]*|/[A-Za-z][A-Za-z0-9-]*)(?:[ \t]+(.*))?", re.DOTALL)
_RENAMED = {"/load": "/resume", "/save": "/rename"}
"""Names of earlier versions, which are accepted and not shown."""


class Command(NamedTuple):
    """One command. `usage` describes its arguments. With `is_for_rest`, it is allowed only between runs."""

    name: str
    usage: str
    help: str
    action: str
    """The module in this package and its function, as `module:function`."""
    is_for_rest: bool = False


COMMANDS = (
    Command("/help", "", "keys and commands", "viewing:show_help"),
    Command("/bindings", "", "keys, and how to change them", "viewing:show_bindings"),
    Command("/clear", "", "clear the view; the conversation stays", "viewing:clear"),
    Command("/info", "", "model, session, folder, tools and limits", "viewing:show_info"),
    Command("/copy", "", "copy the last answer", "viewing:copy_answer"),
    Command("/sessions", "", "the sessions of this folder", "session_commands:list_sessions"),
    Command("/rename", "[title]", "name this session; it is always saved", "session_commands:rename"),
    Command("/keys", "", "list the keys that are set", "keys:list_keys"),
    Command("/key", "[provider]", "store the key of a provider", "keys:store_key"),
    Command("/approve", "ask|smart|auto|all|none", "which calls you are asked about", "modes:approve"),
    Command("/work", "yes|no", "whether commands and edits in this folder run unasked", "modes:work"),
    Command("/answer", "", "answer the calls that wait", "modes:answer", is_for_rest=True),
    Command("/trust", "", "look at this folder's own settings and notes, and trust them", "trusting:trust", True),
    Command("/model", "[provider:model]", "switch to another model", "model_commands:choose_model", is_for_rest=True),
    Command("/thinking", "[level]", "how much the model reasons", "model_commands:choose_thinking", is_for_rest=True),
    Command("/system", "[text]", "show or replace the instructions", "model_commands:system", is_for_rest=True),
    Command("/plan", "", "switch plan mode on or off", "modes:plan", is_for_rest=True),
    Command("/skill", "[name] [text]", "send a prompt with a skill before it; alone, list them", "modes:use_skill"),
    Command("/editor", "[text]", "write a prompt in your own editor", "modes:editor"),
    Command("/queue", "text", "a follow-up, after the run", "modes:queue"),
    Command(
        "/compact",
        "[instructions]",
        "summarise the history to save space",
        "session_commands:compact",
        is_for_rest=True,
    ),
    Command("/tasks", "[stop id|all]", "background commands: look at them, and stop them", "background:tasks"),
    Command("/todo", "", "what the model has to do", "viewing:show_todo"),
    Command("/mcp", "[restart name]", "MCP servers: state, tools, a fresh start", "server_commands:show_servers"),
    Command("/usage", "", "tokens, cost and how full the window is", "viewing:show_usage"),
    Command("/reset", "", "begin a new, empty session", "session_commands:reset", is_for_rest=True),
    Command(
        "/resume",
        "[id|title]",
        "continue another session; alone, shows a list",
        "session_commands:resume",
        is_for_rest=True,
    ),
    Command("/fork", "", "continue in a copy of this session", "session_commands:fork", is_for_rest=True),
    Command("/rewind", "", "go back to a message, with the files if you want", "rewind:rewind", is_for_rest=True),
    Command("/export", "[html|markdown|json|atif] [file]", "write the session to a file", "session_commands:export"),
    Command("/theme", "[dark|light|contrast|plain]", "the colours", "viewing:theme"),
    Command("/quit", "", "leave", "modes:leave"),
    Command("/q", "", "leave", "modes:leave"),
)
_BY_NAME = {command.name: command for command in COMMANDS}


def own_commands(project: Project | None) -> list[Command]:
    """The custom commands of the user and of the trusted project, for help and completion."""
    from swink_agent.app.agent.prompt_commands import prompt_commands
    from swink_agent.rendering.escaping import safe_line

    own = [(f"/{name}", command) for name, command in prompt_commands(project).items()]
    return [Command(name, "[words]", safe_line(one.description), "") for name, one in own if name not in _BY_NAME]


def command_in(text: str) -> tuple[str, str] | None:
    """Returns the name and the arguments of a text that looks like a command; `None` for a prompt.

    `#` is accepted for `/`. A path (`/usr/bin`), a heading (`# Title`), a number (`#12`) and any text after a space are
    prompts.
    """
    found = _COMMAND.fullmatch(text.rstrip())
    if found is None:
        return None
    name = f"/{found.group(1)[1:].lower()}"
    return _RENAMED.get(name, name), (found.group(2) or "").strip()


def is_command(text: str) -> bool:
    """Whether a text is not a prompt but a command, or a shell command after `!`."""
    return command_in(text) is not None or (text.startswith("!") and bool(text[1:].strip()))


async def run_command(conversation: Conversation, name: str, rest: str, text: str, images: Sequence[str] = ()) -> None:
    """Runs a command, which the user typed as `text`.

    For an unknown name, suggests the nearest one and gives the text back; a text that begins with a path is a prompt.
    """
    from swink_agent.app.errors import ApplicationError

    command = _BY_NAME.get(name)
    if command is None:
        own = await asyncio.to_thread(_own_command, conversation, name)
        if not isinstance(own, str):
            await conversation.prompt(own.prompt(rest))
        elif await asyncio.to_thread(os.path.lexists, text.split(maxsplit=1)[0]):  # `/var is full`
            await conversation.prompt(text, images)
        else:
            conversation.notice(own, "error")
            conversation.front.give_back(text, images)
        return
    if command.is_for_rest and conversation.is_running:
        conversation.notice(f"{command.name} has to wait: a run is active, Esc stops it")
        return
    module, _, function = command.action.partition(":")
    try:
        # No run may begin while such a command works.
        with conversation.holding() if command.is_for_rest else nullcontext():
            await getattr(import_module(f"{__name__}.{module}"), function)(conversation, rest)
    except ApplicationError as error:
        conversation.notice(str(error), "error")
    except Exception as error:  # a bug: the conversation continues; the message may quote a secret and is not shown
        bug = f"{command.name}: this is a bug in swink ({type(error).__name__}). The conversation goes on"
        conversation.notice(bug, "error")


def _own_command(conversation: Conversation, name: str) -> PromptCommand | str:
    """The custom command of that name, of the user or of the trusted project; or a message why it cannot be used."""
    from swink_agent.app.agent.prompt_commands import prompt_commands, why_unused

    project = conversation.opening.project
    if own := prompt_commands(project).get(name[1:]):
        return own
    why = why_unused(name[1:], project)
    return f"{name[:60]} cannot be used: {why}" if why else _unknown(name)


def _unknown(name: str) -> str:
    from swink_agent.core.texts.likeness import close_names

    near = close_names(name, _BY_NAME, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "/help lists them;"
    return f"no command is called {name[:60]}; {hint} A space before it sends it as a prompt"
