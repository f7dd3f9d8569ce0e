"""Writes the messages of a session as HTML: prompts, replies, folded tool calls, and entries from applications.

Owns the elements that show who spoke. Session content cannot forge such an element: all content is escaped and placed
in paragraphs, lists or code blocks inside the element of its speaker. Images are embedded only if their data is in the
message and begins with the signature of a bitmap type that browsers draw: SVG can contain scripts.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from html import escape
from typing import Any, NamedTuple, cast

from swink_agent.core import types
from swink_agent.core.encoding.media import kind_of

from . import turns
from .characters import one_line, visible
from .checklist import LONGEST_ITEM, SIGNS, TodoItem, counted, todo_of
from .highlight import code_html, diff_html, highlighted, language_of_path, looks_like_diff
from .inline import safe_address
from .prose import prose_html
from .values import pretty_json

_SHORT = 100
_COMMANDS = frozenset({"command", "cmd", "script"})
_ENDINGS = {"length": "cut off at the length limit", "aborted": "stopped", "error": "failed"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_HEAD = 24


class Step(NamedTuple):
    """A call of a delegate: its state in a word, its name, and a summary. `depth` is the delegate's level, from 0."""

    word: str
    name: str
    about: str
    depth: int = 0


class Delegated(NamedTuple):
    """The delegate that a call runs: its usage and current activity as text, and its calls."""

    about: str
    steps: Sequence[Step] = ()


class Now(NamedTuple):
    """A call in an active run: its state in a word, and its output so far.

    Once the call has a result, that is shown instead of both. `delegated` is shown after the end of the call too.
    """

    word: str
    output: str = ""
    delegated: Delegated | None = None


def entry_html(
    entry: turns.Entry,
    out: list[str],
    *,
    goes_on: bool,
    model: str,
    prefix: str = "",
    now: Mapping[int, Now] | None = None,
) -> None:
    """Appends the HTML of one entry to `out`.

    `goes_on` is true for a reply that directly follows another reply. `model` is the session's usual model; a reply
    names its model only if it is a different one. `prefix` begins the anchor of each message, for a page that shows
    several conversations. `now` is for an active run: the states of the reply's calls, by their numbers. Each call
    then gets the id that `call_anchor` returns.
    """
    if isinstance(entry, turns.Prompt):
        _begin("user", "User", anchor(entry.position, prefix), entry.message.timestamp, out)
        _content(entry.message.content, out)
        out.append("</article>\n")
    elif isinstance(entry, turns.Reply):
        _reply(entry, anchor(entry.position, prefix), goes_on, model, now, out)
    elif isinstance(entry, turns.Label):
        out.append(f'<p class="label"><span>Label</span> <bdi>{escape(one_line(entry.text))}</bdi></p>\n')
    elif isinstance(entry, turns.Note):
        out.append('<section class="note">\n')
        _folded(f'Note <code class="tag">{escape(one_line(entry.kind, 60))}</code>', _json(entry.data), "data", out)
        out.append("</section>\n")
    elif isinstance(entry, turns.Other):
        _begin("custom", "Application", anchor(entry.position, prefix), None, out)
        out.append(f"{_json(entry.message)}</article>\n")
    else:
        _begin("custom", "Result without a call", anchor(entry.position, prefix), entry.message.timestamp, out)
        _tool(turns.ToolUse(types.ToolCall(entry.message.tool_call_id, entry.message.tool_name), entry.message), out)
        out.append("</article>\n")


def conversation_html(shown: Sequence[turns.Entry], out: list[str], *, model: str, prefix: str = "") -> None:
    """Appends the HTML of the entries in order. Consecutive replies look like one reply."""
    before: turns.Entry | None = None
    for entry in shown:
        goes_on = isinstance(entry, turns.Reply) and isinstance(before, turns.Reply)
        entry_html(entry, out, goes_on=goes_on, model=model, prefix=prefix)
        before = entry


