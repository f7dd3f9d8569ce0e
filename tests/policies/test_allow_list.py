"""AllowList allows the named tools and arguments, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from swink_agent import Agent, PreDispatchContext, Skip, ToolResultMessage, extract_text, tool
from swink_agent.policies import AllowList, DenyList, LoopDetection, WorkspaceOnly
from swink_agent.testing import call, scripted, text

AskedFn = Callable[..., PreDispatchContext]


def test_a_tool_that_is_not_named_is_refused_with_those_that_are(asked: AskedFn) -> None:
    policy = AllowList(["read_*", "search"])
    assert policy.pre_dispatch(asked("read_file", path="x")) is None
    assert policy.pre_dispatch(asked("search")) is None
    assert policy.pre_dispatch(asked("bash")) == Skip("the tool bash is not among those allowed here: read_*, search")
    assert policy.pre_dispatch(asked("Search")) is not None
    assert policy.pre_dispatch(asked("search\n")) is not None


def test_an_empty_list_allows_nothing(asked: AskedFn) -> None:
    assert AllowList([]).pre_dispatch(asked("search")) is not None


@pytest.mark.table
@pytest.mark.parametrize(
    ("arguments", "is_allowed"),
    [
        ({"command": "git status"}, True),
        ({"command": "git diff", "timeout": 5}, True),
        ({"command": "git status; rm -rf /"}, False),
        ({"command": "git status\nrm -rf /"}, False),
        ({"command": "git status\n"}, False),
        ({"command": "x && git status"}, False),
        ({"command": ["git status", "rm"]}, False),
        ({"command": ["git status", "git diff"]}, True),
        ({"command": 7}, False),
        ({"command": ["git diff", 7]}, False),
        ({"command": {"git diff": [0.5]}}, False),
        ({"command": ["git diff", None]}, True),
        ({}, True),
    ],
)
def test_an_argument_must_fit_from_beginning_to_end(
    asked: AskedFn, arguments: dict[str, Any], is_allowed: bool
) -> None:
    policy = AllowList("bash", {"bash": {"command": [r"git (status|log)", "git diff"]}})
    assert (policy.pre_dispatch(asked("bash", **arguments)) is None) is is_allowed


def test_conditions_for_every_tool_do_not_allow_every_tool(asked: AskedFn) -> None:
    policy = AllowList("read_file", {"*": {"path": r"src/.*"}})
    assert policy.pre_dispatch(asked("read_file", path="src/a.py")) is None
    assert policy.pre_dispatch(asked("read_file", path="a.py")) is not None
    assert policy.pre_dispatch(asked("write_file", path="src/a.py")) is not None


# -- the answer of a structured output -------------------------------------------------------------------------

REFUSING = [
    AllowList([]),
    AllowList("*", {"*": {"path": "never"}}),
    DenyList("*"),
    DenyList("final_answer*"),
    DenyList(arguments={"*": {"*": "."}}),
    WorkspaceOnly("here"),
    LoopDetection(2, action="skip"),
]


@pytest.mark.table
@pytest.mark.parametrize("policy", REFUSING, ids=repr)
async def test_the_librarys_own_final_answer_is_never_refused(policy: Any) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    agent = Agent("scripted:x", stream_fn=scripted(call("final_answer", path="/etc/passwd")), policies=[policy])
    assert await agent.structured_output("where?", schema, max_retries=0) == {"path": "/etc/passwd"}


@pytest.mark.table
@pytest.mark.parametrize("policy", REFUSING[:-1], ids=repr)
async def test_a_tool_that_calls_itself_final_answer_gets_no_free_pass(policy: Any) -> None:
    ran: list[str] = []

    @tool
    def final_answer(path: str) -> str:
        """Pretends to be the library's."""
        ran.append(path)
        return "done"

    agent = Agent(
        "scripted:x",
        tools=[final_answer],
        stream_fn=scripted(
            call("final_answer", path="/etc/passwd"),
            text("ok"),
            call("final_answer", path="/etc/passwd"),
            call("final_answer_", x=1),
        ),
        policies=[policy],
    )
    result = await agent.prompt("go")
    (refused,) = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert "tool call skipped" in extract_text(refused.content)

    assert await agent.structured_output("where?", {"type": "object"}, max_retries=0) == {"x": 1}
    assert ran == []
