"""ContentFilter removes words and patterns, or stops the run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from swink_agent import Agent, PolicyContext, PolicyStop, ToolResultMessage, extract_text, tool
from swink_agent.policies import ContentFilter
from swink_agent.testing import call, scripted, text

TurnFn = Callable[..., PolicyContext]


@tool
async def read() -> str:
    """Reads."""
    return "the codename is Bluebird, keep it"


@pytest.mark.table
@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("a bluebird sings", "a [removed] sings"),
        ("BlueBird! bluebirds", "[removed]! bluebirds"),
        ("xbluebird bluebird_x", "xbluebird bluebird_x"),
        ("\uff22\uff4c\uff55\uff45\uff42\uff49\uff52\uff44", "[removed]"),
        ("bl\u200bue\u00adbird.", "[removed]."),
        ("blu\u0435b\u0456rd", "[removed]"),  # two Cyrillic letters
        ("blüébird", "[removed]"),
        ("é bluebird ß bluebird", "é [removed] ß [removed]"),
        ("operation  Night\nWatch!", "[removed]!"),
        ("operation night watchman", "operation night watchman"),
        ("operation: night, then watch", "operation: night, then watch"),
        ("use C++ or c", "use [removed] or c"),
        ("他说秘密计划是", "他说[removed]是"),
        ("nothing", "nothing"),
        ("", ""),
    ],
)
def test_words_are_found_as_a_reader_would_find_them(given: str, left: str) -> None:
    words = ["Bluebird", "operation night watch", "c++", "秘密计划"]
    assert ContentFilter(words, action="redact").redact(given) == left


def test_words_can_be_looked_for_anywhere() -> None:
    assert ContentFilter("bird", action="redact", whole_words=False).redact("Blackbirds") == "Black[removed]s"


def test_patterns_are_searched_in_the_text_and_in_what_it_reads_like() -> None:
    policy = ContentFilter(patterns=[r"project-\d+"], action="redact", replacement="#")
    assert policy.redact("Project-12 and project-x, pr\u043eject-7") == "# and project-x, #"


def test_finds_that_overlap_are_replaced_once() -> None:
    assert ContentFilter(["one two", "two three"], action="redact").redact("one two three") == "[removed]"


async def test_redacted_text_goes_on() -> None:
    model = scripted(call("read"), text("It is bluebird."))
    policy = ContentFilter("bluebird", action="redact")
    result = await Agent("test:model", stream_fn=model, tools=[read], policies=[policy]).prompt("go")
    (sent,) = [message for message in model.requests[1].messages if isinstance(message, ToolResultMessage)]
    assert extract_text(sent.content) == "the codename is [removed], keep it"
    assert (result.text, result.stopped_by) == ("It is [removed].", None)


async def test_a_result_that_must_not_pass_ends_the_run_unseen() -> None:
    model = scripted(call("read"), text("never"), text("later"))
    agent = Agent("test:model", stream_fn=model, tools=[read], policies=[ContentFilter("bluebird")])
    result = await agent.prompt("go")
    assert len(model.requests) == 1
    assert result.stopped_by == PolicyStop("content_filter", "a tool's result contains forbidden text; it was withheld")
    assert "Bluebird" not in str([extract_text(message.content) for message in agent.messages])  # type: ignore[union-attr]
    assert (await agent.prompt("again")).text == "never"


async def test_a_reply_that_must_not_pass_ends_the_run() -> None:
    agent = Agent("test:model", stream_fn=scripted("It is bluebird."), policies=[ContentFilter("bluebird")])
    result = await agent.prompt("go")
    assert result.text == "[kept back by the policy content_filter]"
    assert result.stopped_by == PolicyStop(
        "content_filter", "the model's reply contains forbidden text; it was withheld"
    )


async def test_replies_or_results_can_be_left_out() -> None:
    model = scripted(call("read"), text("It is bluebird."))
    policy = ContentFilter("bluebird", replies=False, results=False)
    result = await Agent("test:model", stream_fn=model, tools=[read], policies=[policy]).prompt("go")
    assert (result.text, result.stopped_by) == ("It is bluebird.", None)
