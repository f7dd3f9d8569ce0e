"""The JSON of a session: it is complete, and messages can be decoded unchanged."""

from __future__ import annotations

import json

import pytest

from swink_agent import UserMessage, decode_message
from swink_agent.memory import SessionInfo, UnknownMessage, export_json

from .sessions import ATTACKS, Exported, Notice, infected, ordinary


def document(exported: Exported) -> dict[str, object]:
    text = export_json(exported.info, exported.messages, labels=exported.labels, notes=exported.notes)
    text.encode()
    return json.loads(text)


def test_the_document_has_everything() -> None:
    exported = ordinary()
    made = document(exported)
    assert list(made) == ["format", "version", "info", "messages", "labels", "notes"]
    assert (made["format"], made["version"]) == ("swink-agent-session-export", 1)
    info = made["info"]
    assert isinstance(info, dict)
    assert info["model"]["model_id"] == "claude-sonnet-4-6"
    assert info["problems"] == ["line 17 was damaged and is left out"]
    assert made["labels"] == [{"text": "before the picture", "at": 7}]
    assert made["notes"] == [{"kind": "deploy", "data": {"ok": True}, "at": 10}]


def test_messages_come_back_as_they_were() -> None:
    exported = ordinary()
    messages = document(exported)["messages"]
    assert isinstance(messages, list)
    assert [decode_message(json.dumps(message), types=[Notice]) for message in messages] == list(exported.messages)


def test_a_message_whose_type_nobody_knew_here_comes_back_where_it_is_known() -> None:
    exported = Exported(SessionInfo(id="s"), (UnknownMessage({"role": "notice", "text": "psst"}),), (), ())
    messages = document(exported)["messages"]
    assert isinstance(messages, list)
    assert [decode_message(json.dumps(message), types=[Notice]) for message in messages] == [Notice("psst")]


@pytest.mark.table
@pytest.mark.parametrize("name", ATTACKS)
def test_any_session_is_valid_json(name: str) -> None:
    evil = ATTACKS[name]
    made = document(infected(evil))
    info, messages = made["info"], made["messages"]
    assert isinstance(info, dict)
    assert isinstance(messages, list)
    assert info["title"] == evil
    assert messages[0]["content"][0]["text"] == evil


def test_values_that_json_cannot_hold_are_described() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    made = document(Exported(SessionInfo(id="s"), (UserMessage("x"),), (), (("k", deep, 0), ("k", object(), 0))))
    assert isinstance(made["notes"], list)
    assert len(made["notes"]) == 2
