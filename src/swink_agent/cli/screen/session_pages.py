"""Sessions as text: a list of them, and one of them from its first message to its last.

Titles and messages are text that we did not write: secrets are masked, control characters escaped, and each row begins
with a mark of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from swink_agent.app.runs.answers import how_to_answer, named
from swink_agent.app.runs.telling import age, number_of, summary_of
from swink_agent.approvals.display import safe_display
from swink_agent.core import types
from swink_agent.core.run.pending import pending_calls
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.cells import cut, laid_out
from swink_agent.rendering.escaping import safe_text
from swink_agent.rendering.turns import local_moment

from .screen import Palette, table

if TYPE_CHECKING:
    from swink_agent.memory import LoadedSession, SessionInfo

_CALL = "  ▸ "
_TEXT = "  │ "
_THOUGHT = "  ~ "
_NOTE = "  * "
_MORE = "  ┆ "
_MOST_ROWS = 20
_LONGEST_LINE = 4_000
"""The most characters of one line without `--full`."""
_COLUMNS = (("MESSAGES", 44), ("COST", 56), ("MODEL", 90))
"""Columns of a list, each with the width of the window that it needs."""
_COLUMNS_OF_ALL = (("MESSAGES", 66), ("COST", 76), ("FOLDER", 44), ("MODEL", 100))
"""The same for sessions of several folders, where the folder matters more."""


def listing(
    infos: Sequence[SessionInfo], short: Mapping[str, str], redactor: Redactor, *, width: int | None, with_folder: bool
) -> str:
    """One row for each session. Leaves out columns in a narrow window; ids stay long enough to be used."""
    columns = _COLUMNS_OF_ALL if with_folder else _COLUMNS
    shown = [name for name, least in columns if width is None or width >= least]
    if any(info.pending for info in infos):
        shown.append("WAITING")
    head = ("ID", "AGE", *shown, "TITLE")
    rows: list[tuple[str, ...]] = [head]
    for info in infos:
        cells = {
            "MESSAGES": str(info.messages),
            "COST": cost(info.cost.amount),
            "FOLDER": _home_short(info.cwd),
            "MODEL": "-" if info.model is None else str(info.model),
            "WAITING": str(info.pending) if info.pending else "-",
        }
        title = redactor.redact(info.title) or "(no title)"
        name = info.id if width is None else short.get(info.id, info.id)
        rows.append((name, age(info.updated), *[cells[name] for name in shown], f"! {title}" if info.damage else title))
    right = [index for index, name in enumerate(head) if name in ("AGE", "MESSAGES", "COST", "WAITING")]
    return table(rows, right=right, room=width, whole=(0, *right))


def cost(amount: float) -> str:
    return dollars(amount) if amount else "-"


def _home_short(folder: str) -> str:
    try:
        return f"~/{Path(folder).relative_to(Path.home())}" if folder else "-"
    except (ValueError, RuntimeError):
        return folder


def facts(loaded: LoadedSession, redactor: Redactor) -> list[tuple[str, str]]:
    """The facts about a session, without its messages."""
    info = loaded.info
    pending = pending_calls(loaded.messages)
    usage = info.usage
    tokens = f"{usage.input + usage.cache_read + usage.cache_write} tokens in, {usage.output} out"
    pairs = [
        ("session", info.id),
        ("title", redactor.redact(info.title)),
        ("folder", info.cwd),
        ("model", "" if info.model is None else str(info.model)),
        ("begun", _time(info.created)),
        ("used last", _time(info.updated)),
        ("messages", str(info.messages)),
        ("waiting", f"{number_of(len(pending), 'call')} for an answer" if pending else ""),
        *[("", named(call, redactor)) for call in pending],
        ("answer with", how_to_answer(pending, info.id)),
        ("cost", f"{cost(info.cost.amount)} ({tokens})"),
        ("forked from", info.parent or ""),
        ("file", str(loaded.path)),
        *[("problem", problem) for problem in info.damage],
    ]
    if loaded.context is not None:
        pairs.append(("compacted", f"the model gets {len(loaded.context)} messages instead of these"))
    return [(name, text) for name, text in pairs if text]


def _time(moment: int) -> str:
    return local_moment(moment, "%Y-%m-%d %H:%M:%S") if moment else ""


def rows_of(
    number: int, message: AgentMessage, redactor: Redactor, palette: Palette, *, width: int | None, full: bool
) -> list[str]:
    """One message, beneath a row with its number."""
    head, blocks = _parts(message, redactor)
    row = f"[{number}] {safe_display(head, 200)}"
    rows = [palette.style(row if width is None else cut(row, width), "bold")]
    most = None if full else _MOST_ROWS
    for mark, text in blocks:
        following = _MORE if mark == _CALL else mark
        shown = redactor.redact(text.rstrip("\n"))
        laid = laid_out(safe_text(shown if full else _short_lines(shown)), mark, following, width, most=most)
        rows += [palette.style(row, "dim") for row in laid] if mark == _THOUGHT else laid
    return rows


def _short_lines(text: str) -> str:
    """The text without the middle of very long lines: without a window, rows are not wrapped and have no limit."""
    if len(text) <= _LONGEST_LINE:
        return text
    lines, tail = text.split("\n"), _LONGEST_LINE * 2 // 5
    for number, line in enumerate(lines):
        if (more := len(line) - _LONGEST_LINE) > 0:
            lines[number] = f"{line[: _LONGEST_LINE - tail]} … [{more:,} characters more] … {line[-tail:]}"
    return "\n".join(lines)


def remarks(loaded: LoadedSession, redactor: Redactor, *, width: int | None, full: bool) -> dict[int, list[str]]:
    """Labels and an application's notes as rows, by the number of the message that they follow."""
    rows: dict[int, list[str]] = {}
    last = len(loaded.messages)
    for label in loaded.labels:
        row = f"  # {safe_display(redactor.redact(label.text), 200)}"
        rows.setdefault(min(label.position, last), []).append(row)
    for note, position in zip(loaded.notes, loaded.fold.note_positions, strict=True):
        data = "" if note.data is None else f": {_plain(note.data)}"
        said = redactor.redact(f"{note.kind}{data}")
        text = safe_text(said if full else _short_lines(said))
        laid = laid_out(text, _NOTE, _MORE, width, most=None if full else _MOST_ROWS)
        rows.setdefault(min(position, last), []).extend(laid)
    return rows


