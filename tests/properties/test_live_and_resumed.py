"""What a live run shows and what its resumed session shows are equal, whatever data tools and people give."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AgentEvent,
    AgentToolResult,
    ApproveWith,
    AssistantMessage,
    Extension,
    Redactor,
    RunRecord,
    Text,
    ToolCall,
    ToolContext,
    ToolResultMessage,
    UserMessage,
    tool,
)
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, scripted, text

SECRET = "correct-horse-99"


@dataclasses.dataclass
class Row:
    name: Any


def deep(depth: int) -> Any:
    value: Any = "the leaf"
    for _ in range(depth):
        value = [value]
    return value


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([SECRET, "broken \udce4", b"raw", Path("a.py"), {1, 2}, frozenset("a"), 2**70, deep(200), object]),
    st.just(MappingProxyType({"of": SECRET})),
)
data = st.recursive(
    odd,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(), st.just(SECRET)), inner, max_size=3),
        st.builds(Row, inner),
    ),
    max_leaves=6,
)
words = st.one_of(st.text(max_size=5), st.just("broken \udce4"))


@given(details=data, extra=data, changed=data, said=words, state=st.recursive(st.integers(), st.lists, max_leaves=3))
@example({"path": Path("a.py"), 3: (4.0, float("nan"))}, {"seen": {1, 2}}, {"a": ("b",)}, "", [1])
def test_a_resumed_session_shows_what_the_live_run_did(
    details: Any, extra: Any, changed: Any, said: str, state: Any
) -> None:
    @tool(requires_approval=True)
    async def act(ctx: ToolContext, what: Any = None) -> AgentToolResult:
        """Acts."""
        ctx.state["made"] = state
        ctx.update(AgentToolResult([Text(said), Extension("more", extra)], details))
        return AgentToolResult([Text(said), Extension("more", extra)], details)

    earlier = [
        UserMessage([Text("given"), Extension("more", extra)]),
        AssistantMessage([ToolCall("x", "act")]),
        ToolResultMessage("x", said, details=details),
    ]
    redactor = Redactor([SECRET], environment={})
    agent = Agent(
        "test:model",
        stream_fn=scripted(call("act"), text("done")),
        tools=[act],
        approve=lambda _: ApproveWith({"what": changed}),
        redactor=redactor,
        messages=earlier,
    )
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    with tempfile.TemporaryDirectory() as folder:
        store = JsonlSessionStore(folder, sync=False)
        with store.create() as session:
            session.attach(agent)
            asyncio.run(agent.prompt("go"))
        loaded = store.load(session.id)
        recorded = loaded.runs()[-1]

    assert loaded.info.problems == ()
    assert loaded.messages == tuple(map(redactor.redact_message, agent.messages))
    assert loaded.messages[len(earlier) :] == tuple(agent.messages[len(earlier) :]), "they are masked as they enter"
    assert loaded.state == agent.state
    if SECRET not in repr(changed):
        assert recorded == RunRecord.of(events)
    assert SECRET not in str(loaded.messages)
