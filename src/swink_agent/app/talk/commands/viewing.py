"""The commands that show or copy something or change the colours. They do not affect the agent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from swink_agent.app.agent.standard import turn_limit
from swink_agent.app.errors import SettingsError, UsageProblem
from swink_agent.app.runs.telling import seconds
from swink_agent.app.settings.key_bindings import ACTIONS
from swink_agent.app.settings.settings import set_value, settings_file
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.checklist import checklist, counted

from ..front import PickItem
from . import COMMANDS, Command, own_commands

if TYPE_CHECKING:
    from ..conversation import Conversation

_WIDEST_NAME = 24
_THEMES = ("dark", "light", "contrast", "plain")


async def show_help(conversation: Conversation, rest: str) -> None:
    own = await asyncio.to_thread(own_commands, conversation.opening.project)
    here = [command for command in COMMANDS if command.name not in conversation.front.lacks]
    parts = [("Keys", conversation.front.keys), ("Commands", _named(here))]
    parts += [("Custom commands", _named(own))] if own else []
    conversation.view.show_help(["\n".join([title, *_rows(rows, _WIDEST_NAME)]) for title, rows in parts])


def _named(commands: Iterable[Command]) -> list[tuple[str, str]]:
    return [(f"{command.name} {command.usage}".strip(), command.help) for command in commands]


async def show_bindings(conversation: Conversation, rest: str) -> None:
    """`/bindings`: lists the actions of the screen with their keys and their names in the settings."""
    keys = conversation.opening.settings.key_map()
    rows = [(action.name, f"{keys.shown(action.name, 5) or 'no key'}: {action.help}") for action in ACTIONS]
    own = f"changed: {', '.join(keys.given)}" if keys.given else "none changed"
    head = f'Keys of the screen ({own}). [keys] in {settings_file()} changes them: search = "ctrl+x"'
    conversation.notice("\n".join([head, *_rows(rows), "Esc, Ctrl+C, F7, F8 and the keys of questions are fixed."]))


async def clear(conversation: Conversation, rest: str) -> None:
    """`/clear`: clears the view, not the history."""
    conversation.view.clear()


async def show_info(conversation: Conversation, rest: str) -> None:
    opened = conversation.opened
    settings = conversation.opening.settings
    facts = [("folder", str(conversation.opening.folder))]
    facts += [("also", str(folder)) for folder in conversation.opening.added]
    if opened is not None:
        agent, info, sandbox = opened.agent, opened.session.info, opened.made.sandbox
        facts += [
            ("model", f"{agent.model} ({opened.made.model_source})"),
            ("thinking", str(agent.thinking_level)),
            ("mode", conversation.mode),
            ("tools", ", ".join([tool.name for tool in agent.tools]) or "none"),
            ("approvals", conversation.approve),
            ("sandbox", "none" if sandbox is None else str(sandbox.backend)),
            ("session", "is not recorded" if info is None else f"{info.id} {info.title}".rstrip()),
            ("messages", str(len(agent.messages))),
        ]
    facts.append(("limits", _limits(turn_limit(settings, is_attended=True), settings.value("max_cost"))))
    conversation.notice("\n".join(_rows(facts)))


async def show_usage(conversation: Conversation, rest: str) -> None:
    totals = conversation.usage
    usage, (estimate, window) = totals.usage, totals.estimate
    cost = "unknown" if totals.dollars is None else dollars(totals.dollars)
    facts = [
        ("read", f"{usage.input:,} tokens"),
        ("from the cache", f"{usage.cache_read:,} tokens"),
        ("into the cache", f"{usage.cache_write:,} tokens"),
        ("written", f"{usage.output:,} tokens"),
        ("together", f"{totals.tokens:,} tokens"),
        ("cost", cost),
        ("window", f"about {estimate:,} of {window:,} tokens ({totals.fill:.0%})" if window else "no model yet"),
        ("last run", seconds(round(conversation.elapsed, 1))),
    ]
    conversation.notice("\n".join(_rows(facts)))


async def show_todo(conversation: Conversation, rest: str) -> None:
    """`/todo`: shows the model's whole to-do list."""
    items = conversation.todo
    conversation.notice(f"{counted(items)}\n{checklist(items)}" if items else "the model has not made a list")


async def copy_answer(conversation: Conversation, rest: str) -> None:
    answer = conversation.answer
    if not answer:
        conversation.notice("there is no answer to copy yet")
        return
    conversation.front.copy(answer)
    conversation.notice(f"the last answer is copied ({len(answer):,} characters)")


async def theme(conversation: Conversation, rest: str) -> None:
    """`/theme [name]`: sets the theme now and stores it in the user's settings."""
    items = [PickItem(name, name, "now" if name == conversation.front.theme else "") for name in _THEMES]
    wanted = rest.lower() or await conversation.front.pick("Theme", items)
    if wanted is None:
        return
    if wanted not in _THEMES:
        raise UsageProblem(f"there is no theme {rest[:40]!r}: {', '.join(_THEMES)}")
    conversation.front.set_theme(wanted)
    try:
        set_value("theme", wanted, path=settings_file())
    except SettingsError as error:
        conversation.notice(f"the theme is set for now, but could not be stored: {error}", "warning")
    if os.environ.get("NO_COLOR") and wanted != "plain":
        conversation.notice("NO_COLOR is set and has priority at the next start")


def _limits(turns: int | None, cost: float | None) -> str:
    words = [] if turns is None else [f"{turns} turns"]
    if cost is not None:
        words.append(f"${cost:g}")
    return f"{', '.join(words)} for a run" if words else "none"


def _rows(pairs: Sequence[tuple[str, str]], widest: int = 40) -> list[str]:
    """Returns names and their texts in two columns; a name of more than `widest` cells moves its text to the right."""
    width = min(max([len(name) for name, _ in pairs], default=0), widest)
    return [f"  {name:<{width}}  {text}" for name, text in pairs]