def _begin(kind: str, name: str, place: str, timestamp: int | None, out: list[str]) -> None:
    header = f"<header><h2>{name}</h2>{time_html(timestamp)}{_here(place)}</header>"
    out.append(f'<article class="{kind}" id="{place}">{header}\n')


def _here(place: str) -> str:
    number = place.rpartition("m")[2]
    return f'<a class="here" href="#{place}" aria-label="Link to message {number}">#{number}</a>'


def anchor(position: int, prefix: str = "") -> str:
    """Returns the anchor of a message in the page. Numbers start at 1, as in `swink sessions show`."""
    return f"{prefix}m{position + 1}"


def call_anchor(position: int, number: int) -> str:
    """Returns the id of a call in an active run: that of its message, and its number from 0."""
    return f"{anchor(position)}c{number}"


def time_html(timestamp: int | None) -> str:
    """Returns a time in UTC, which a script can turn into local time; empty if it is not a valid time."""
    exact = "" if timestamp is None else turns.formatted(timestamp, "%Y-%m-%dT%H:%M:%SZ", UTC)
    return f'<time datetime="{exact}">{turns.moment(timestamp)}</time>' if timestamp is not None and exact else ""


def _reply(
    entry: turns.Reply, place: str, goes_on: bool, usual_model: str, now: Mapping[int, Now] | None, out: list[str]
) -> None:
    message = entry.message
    if goes_on:  # the footer shows its time and number; only screen readers use the heading
        out.append(f'<article class="assistant again" id="{place}">')
        out.append("<header><h2>Assistant</h2></header>\n")
    else:
        _begin("assistant", "Assistant", place, message.timestamp, out)
    uses = enumerate(entry.uses)
    for block in message.content:
        if type(block) is types.ToolCall:
            number, use = next(uses)
            if now is None:
                _tool(use, out)
            else:
                call_html(use, out, call_anchor(entry.position, number), now.get(number))
        else:
            _content((block,), out)
    if message.error_message is not None or message.is_failed:
        words = visible(message.error_message or f"The reply was {_ENDINGS[message.stop_reason]}.")
        kind = f"{message.error_kind.value.replace('_', ' ')}: " if message.error_kind is not None else ""
        out.append(f'<p class="failure" dir="auto"><strong>{escape(kind)}</strong>{escape(words)}</p>\n')
    _footer(entry, place if goes_on else "", usual_model, out)
    out.append("</article>\n")


def _footer(entry: turns.Reply, place: str, usual_model: str, out: list[str]) -> None:
    message = entry.message
    model = ":".join([part for part in (message.provider, message.model_id) if part])
    facts = [
        one_line(model, 80) if model != usual_model else "",
        turns.usage_words(message.usage),
        turns.cost_words(message.cost),
    ]
    facts.append(_ENDINGS.get(message.stop_reason, ""))
    shown = "".join([f"<li><bdi>{escape(fact)}</bdi></li>" for fact in facts if fact])
    aside = time_html(message.timestamp) + _here(place) if place else ""
    if shown or aside:
        out.append(f'<footer><ul class="facts">{shown}</ul>{aside}</footer>\n')


def _content(blocks: Sequence[types.ContentBlock], out: list[str]) -> None:
    for block in blocks:
        if type(block) is types.Text:
            if block.text.strip():
                out.append(f'<div class="prose">\n{prose_html(block.text)}</div>\n')
        elif type(block) is types.Thinking:
            if block.thinking.strip():
                first = escape(one_line(block.thinking, 120))
                body = f'<div class="prose">\n{prose_html(block.thinking)}</div>\n'
                _folded(f'<span class="name">Thinking</span> <bdi class="gist">{first}</bdi>', body, "thinking", out)
        elif type(block) is types.Image:
            out.append(_image(block))
        elif type(block) is types.Document:
            out.append(_document(block))
        elif type(block) is types.Extension:
            name = f'Extension <code class="tag">{escape(one_line(block.type_name, 60))}</code>'
            _folded(name, _json(block.data), "data", out)


