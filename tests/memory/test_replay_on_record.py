"""Replay of data that a file holds in another form: secrets, values that are not JSON, and notes of a person."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from swink_agent import (
    Agent,
    ApproveWith,
    AssistantMessage,
    CustomMessage,
    Inject,
    PolicyContext,
    PreDispatchContext,
    Redactor,
    Reject,
    Skip,
    Text,
    UserMessage,
    tool,
)
from swink_agent.memory import JsonlSessionStore, ReplayReport, replay
from swink_agent.testing import call, scripted, text

SECRET = "kX9-very-secret-value-42"


class Notice(CustomMessage, tag="notice"):
    words: str


@tool
async def put(what: list[Any]) -> str:
    """Takes anything."""
    return "put"


@tool(requires_approval=True)
async def add(a: int, b: int) -> str:
    """Adds."""
    return str(a + b)


async def there_and_back(folder: Path, *replies: Any, again: Any = None, **options: Any) -> ReplayReport:
    """Records one run in a file, and replays it with the same agent, or with what is `again` other about it."""
    store = JsonlSessionStore(folder, [Notice], sync=False)
    agent = Agent("test:model", stream_fn=scripted(*replies), **options)
    with store.create() as session:
        session.attach(agent)
        result = await agent.prompt("go")
    assert result.error is None
    assert SECRET not in session.path.read_text()

    def make(stream_fn: Any, wrap_tool: Any) -> Agent:
        return Agent("test:model", stream_fn=stream_fn, **{**options, **(again or {})})

    return await replay(store.load(session.id), make, patience=5)


# -- what a person told the model -----------------------------------------------------------------------------


def changing(note: str) -> Any:
    return {"approve": lambda _: ApproveWith({"a": 7, "b": 1}, note), "tools": [add]}


async def test_a_persons_words_about_changed_arguments_are_reported_once(tmp_path: Path) -> None:
    report = await there_and_back(tmp_path, call("add", a=1, b=1), text("8"), **changing("I made it 7"))
    assert report.divergence is None, str(report)


async def test_a_persons_words_about_invalid_changed_arguments_are_reported(tmp_path: Path) -> None:
    options = {"approve": lambda _: ApproveWith({"a": "x", "b": 1}, "I made it x"), "tools": [add]}
    report = await there_and_back(tmp_path, call("add", a=1, b=1), text("8"), **options)
    assert report.divergence is None, str(report)


async def test_a_person_who_says_something_else_is_a_difference(tmp_path: Path) -> None:
    again = changing("no reason")
    report = await there_and_back(tmp_path, call("add", a=1, b=1), text("8"), again=again, **changing("I made it 7"))
    assert report.divergence is not None
    assert "another result of the tool add" in str(report)
    assert "+no reason" in str(report)


async def test_an_approval_that_answers_later_is_told_once(tmp_path: Path) -> None:
    async def approve(_: object) -> ApproveWith:
        return ApproveWith({"a": 7, "b": 1}, "I made it 7")

    report = await there_and_back(tmp_path, call("add", a=1, b=1), text("8"), approve=approve, tools=[add])
    assert report.divergence is None, str(report)


# -- what is no JSON -------------------------------------------------------------------------------------------


class Gives:
    """Runs every call with this."""

    def __init__(self, what: Any) -> None:
        self.what = what

    def pre_dispatch(self, ctx: PreDispatchContext) -> None:
        ctx.arguments = {"what": [self.what]}


_ODD = [(1, (2, 3)), PurePosixPath("/x"), date(2026, 1, 1), math.nan, {1: 2}, 2**70, "half \ud83d", f"use {SECRET}"]


@pytest.mark.parametrize("odd", _ODD, ids=[type(odd).__name__ for odd in _ODD[:-2]] + ["half", "secret"])
async def test_arguments_that_a_policy_makes_of_anything_are_the_same_again(tmp_path: Path, odd: Any) -> None:
    replies = call("put", what=["a"]), text("done")
    same = await there_and_back(tmp_path, *replies, tools=[put], policies=[Gives(odd)], redactor=Redactor([SECRET]))
    assert same.divergence is None, str(same)


@pytest.mark.parametrize("odd", _ODD, ids=[type(odd).__name__ for odd in _ODD[:-2]] + ["half", "secret"])
async def test_arguments_that_are_not_json_can_be_shown_as_a_difference(tmp_path: Path, odd: Any) -> None:
    options = {"tools": [put], "redactor": Redactor([SECRET])}
    report = await there_and_back(
        tmp_path, call("put", what=["a"]), text("done"), again={"policies": [Gives(odd)]}, **options
    )
    assert report.divergence is not None
    assert "the tool put is run with other arguments" in str(report)
    assert '-call put {"what":["a"]}' in str(report)


# -- secrets ---------------------------------------------------------------------------------------------------


class Tells:
    """Says the same at every turn, by injection or in the place of the reply."""

    def __init__(self, *said: Any, slot: str = "pre_turn") -> None:
        self.said = said
        setattr(self, slot, self._tell)

    def _tell(self, ctx: PolicyContext) -> Any:
        return Inject(self.said)


class Skips:
    def pre_dispatch(self, ctx: PreDispatchContext) -> Skip:
        return Skip(f"it needs {SECRET}")


POLICIES = {
    "a message": Tells(UserMessage(f"the key is {SECRET}")),
    "an own message": Tells(Notice(f"the key is {SECRET}")),
    "another reply": Tells(AssistantMessage([Text(f"the key is {SECRET}")], "test", "model"), slot="post_turn"),
    "why it is skipped": Skips(),
}


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_secret_that_a_policy_says_is_the_same_on_record(tmp_path: Path, policy: str) -> None:
    """Each agent has a key of its own for its placeholders, unless it is given one."""
    replies = [text("hm")] if policy == "another reply" else [call("put", what=["a"]), text("done")]
    again = {"redactor": Redactor([SECRET])}
    options = {"tools": [put], "policies": [POLICIES[policy]], "redactor": Redactor([SECRET])}
    report = await there_and_back(tmp_path, *replies, again=again, **options)
    assert report.divergence is None, str(report)


async def test_a_secret_in_why_a_person_said_no(tmp_path: Path) -> None:
    options = {"approve": lambda _: Reject(f"not with {SECRET}"), "tools": [add]}
    report = await there_and_back(
        tmp_path,
        *(call("add", a=1, b=1), text("no")),
        again={"redactor": Redactor([SECRET])},
        redactor=Redactor([SECRET]),
        **options,
    )
    assert report.divergence is None, str(report)


async def test_another_text_around_a_secret_is_a_difference(tmp_path: Path) -> None:
    again = {"policies": [Tells(UserMessage(f"the other key is {SECRET}"))]}
    policies = [Tells(UserMessage(f"the key is {SECRET}"))]
    report = await there_and_back(tmp_path, text("hm"), again=again, policies=policies, redactor=Redactor([SECRET]))
    assert report.divergence is not None
    assert report.divergence.reason == "a policy's message differs"
