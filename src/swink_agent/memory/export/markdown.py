"""The Markdown export: a session to read, quote and put under version control.

Owns the layout: a title, speakers as second-level headings, tool calls as third-level ones. The texts of messages stay
Markdown, in a form that cannot pass for these headings (`tame`); arguments and results are in fences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swink_agent.core import types
from swink_agent.memory.sessions.info import SessionInfo
from swink_agent.rendering import turns
from swink_agent.rendering.blocks import size_of
from swink_agent.rendering.characters import one_line, visible
from swink_agent.rendering.checklist import LONGEST_ITEM, todo_of
from swink_agent.rendering.highlight import looks_like_diff
from swink_agent.rendering.tame import code_span, escaped, fenced, tamed
from swink_agent.rendering.values import pretty_json


def export_markdown(
    info: SessionInfo,
    messages: Sequence[types.AgentMessage],
    *,
    labels: Sequence[turns.LabelAt] = (),
    notes: Sequence[turns.NoteAt] = (),
) -> str:
    """The session as one Markdown document."""
    parts = [f"# {escaped(title_of(info))}", _facts(info)]
    if info.problems:
        problems = "\n".join([f"> - {escaped(one_line(problem, 400))}" for problem in info.problems])
        parts.append(f"> **Problems with this session's file:**\n>\n{problems}")
    for entry in turns.entries(messages, labels, notes):
        parts += _entry(entry)
    return "\n\n".join([part for part in parts if part]) + "\n"


def _facts(info: SessionInfo) -> str:
    facts = [
        ("Session", code_span(one_line(info.id))),
        ("Model", "" if info.model is None else code_span(one_line(str(info.model)))),
        ("Folder", code_span(one_line(info.cwd, 400)) if info.cwd else ""),
        ("Started", turns.moment(info.created) if info.created else ""),
        ("Last change", turns.moment(info.updated) if info.updated else ""),
        ("Messages", f"{info.messages:,}"),
        ("Tokens", turns.usage_words(info.usage).removesuffix(" tokens")),
        ("Cost", turns.cost_words(info.cost)),
        ("Forked from", code_span(one_line(info.parent)) if info.parent else ""),
    ]
    return "\n".join([f"- {name}: {value}" for name, value in facts if value])


def _entry(entry: turns.Entry) -> list[str]:
    if isinstance(entry, turns.Prompt):
        return [_heading("User", entry.message.timestamp), *_content(entry.message.content)]
    if isinstance(entry, turns.Reply):
        return _reply(entry)
    if isinstance(entry, turns.Label):
        return [f"---\n\n**Label:** {escaped(one_line(entry.text))}"]
    if isinstance(entry, turns.Note):
        return [f"## Note {code_span(one_line(entry.kind, 60))}", _json(entry.data)]
    if isinstance(entry, turns.Other):
        return ["## Application", _json(entry.message)]
    message = entry.message
    use = turns.ToolUse(types.ToolCall(message.tool_call_id, message.tool_name), message)
    return [_heading("Result without a call", message.timestamp), *_tool(use)]


def _heading(name: str, timestamp: int) -> str:
    return f"## {name}\n\n*{turns.moment(timestamp)}*"


def _reply(entry: turns.Reply) -> list[str]:
    message = entry.message
    parts = [_heading("Assistant", message.timestamp)]
    uses = iter(entry.uses)
    for block in message.content:
        parts += _tool(next(uses)) if type(block) is types.ToolCall else _content((block,))
    if message.error_message is not None or message.is_failed:
        words = visible(message.error_message or f"the reply ended as {message.stop_reason.value}")
        parts.append(f"**Failed:**\n\n{fenced(words)}")
    model = ":".join([part for part in (message.provider, message.model_id) if part])
    facts = [code_span(one_line(model, 80)) if model else ""]
    facts += [turns.usage_words(message.usage), turns.cost_words(message.cost)]
    shown = " · ".join([fact for fact in facts if fact])
    return [*parts, f"*{shown}*"] if shown else parts


def _content(blocks: Sequence[types.ContentBlock]) -> list[str]:
    parts: list[str] = []
    for block in blocks:
        if type(block) is types.Text:
            parts.append(tamed(visible(block.text)) if block.text.strip() else "")
        elif type(block) is types.Thinking:
            quoted = visible(block.thinking).strip("\n").replace("\n", "\n    ")
            parts.append(f"Thinking:\n\n    {quoted}" if quoted.strip() else "")
        elif type(block) is types.Image:
            parts.append(_attached("image", block.source))
        elif type(block) is types.Document:
            parts.append(_attached(f"document {code_span(one_line(block.shown_name, 200))}", block.source))
        elif type(block) is types.Extension:
            parts.append(f"Extension {code_span(one_line(block.type_name, 60))}:\n\n{_json(block.data)}")
    return parts


def _attached(what: str, source: types.Source) -> str:
    """Names a picture or document. Its data is left out."""
    if isinstance(source, types.Base64Source):
        return f"[{what}, {escaped(one_line(source.media_type, 60))}, {size_of(source)}]"
    if isinstance(source, types.UrlSource):
        return f"[{what} at {code_span(one_line(source.url, 300))}]"
    return f"[{what} in the file {code_span(one_line(source.path, 300))}]"


def _tool(use: turns.ToolUse) -> list[str]:
    call, result = use
    word, _ = turns.status(result)
    parts = [f"### Tool {code_span(one_line(call.name, 60))} ({word})"]
    items = None if result is None else todo_of(call.name, result.details)
    if result is not None and items and not result.is_error:
        rows: list[str] = []
        for item in items:
            text = escaped(one_line(item.text, LONGEST_ITEM))
            shown = f"**{text}** (in progress)" if item.status == "in_progress" else text
            rows.append(f"- [{'x' if item.status == 'done' else ' '}] {shown}")
        return [*parts, "\n".join(rows)]
    if call.partial_json is not None:
        parts.append(fenced(visible(call.partial_json)))
    elif call.arguments:
        parts.append(_json(call.arguments))
    if result is not None:
        for block in result.content:
            if type(block) is types.Text:
                shown = visible(block.text)
                parts += ["Result:", fenced(shown, "diff" if looks_like_diff(shown) else "")]
            else:
                parts += _content((block,))
        change = turns.change_of(result)
        parts += [_diff(*change)] if change is not None else []
    return parts


def _diff(old: str, new: str) -> str:
    from swink_agent.rendering.texts.diffs import diff_lines

    signs = {"added": "+", "removed": "-", "context": " ", "hunk": ""}
    lines = diff_lines(visible(old), visible(new))
    return fenced("\n".join([signs[kind] + line for kind, line in lines]), "diff") if lines else ""


def _json(value: Any) -> str:
    return fenced(visible(pretty_json(value)), "json")


def title_of(info: SessionInfo) -> str:
    return one_line(info.title, 160) or f"Session {one_line(info.id)}"