def _folded(summary: str, body: str, kind: str, out: list[str]) -> None:
    out.append(f'<details class="{kind}"><summary>{summary}</summary>\n<div class="inside">{body}</div></details>\n')


def _image(block: types.Image) -> str:
    """Embeds an image whose data is in the message. For an image elsewhere, shows its address and loads nothing."""
    source = block.source
    if isinstance(source, types.Base64Source) and (url := data_url(source)) is not None:
        return f'<figure><img src="{url}" alt="an image in the session ({size_of(source)})" loading="lazy"></figure>\n'
    return f'<p class="elsewhere">Image{_place(source)}</p>\n'


def _document(block: types.Document) -> str:
    """Names a document. Its data is not embedded, because a browser would run active content in it."""
    name = f"<bdi>{escape(one_line(block.shown_name, 200))}</bdi>"
    return f'<p class="elsewhere">Document {name}{_place(block.source)}</p>\n'


def _place(source: types.Source) -> str:
    """Describes where an image or document is that is not shown, with a link if its address is safe."""
    if isinstance(source, types.Base64Source):
        return f", not shown: <code>{escape(f'{one_line(source.media_type, 60)}, {size_of(source)}')}</code>"
    where = source.url if isinstance(source, types.UrlSource) else source.path
    shown = escape(one_line(where, 300))
    address = safe_address(where) if isinstance(source, types.UrlSource) and len(where) < 2000 else None
    if address is not None and visible(address) == address:
        shown = f'<a href="{escape(address)}" rel="noopener noreferrer nofollow">{shown}</a>'
    return f" {'at' if isinstance(source, types.UrlSource) else 'in the file'} <code>{shown}</code>"


def _json(value: Any) -> str:
    return code_html(visible(pretty_json(value)), "json")


# -- tools ---------------------------------------------------------------------------------------------------


def call_html(use: turns.ToolUse, out: list[str], place: str, now: Now | None) -> None:
    """Appends the HTML of a call in an active run, with an id. `now` is its state, shown until it has a result."""
    _tool(use, out, f' id="{place}"', now)


def _tool(use: turns.ToolUse, out: list[str], place: str = "", now: Now | None = None) -> None:
    call, result = use
    word, kind = turns.status(result) if now is None or result is not None else (now.word, "now")
    name = escape(one_line(call.name, 60)) or "tool"
    items = None if result is None or result.is_error else todo_of(call.name, result.details)
    about = counted(items) if items else turns.gist(call)
    delegated = None if now is None else now.delegated
    used = "" if delegated is None else f'<bdi class="used">{escape(one_line(delegated.about, 200))}</bdi> '
    out.append(
        f'<details class="tool {kind}"{place}><summary><span class="name"><bdi>{name}</bdi></span> '
        f'<bdi class="gist">{escape(about)}</bdi> {used}<span class="badge">{word}</span></summary>\n'
        '<div class="inside">\n'
    )
    change = turns.change_of(result)
    arguments = _arguments(call)
    if items:
        _folded("Arguments", arguments, "data", out)
        out.append(f'<section><h3 class="part">List</h3>\n{_checklist(items)}</section>\n</div></details>\n')
        return
    if change is None:
        out.append(f'<section><h3 class="part">Arguments</h3>\n{arguments}</section>\n' if arguments else "")
    else:  # the diff shows the same more briefly; the arguments stay available because a tool may report a wrong diff
        _folded("Arguments", arguments, "data", out)
        out.append(f'<section><h3 class="part">Change</h3>\n{diff_html(*change)}</section>\n')
    if delegated is not None and delegated.steps:
        out.append(f'<section><h3 class="part">Calls</h3>\n{_steps(delegated.steps)}</section>\n')
    if result is not None:
        out.append('<section><h3 class="part">Result</h3>\n')
        _result(result, out)
        if result.details is not None and change is None:
            _folded("Details", _json(result.details), "data", out)
        out.append("</section>\n")
    elif now is not None and now.output:
        out.append(f'<section><h3 class="part">Output</h3>\n{code_html(visible(now.output))}</section>\n')
    out.append("</div></details>\n")


