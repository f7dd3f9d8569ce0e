"""Data that is nested deeper than a file can hold: the run continues, and so does the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentToolResult,
    CustomMessage,
    Extension,
    ToolCall,
    ToolContext,
    ToolResultMessage,
    UserMessage,
)
from swink_agent.core.types import AssistantMessage
from swink_agent.core.values.nesting import DEEPEST
from swink_agent.memory import JsonlSessionStore, LoadedSession, SessionError, UnknownMessage
from swink_agent.testing import call, scripted, text

DEPTHS = [DEEPEST + 1, 450, 700, 5_000, 100_000]


def nested(depth: int) -> Any:
    value: Any = "the leaf"
    for _ in range(depth):
        value = [value]
    return value


class Notice(CustomMessage, tag="notice"):
    text: str
    tree: list[Any] = []


class Anything(CustomMessage, tag="anything"):
    what: Any


class Acts:
    """A tool whose result has details, and which may leave something in the state."""

    name = label = "act"
    description = "Acts."
    parameters_schema: dict[str, Any] = {"type": "object"}
    requires_approval = False

    def __init__(self, details: Any = None, state: Any = None) -> None:
        self.details, self.state = details, state

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        if self.state is not None:
            ctx.state["tree"] = self.state
        return AgentToolResult.text("acted", self.details)


@pytest.fixture
def store(tmp_path: Path) -> JsonlSessionStore:
    return JsonlSessionStore(tmp_path / "sessions", types=[Notice, Anything])


def agent_with(tool: Acts | None = None) -> Agent:
    script = [text("done")] if tool is None else [call("act"), text("done")]
    return Agent("test:model", stream_fn=scripted(*script), tools=[] if tool is None else [tool])


def recorded(store: JsonlSessionStore, agent: Agent, *prompt: Any) -> LoadedSession:
    with store.create() as session:
        session.attach(agent)
        result = agent.prompt_sync(list(prompt) or "go")
        assert (result.text, result.error) == ("done", None)
    loaded = store.load(session.id)
    assert loaded.info.damage == ()
    return loaded


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_result_with_deep_details_is_on_record_with_a_text_for_them(store: JsonlSessionStore, depth: int) -> None:
    agent = agent_with(Acts({"path": "a.py", "tree": nested(depth)}))

    loaded = recorded(store, agent)

    assert loaded.messages == tuple(agent.messages)
    result = loaded.messages[2]
    assert isinstance(result, ToolResultMessage)
    assert not result.is_error
    assert result.details["path"] == "a.py"
    assert "nested deeper than" in result.details["tree"]


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("depth", DEPTHS)
def test_messages_put_into_the_history_by_an_application_are_on_record(store: JsonlSessionStore, depth: int) -> None:
    agent = agent_with()
    agent.messages = [
        Notice("signed in", nested(depth)),
        Anything(nested(depth)),
        UserMessage([Extension("mine", nested(depth))]),
        AssistantMessage([ToolCall("c1", "act", {"x": 1})], "test", "model"),
        ToolResultMessage("c1", "acted", details=nested(depth), tool_name="act"),
    ]

    with store.create() as session:
        session.attach(agent)
        assert agent.prompt_sync("go").text == "done"
    loaded = store.load(session.id)

    notice, anything, user, _, result, *rest = loaded.messages
    assert isinstance(notice, (Notice, UnknownMessage))
    kept = notice.data if isinstance(notice, UnknownMessage) else {"text": notice.text}
    assert kept["text"] == "signed in"
    assert isinstance(anything, Anything)
    assert "nested deeper than" in anything.what
    assert isinstance(user, UserMessage)
    assert isinstance(user.content[0], Extension)
    assert "nested deeper than" in user.content[0].data
    assert isinstance(result, ToolResultMessage)
    assert "nested deeper than" in result.details
    assert len(rest) == 2


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_note_and_metadata_that_are_too_deep_are_refused_and_nothing_is_written(
    store: JsonlSessionStore, depth: int
) -> None:
    with pytest.raises(ValueError, match=f"the metadata of a session cannot be nested deeper than {DEEPEST} levels"):
        store.create(metadata={"tree": nested(depth)})
    assert not store.folder.exists()

    with store.create() as session:
        session.attach(agent := agent_with())
        with pytest.raises(ValueError, match=f"the data of a note cannot be nested deeper than {DEEPEST} levels"):
            session.note("tree", nested(depth))
        session.note("tree", nested(DEEPEST))
        assert agent.prompt_sync("go").text == "done"

    assert [note.data for note in store.load(session.id).notes] == [nested(DEEPEST)]


def test_state_as_deep_as_other_data_is_kept_as_it_is(store: JsonlSessionStore) -> None:
    agent = agent_with(Acts(state=nested(DEEPEST - 1)))

    loaded = recorded(store, agent)

    assert loaded.state == {"tree": nested(DEEPEST - 1)}
    with store.open(loaded.id) as session:
        session.attach(other := agent_with())
        assert other.state == {"tree": nested(DEEPEST - 1)}
        assert other.prompt_sync("more").text == "done"


@pytest.mark.parametrize("depth", [DEEPEST, 700, 20_000, 100_000])
def test_deeper_state_ends_the_run_with_an_error_and_the_session_goes_on(store: JsonlSessionStore, depth: int) -> None:
    agent = agent_with(Acts(state=nested(depth)))
    with store.create() as session:
        session.attach(agent)
        result = agent.prompt_sync("go")
        assert result.error is not None
        assert result.error.startswith("the agent's state cannot be recorded, since ")
        assert "nested" in result.error
        del agent.state["tree"]
        assert agent.continue_loop_sync().text == "done"
    assert len(store.load(session.id).messages) == 5, "the reply that failed is one of them"

    agent = agent_with()
    agent.state["tree"] = nested(depth)
    with store.create() as session, pytest.raises(SessionError, match="state cannot be recorded"):
        session.attach(agent)
