"""Every codec, parser and renderer takes each value of `tests/edges.py`, or refuses it with its own error."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from swink_agent import AssistantMessage, Extension, Redactor, Text, Thinking, ToolCall, ToolResultMessage, UserMessage
from swink_agent.core.encoding.codec import decode_event, decode_message, encode_message
from swink_agent.core.texts.likeness import close_names
from swink_agent.evals import EvalSetError, decode_attempt, decode_task, load_script, load_set
from swink_agent.memory import SessionInfo, export_html, export_json, export_markdown
from swink_agent.policies import Checkpoint, ContentFilter, PiiRedactor, PromptGuard
from swink_agent.rendering import cells, characters, escaping, highlight, inline, prose, tame
from swink_agent.rendering.texts.diffs import diff_lines
from swink_agent.rendering.values import pretty_json
from swink_agent.skills import read_skill
from tests.edges import BYTES, JSON, NOT_JSON, SECRET, TEXTS

REDACTOR = Redactor(environment={})
INFO = SessionInfo(id="20260101-000000-abcdef")


def messages(text: str) -> list[Any]:
    """A conversation that has the text wherever one can be."""
    call = ToolCall("call_1", "look", {"where": text})
    return [
        UserMessage([Text(text)]),
        AssistantMessage([Thinking(text), Text(text), call]),
        ToolResultMessage("call_1", [Text(text)], details={"seen": text}, tool_name="look"),
        UserMessage([Extension("x", {"y": text})]),
    ]


# -- texts ---------------------------------------------------------------------------------------------------

FOR_TERMINALS: list[Callable[[str], str]] = [escaping.safe_display, escaping.safe_line, escaping.safe_text]
FOR_PAGES: list[Callable[[str], str]] = [
    prose.prose_html,
    lambda text: export_html(INFO, messages(text)),
    lambda text: export_markdown(INFO, messages(text)),
]
PARTS: list[Callable[[str], object]] = [
    *(prose.plain_html, tame.tamed, tame.fenced, tame.code_span),
    lambda text: inline.inline_html(text, {text: text}),
    *(characters.visible, characters.one_line, escaping.display_warnings, cells.cell_width),
    lambda text: cells.wrap(text, 20),
    lambda text: cells.cut(text, 20),
    lambda text: highlight.code_html(text, "python"),
    lambda text: highlight.diff_html(text, text + "x"),
    lambda text: diff_lines(text, text[::-1]),
    lambda text: close_names(text, ["look", text + "x"]),
    *(REDACTOR.redact, REDACTOR.mask, PiiRedactor().redact, PromptGuard().scan, ContentFilter(["word"]).finds),
]


@pytest.mark.table
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_part_of_a_renderer_takes_every_text(text: str) -> None:
    for render in PARTS:
        render(text)


@pytest.mark.table
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_terminal_gets_nothing_that_it_would_obey(text: str) -> None:
    for render in FOR_TERMINALS:
        shown = render(text)
        assert not {unicodedata.category(each) for each in shown if each not in "\n\t"} & {"Cc", "Cs"}
        shown.encode()


@pytest.mark.table
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_page_or_document_can_be_written_and_runs_nothing(text: str) -> None:
    for render in FOR_PAGES:
        shown = render(text)
        shown.encode()
        if render is not FOR_PAGES[-1]:  # Markdown has code between fences
            assert not [mark for mark in ("<script>alert", "<img src=x", 'href="javascript') if mark in shown]


@pytest.mark.table
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_messages_with_any_text_come_back_from_json(text: str) -> None:
    for message in messages(text):
        again = decode_message(encode_message(message))
        assert decode_message(encode_message(again)) == again
        assert SECRET not in encode_message(REDACTOR.redact_message(message)).decode()
    export_json(INFO, messages(text))


# -- values --------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize("value", JSON.values(), ids=JSON)
def test_messages_with_any_json_come_back_equal(value: Any) -> None:
    result = ToolResultMessage("call_1", [Text("a")], details=value, tool_name="look")
    call = AssistantMessage([ToolCall("call_1", "look", {"a": value})])
    assert decode_message(encode_message(result)) == result
    assert decode_message(encode_message(call)) == call
    assert REDACTOR.redact_message(call) == call


@pytest.mark.table
@pytest.mark.parametrize("value", [*JSON.values(), *NOT_JSON.values()], ids=[*JSON, *NOT_JSON])
def test_any_value_is_shown_and_masked(value: Any) -> None:
    characters.visible(pretty_json(value)).encode()
    masked = REDACTOR.redact_value(value)
    assert masked is value or isinstance(masked, (type(value), str))
    assert not isinstance(value, float) or masked == value or math.isnan(value)


# -- files and frames ----------------------------------------------------------------------------------------

Read = Callable[[Path, bytes], object]


def _in_file(read: Callable[[Path], object]) -> Read:
    def reading(path: Path, data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return reading


READERS: dict[str, tuple[Read, type[Exception]]] = {
    "a message": (lambda _, data: decode_message(data), ValueError),
    "an event": (lambda _, data: decode_event(data), ValueError),
    "an attempt": (lambda _, data: decode_attempt(data), ValueError),
    "a task": (lambda _, data: decode_task(data), ValueError),
    "a checkpoint": (_in_file(Checkpoint.load), ValueError),
    "a set of cases": (_in_file(load_set), EvalSetError),
    "a script": (_in_file(load_script), EvalSetError),
}


def _rows() -> Iterable[Any]:
    for reader in READERS:
        for name, data in BYTES.items():
            yield pytest.param(reader, data, id=f"{reader} of {name}")


@pytest.mark.table
@pytest.mark.parametrize(("reader", "data"), [*_rows()])
def test_bytes_that_cannot_be_read_end_in_the_readers_own_error(reader: str, data: bytes, tmp_path: Path) -> None:
    read, error = READERS[reader]
    with pytest.raises(error) as raised:
        read(tmp_path / "file.json", data)
    assert not isinstance(raised.value, UnicodeError | RecursionError)
    assert "\n" not in str(raised.value)


@pytest.mark.table
@pytest.mark.parametrize("data", [*BYTES.values(), *(text.encode(errors="replace") for text in TEXTS.values())])
def test_a_skill_of_any_bytes_has_a_problem(data: bytes, tmp_path: Path) -> None:
    assert read_skill(tmp_path, data=data).problem
