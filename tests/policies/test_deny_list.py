"""DenyList refuses the named tools and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from swink_agent import Agent, PreDispatchContext, Skip, ToolResultMessage, extract_text, tool
from swink_agent.policies import DenyList
from swink_agent.testing import call, scripted, text

AskedFn = Callable[..., PreDispatchContext]


@tool
async def bash(command: str) -> str:
    """Runs."""
    return f"ran {command}"


async def test_a_denied_tool_is_not_run_and_the_model_is_told() -> None:
    model = scripted(call("bash", command="ls"), text("ok"))
    result = await Agent("test:model", stream_fn=model, tools=[bash], policies=[DenyList("bash")]).prompt("go")
    (answer,) = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert answer.is_error
    assert extract_text(answer.content) == "tool call skipped: the tool bash is not allowed here; do without it"
    assert result.text == "ok"


@pytest.mark.parametrize(
    ("name", "is_denied"), [("delete_file", True), ("undelete", False), ("Delete_file", False), ("bash", True)]
)
def test_tools_are_named_exactly_or_by_a_glob(asked: AskedFn, name: str, is_denied: bool) -> None:
    assert (DenyList(["delete_*", "bash"]).pre_dispatch(asked(name)) is not None) is is_denied


@pytest.mark.parametrize(
    ("arguments", "is_denied"),
    [
        ({"command": "rm -rf /"}, True),
        ({"command": "ls\nrm x"}, True),
        ({"command": "farm"}, False),
        ({"other": "rm"}, False),
        ({"command": {"deep": [{"down": "rm x"}]}}, True),
        ({"command": {"rm": 1}}, True),
        ({}, False),
    ],
)
def test_a_pattern_is_searched_for_in_every_string_of_its_argument(
    asked: AskedFn, arguments: dict[str, Any], is_denied: bool
) -> None:
    verdict = DenyList(arguments={"bash": {"command": r"\brm\b"}}).pre_dispatch(asked("bash", **arguments))
    assert isinstance(verdict, Skip) is is_denied


def test_a_pattern_can_be_for_any_argument_of_any_tool(asked: AskedFn) -> None:
    policy = DenyList(arguments={"*": [r"\.env$", r"^443$"]})
    assert policy.pre_dispatch(asked("read_file", path="a/.env")) == Skip(
        "read_file is not allowed with this value of its argument path; do without it"
    )
    assert policy.pre_dispatch(asked("connect", port=443)) is not None
    assert policy.pre_dispatch(asked("connect", port=80, flag=True, none=None)) is None


async def test_arguments_that_a_person_changed_are_looked_at_again() -> None:
    from swink_agent import ApproveWith

    model = scripted(call("bash", command="ls"), text("ok"))
    agent = Agent(
        "test:model",
        stream_fn=model,
        tools=[bash],
        approval_mode="enabled",
        approve=lambda request: ApproveWith({"command": "rm x"}),
        policies=[DenyList(arguments={"bash": r"\brm\b"})],
    )
    result = await agent.prompt("go")
    (answer,) = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert "not allowed" in extract_text(answer.content)