def _steps(steps: Sequence[Step]) -> str:
    rows = [
        f'<li class="depth-{min(step.depth, 3)}"><span class="badge">{escape(step.word)}</span> '
        f"<strong><bdi>{escape(one_line(step.name, 60))}</bdi></strong> "
        f"<bdi>{escape(one_line(step.about, 200))}</bdi></li>\n"
        for step in steps
    ]
    return f'<ul class="steps">\n{"".join(rows)}</ul>\n'


def _checklist(items: Sequence[TodoItem]) -> str:
    rows = [
        f'<li class="{item.status.replace("_", "-")}">{SIGNS[item.status]} '
        + f"<bdi>{escape(one_line(item.text, LONGEST_ITEM))}</bdi></li>\n"
        for item in items
    ]
    return f'<ul class="todo">\n{"".join(rows)}</ul>\n'


def _arguments(call: types.ToolCall) -> str:
    if call.partial_json is not None:
        return f'<p class="quiet">incomplete, or not a JSON object</p>\n{code_html(visible(call.partial_json))}'
    if not call.arguments:
        return ""
    path = next((call.arguments[key] for key in ("path", "file_path", "file") if key in call.arguments), "")
    kind = language_of_path(path) if isinstance(path, str) else ""
    rows = [
        f"<dt><bdi>{escape(one_line(str(key), 80))}</bdi></dt><dd>{_argument(str(key), value, kind)}</dd>\n"
        for key, value in cast("Mapping[Any, Any]", call.arguments).items()
    ]
    return f'<dl class="arguments">\n{"".join(rows)}</dl>\n'


def _argument(key: str, value: Any, kind: str) -> str:
    if not isinstance(value, str):
        text = visible(pretty_json(value))
        return f"<code>{highlighted(text, 'json')}</code>" if len(text) <= _SHORT and "\n" not in text else _json(value)
    text = visible(value)
    if key in _COMMANDS:
        return code_html(text, "bash")
    if len(text) <= _SHORT and "\n" not in text:
        return f"<code>{escape(text)}</code>"
    return code_html(text, kind)


def _result(result: types.ToolResultMessage, out: list[str]) -> None:
    for block in result.content:
        if type(block) is types.Text:
            shown = visible(block.text)
            kind = "diff" if looks_like_diff(shown) else "json" if shown.startswith(('{"', "[{", "{\n")) else ""
            out.append(code_html(shown, kind) if shown.strip() else '<p class="quiet">empty</p>\n')
        else:
            _content((block,), out)


def data_url(image: types.Base64Source) -> str | None:
    """Returns the image as a `data:` URL of base64 characters only, or `None` if it must not be embedded."""
    data = image.data.strip()
    if "\n" in data or "\r" in data:
        data = data.replace("\r", "").replace("\n", "")
    if _BASE64.fullmatch(data) is None or len(data) % 4:
        return None
    try:
        head = base64.b64decode(data[: 4 * _HEAD // 3], validate=True)
    except binascii.Error:
        return None
    media_type = "image/avif" if head[4:12] in (b"ftypavif", b"ftypavis") else kind_of(head)
    is_declared = media_type == image.media_type.strip().lower().replace("image/jpg", "image/jpeg")
    return f"data:{media_type};base64,{data}" if is_declared and media_type.startswith("image/") else None


def size_of(image: types.Base64Source) -> str:
    """Returns the size of an image or a document as a phrase, such as "12 KB"."""
    size = len(image.data) * 3 // 4
    return f"{size:,} bytes" if size < 10_000 else f"{size // 1024:,} KB"
