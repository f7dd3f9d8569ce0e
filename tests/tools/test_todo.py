"""The tool `todo`: the last call holds the list, which is bounded, safe to show, and kept in the history."""

from __future__ import annotations

from typing import Any

import pytest

from swink_agent import Agent
from swink_agent.core.types import ToolResultMessage, extract_text
from swink_agent.rendering.checklist import checklist, current, todo_of
from swink_agent.testing import call, scripted, text
from swink_agent.tools import TodoItem, TodoTool, todo_items

READ, TEST = {"text": "Read the code", "status": "done"}, {"text": "Write the tests", "status": "in_progress"}


async def kept(*lists: Any) -> tuple[Agent[Any], list[ToolResultMessage]]:
    replies = [*[call("todo", items=items) for items in lists], text("Done.")]
    agent = Agent("test:model", stream_fn=scripted(*replies), tools=[TodoTool()])
    await agent.prompt("go")
    return agent, [message for message in agent.messages if isinstance(message, ToolResultMessage)]


async def test_each_call_replaces_the_list_and_the_history_holds_the_last_one() -> None:
    agent, results = await kept([READ], [READ, TEST, {"text": "Document it", "status": "pending"}])
    assert [extract_text(result.content) for result in results] == [
        "The list is kept: 1 of 1 done.",
        "The list is kept: 1 of 3 done.",
    ]
    items = todo_items(agent.messages)
    assert items == (
        TodoItem("Read the code", "done"),
        TodoItem("Write the tests", "in_progress"),
        TodoItem("Document it", "pending"),
    )
    assert current(items) == items[1]
    assert checklist(items) == "[x] Read the code\n[>] Write the tests\n[ ] Document it"


async def test_an_empty_list_clears_it() -> None:
    agent, results = await kept([TEST], [])
    assert extract_text(results[1].content) == "The list is empty now."
    assert todo_items(agent.messages) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        [{"text": "x", "status": "later"}],
        [{"text": "", "status": "done"}],
        [{"text": " \n ", "status": "done"}],
        [{"text": "x" * 301, "status": "done"}],
        [{"text": "x", "status": "done", "more": 1}],
        [{"text": "x", "status": "done"}] * 51,
        "Read the code",
    ],
)
async def test_a_list_that_is_too_long_or_malformed_is_refused_and_the_one_before_stays(wrong: Any) -> None:
    agent, results = await kept([READ], wrong)
    assert results[1].is_error
    assert todo_items(agent.messages) == (TodoItem("Read the code", "done"),)


async def test_control_characters_are_written_out() -> None:
    agent, _ = await kept([{"text": "a\x1b[2Jb\nc\u202ed", "status": "pending"}])
    assert todo_items(agent.messages)[0].text == "a\\u{1b}[2Jb c\\u{202e}d"


@pytest.mark.parametrize(
    "details", [None, 3, [], {"todo": 3}, {"todo": [3, {}, {"text": 1}, {"text": "x", "status": ["done"]}]}]
)
def test_details_from_elsewhere_are_read_without_a_failure(details: Any) -> None:
    assert not todo_of("todo", details)


def test_only_a_result_of_the_tool_is_a_list() -> None:
    assert todo_of("search", {"todo": [READ]}) is None