def _parts(message: AgentMessage, redactor: Redactor) -> tuple[str, list[tuple[str, str]]]:
    """The head row of a message, and its contents, each with a mark."""
    match message:
        case UserMessage():
            return "user", [_block(block) for block in message.content]
        case AssistantMessage():
            blocks = [_block(block) for block in message.content]
            if message.error_message:
                blocks.append((_TEXT, f"error: {message.error_message}"))
            ended = "" if message.stop_reason in ("stop", "tool_use") else f" ({message.stop_reason.value})"
            return f"assistant {message.provider}:{message.model_id}{ended}", blocks
        case ToolResultMessage():
            how = message.outcome.value if message.is_error else "done"
            head = f"result of {redactor.redact(message.tool_name)}, {how}"
            return head, [_block(block) for block in message.content]
        case _:
            from swink_agent.memory import UnknownMessage  # an application's own message, whose type is not known here

            is_known = not isinstance(message, UnknownMessage)
            fields = msgspec.to_builtins(message, enc_hook=str) if is_known else dict(message.data)
            tag = redactor.redact(str(fields.pop("role", "") or type(message).__name__))
            said = [(_TEXT, f"{name}: {_plain(value)}") for name, value in fields.items()]
            return f"{tag}, a message of an application", said


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _block(block: Any) -> tuple[str, str]:
    match block:
        case types.Text():
            return _TEXT, block.text
        case types.Thinking():
            return _THOUGHT, block.thinking
        case types.ToolCall():
            return _CALL, f"{block.name} {summary_of(block.name, block.arguments)}".rstrip()
        case types.Image():
            return _TEXT, "(a picture)"
        case types.Document():
            return _TEXT, f"(the document {block.shown_name})"
        case _:
            return _TEXT, msgspec.json.encode(block).decode()
