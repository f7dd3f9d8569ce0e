"""A reply by another model than was asked for is told, once per run and pair."""

from __future__ import annotations

from typing import Any

from swink_agent import AgentEvent, AgentStart, AssistantMessage, DelegateEvent, MessageEnd
from swink_agent.app.shown.changes import Changes, Notice
from swink_agent.app.shown.other_models import OtherModels


def reply(served: str | None, asked: str = "gpt-4o") -> MessageEnd:
    return MessageEnd(AssistantMessage("hi", "openai", asked, served_model=served))


def told(*events: AgentEvent) -> list[str]:
    others = OtherModels()
    return [words for event in events if (words := others.of(event)) is not None]


WORDS = "openai:gpt-4o was asked, and gpt-4o-mini answered"


def test_another_model_is_told_once_in_each_run_for_each_pair() -> None:
    one, start = reply("gpt-4o-mini"), AgentStart()
    assert told(start, one, one, reply("gpt-5"), start, one) == [
        WORDS,
        "openai:gpt-4o was asked, and gpt-5 answered",
        WORDS,
    ]


def test_the_same_model_under_another_name_is_not_told() -> None:
    assert told(reply(None), reply("gpt-4o"), reply("gpt-4o-2024-08-06"), reply("openai/gpt-4o")) == []


def test_replies_of_delegates_are_told_and_their_start_forgets_nothing() -> None:
    def inside(event: Any) -> DelegateEvent:
        return DelegateEvent("1", "task", DelegateEvent("2", "task", event))

    assert told(AgentStart(), reply("gpt-4o-mini"), inside(AgentStart()), inside(reply("gpt-4o-mini"))) == [WORDS]
    assert told(inside(reply("gpt-4o-mini"))) == [WORDS]


def test_editors_and_the_browser_get_a_warning() -> None:
    changes = Changes()
    assert Notice("warning", WORDS) in list(changes.of(reply("gpt-4o-mini")))
