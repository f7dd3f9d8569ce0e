"""Masks of policies: what enters a run, is told, recorded or sent never holds the text that a mask takes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentResult,
    AgentToolResult,
    AssistantMessage,
    DefaultRetryStrategy,
    Defer,
    Inject,
    MessageEnd,
    MessageUpdate,
    PolicyFailed,
    Skip,
    Stop,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolContext,
    ToolError,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
    encode_event,
    extract_text,
    tool,
)
from swink_agent.core.secrets.masks import MaskedLines, PolicyMasks
from swink_agent.memory import JsonlSessionStore
from swink_agent.policies import PiiRedactor
from swink_agent.testing import call, check_events, collect, fail, scripted, stall, text, think

pytestmark = pytest.mark.fast
MODEL = "test:model"


class Mask:
    """Takes a word out."""

    name = "no_ann"

    def __init__(self, *, prompts: bool = False) -> None:
        self.masks_prompts = prompts
        self.seen: list[str] = []

    def mask(self, text: str) -> str:
        self.seen.append(text)
        return text.replace("Ann", "[name]")


class Broken:
    """Fails on a word."""

    name = "broken"
    optional = True  # which a mask never is

    def __init__(self, how: Any = None, *, word: str = "Ann", prompts: bool = True) -> None:
        self.how, self.word, self.masks_prompts = how, word, prompts

    def mask(self, text: str) -> Any:
        if self.word not in text:
            return text
        if isinstance(self.how, type):
            raise self.how(text)
        return self.how


@tool
def find() -> str:
    """Finds."""
    return "it is Ann\r\nor Bob"


def results(result: AgentResult) -> list[ToolResultMessage]:
    return [message for message in result.messages if isinstance(message, ToolResultMessage)]


async def everything(agent: Agent, prompt: str = "go", **given: Any) -> tuple[AgentResult, str]:
    """The result of a run, and all that it told, as text."""
    stream = agent.prompt_stream(prompt, **given)
    events = await collect(stream)
    check_events(events)
    return await stream.result(), repr([encode_event(event) for event in events])


# -- what is masked --------------------------------------------------------------------------------------------


@tool
async def updates(ctx: ToolContext) -> AgentToolResult:
    """Reports in pieces."""
    ctx.update(AgentToolResult.text("found A"))
    ctx.update(AgentToolResult.text("nn", {"Ann": ["Ann"]}))
    return AgentToolResult.text("Ann", {"who": {"Ann": ("Ann", 1)}})


@tool
def fails() -> str:
    """Fails."""
    raise ToolError("Ann is away")


@tool(retries=1)
def later() -> str:
    """Asks for another try."""
    raise ToolError("Ann is away", retry_after=0)


class Verdict:
    name = "verdict"

    def __init__(self, slot: str, verdict: Any) -> None:
        setattr(self, slot, lambda ctx: verdict)


class AtOnce(DefaultRetryStrategy):
    def delay(self, attempt: int, /) -> float:
        return 0.0


ENTERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "a result": ([call("find"), "ok"], {}),
    "updates and details": ([call("updates"), "ok"], {}),
    "the error of a tool": ([call("fails"), "ok"], {}),
    "the error of a retry": ([call("later"), "ok"], {}),
    "a reply": (["Dear Ann, dear Bob"], {}),
    "a reply in pieces": ([text("Dear Ann,\ndear Ann", deltas=12)], {}),
    "thinking": ([[think("who is Ann?", deltas=4), text("ok")]], {}),
    "what the provider says": ([fail("invalid_request", message="no Ann")], {}),
    "what is retried": ([fail("network", message="no Ann"), "ok"], {"retry_strategy": AtOnce()}),
    "the reason of a stop": (["ok"], {"policies": [Verdict("post_turn", Stop("because of Ann"))]}),
    "the reason of a skip": ([call("find"), "ok"], {"policies": [Verdict("pre_dispatch", Skip("not Ann"))]}),
    "the reason of a deferral": (
        [call("find"), "ok"],
        {"approve": lambda request: Defer("ask Ann"), "approval_mode": "enabled"},
    ),
    "what is injected": (["ok"], {"policies": [Verdict("pre_turn", Inject("mind Ann"))]}),
}


@pytest.mark.parametrize("case", ENTERS)
@pytest.mark.table
async def test_text_that_enters_a_run_is_masked_before_anything_sees_it(case: str, tmp_path: Path) -> None:
    replies, given = ENTERS[case]
    model, mask = scripted(*replies), Mask(prompts=True)
    given = {**given, "policies": [mask, *given.get("policies", ())]}
    agent = Agent(MODEL, stream_fn=model, tools=[find, updates, fails, later], **given)
    store = JsonlSessionStore(tmp_path)
    with store.create() as session:
        session.attach(agent)
        result, told = await everything(agent)
        recorded = session.path.read_text()
    for shown in (told, recorded, repr(result.messages), repr(agent.messages), repr(result.stopped_by), result.error):
        assert "Ann" not in (shown or "")
    assert "Ann" not in repr([request.messages for request in model.requests])
    assert "[name]" in told
    assert any("Ann" in line for line in mask.seen)
    assert not any("\n" in line or "\r" in line for line in mask.seen)


async def test_prompts_and_queues_are_masked_if_the_policy_says_so() -> None:
    for prompts, said in ((False, "Ann"), (True, "[name]")):
        model = scripted("one", "two", "three")
        agent = Agent(MODEL, stream_fn=model, policies=[Mask(prompts=prompts)])
        agent.steer("steer Ann")
        agent.follow_up("follow Ann")
        await agent.prompt("write Ann")
        sent = [extract_text(one.content) for one in agent.messages if isinstance(one, UserMessage)]
        assert set(sent) == {f"write {said}", f"steer {said}", f"follow {said}"}


async def test_arguments_values_system_prompts_and_given_messages_stay() -> None:
    @tool
    def greet(name: str) -> str:
        """Greets."""
        return f"hello {name}"

    model = scripted(call("greet", name="Ann"), "ok")
    agent = Agent(MODEL, stream_fn=model, tools=[greet], policies=[Mask(prompts=True)], system_prompt="You are Ann.")
    result = await agent.prompt("go", messages=["I am Ann", AssistantMessage("hello Ann")])
    assert model.requests[0].context.system_prompt == "You are Ann."
    assert [extract_text(one.content) for one in result.history[:2]] == ["I am Ann", "hello Ann"]  # type: ignore[union-attr]
    assert extract_text(results(result)[0].content) == "hello [name]"
    assert result.messages[1].tool_calls[0].arguments == {"name": "Ann"}  # type: ignore[union-attr]


@pytest.mark.parametrize("is_native", [True, False])
async def test_a_value_is_as_the_model_gave_it_and_its_text_is_masked(is_native: bool) -> None:
    given = {"name": "Ann"}
    model = scripted(text(json.dumps(given), deltas=5) if is_native else call("final_answer", **given))
    if is_native:
        model.native_schema = lambda model, schema, has_tools: True  # type: ignore[attr-defined]
    agent = Agent(MODEL, stream_fn=model, policies=[Mask()])
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    assert await agent.structured_output("who?", schema) == given
    assert ("Ann" in agent.messages[1].text) is False  # type: ignore[union-attr]


# -- while a reply streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("deltas", [1, 7, 60])
async def test_a_reply_comes_in_whole_lines_and_its_message_is_the_pieces_joined(deltas: int) -> None:
    said = "Dear Ann,\n\nit was\r\nAnn who wrote.\nYours"
    agent = Agent(MODEL, stream_fn=scripted(text(said, deltas=deltas)), policies=[Mask()])
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    pieces = [event.delta.delta for event in events if isinstance(event, MessageUpdate)]
    (end,) = [event for event in events if isinstance(event, MessageEnd)]
    assert "".join(pieces) == end.message.text == said.replace("Ann", "[name]")
    assert all(piece.endswith("\n") for piece in pieces[:-1])


@pytest.mark.parametrize("size", [1, 3, 900, 100_000])
def test_a_long_line_is_cut_at_white_space_or_in_the_end_anywhere(size: int) -> None:
    def pieces(given: str) -> list[str]:
        seen: list[str] = []

        class Noting:
            def mask(self, text: str) -> str:
                seen.append(text)
                return text

        lines = MaskedLines(PolicyMasks([Noting()]))
        shown = [lines.feed(given[at : at + size]) for at in range(0, len(given), size)]
        assert "".join([*shown, lines.finish()]) == given
        return seen

    assert pieces("a" * 2_000 + "\n") == ["a" * 2_000]
    assert [len(piece) for piece in pieces("word " * 500)] == [2_000, 500]
    assert [len(piece) for piece in pieces("a" * 3_000 + " " + "b" * 10)] == [3_001, 10]
    assert [len(piece) for piece in pieces("a" * 9_000)] == [4_000, 4_000, 1_000]
    assert [len(piece) for piece in pieces("a" * 3_000 + "\nb")] == [3_000, 1]


async def test_thinking_that_changed_loses_its_signature_and_other_thinking_keeps_it() -> None:
    reply = [think("about Ann", signature="one"), think("about Bob", signature="two"), text("ok")]
    agent = Agent(MODEL, stream_fn=scripted(reply), policies=[Mask()])
    events = await collect(agent.prompt_stream("go"))
    found = [block for block in agent.messages[1].content if isinstance(block, Thinking)]  # type: ignore[union-attr]
    assert found == [Thinking("about [name]"), Thinking("about Bob", "two")]
    kinds = {type(event.delta) for event in events if isinstance(event, MessageUpdate)}
    assert kinds == {TextDelta, ThinkingDelta}


async def test_text_before_an_abort_is_kept_masked() -> None:
    agent = Agent(MODEL, stream_fn=scripted([text("Dear Ann,\nI am An", deltas=4), stall()]), policies=[Mask()])
    agent.subscribe(lambda event: agent.abort() if isinstance(event, MessageUpdate) else None)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert agent.messages[1].text.startswith("Dear [name],\n")  # type: ignore[union-attr]


async def test_without_masks_a_reply_comes_as_it_is_sent() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("one two three", deltas=3)))
    events = await collect(agent.prompt_stream("go"))
    assert len([event for event in events if isinstance(event, MessageUpdate)]) == 3


# -- delegates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_run_only", [False, True])
async def test_masks_hold_in_delegates_unless_they_are_for_their_own_run(own_run_only: bool) -> None:
    inner_model = scripted(call("find"), "Ann did it")
    inner = Agent(MODEL, stream_fn=inner_model, tools=[find])
    mask = Mask(prompts=True)
    mask.own_run_only = own_run_only  # type: ignore[attr-defined]
    agent = Agent(
        MODEL,
        stream_fn=scripted(call("inner", prompt="find Ann"), "ok"),
        tools=[inner.as_tool("inner", "Finds.")],
        policies=[mask],
    )
    result = await agent.prompt("go")
    sent = repr([request.messages for request in inner_model.requests])
    assert ("Ann" in sent) is own_run_only
    assert extract_text(results(result)[0].content) == "[name] did it"


# -- masks that fail -------------------------------------------------------------------------------------------

FAILS: dict[str, tuple[list[Any], str]] = {
    "a result": ([call("find"), "never"], "go"),
    "a reply": (["Dear Ann"], "go"),
    "what the provider says": ([fail("network", message="no Ann"), "never"], "go"),
    "a prompt": (["never"], "I am Ann"),
}


@pytest.mark.parametrize("how", [KeyError, None, 3])
@pytest.mark.parametrize("case", FAILS)
@pytest.mark.table
async def test_a_mask_that_fails_ends_the_run_and_the_text_goes_nowhere(case: str, how: Any, tmp_path: Path) -> None:
    replies, prompt = FAILS[case]
    model = scripted(*replies)
    agent = Agent(MODEL, stream_fn=model, tools=[find], policies=[Broken(how)], retry_strategy=AtOnce())
    with JsonlSessionStore(tmp_path).create() as session:
        session.attach(agent)
        result, told = await everything(agent, prompt)
        recorded = session.path.read_text()
    failed = result.exception
    assert isinstance(failed, PolicyFailed)
    assert (failed.policy, failed.slot, failed.__cause__, failed.__context__) == ("broken", "mask", None, None)
    assert "broken" in str(failed)
    assert ("KeyError" in str(failed)) is (how is KeyError)
    assert "Ann" not in told + recorded + repr(result) + str(failed)
    assert len(model.requests) == (0 if case == "a prompt" else 1)


async def test_the_result_of_a_tool_that_ran_is_an_error_without_text() -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("find"), "never"), tools=[find], policies=[Broken(KeyError)])
    (message,) = results(await agent.prompt("go"))
    assert (extract_text(message.content), message.is_error, message.outcome) == ("", True, ToolOutcome.FAILED)


async def test_a_mask_that_fails_in_an_update_ends_the_run_after_its_turn() -> None:
    @tool
    async def report(ctx: ToolContext) -> str:
        """Reports."""
        ctx.update(AgentToolResult.text("Ann\n"))
        return "done"

    agent = Agent(MODEL, stream_fn=scripted(call("report"), "never"), tools=[report], policies=[Broken(KeyError)])
    result, told = await everything(agent)
    assert isinstance(result.exception, PolicyFailed)
    assert "Ann" not in told


async def test_a_mask_that_fails_in_a_delegate_ends_the_delegate() -> None:
    inner = Agent(MODEL, stream_fn=scripted("Dear Ann"))
    agent = Agent(
        MODEL,
        stream_fn=scripted(call("inner", prompt="write"), "ok"),
        tools=[inner.as_tool("inner", "Writes.")],
        policies=[Broken(KeyError)],
    )
    result = await agent.prompt("go")
    assert extract_text(results(result)[0].content).startswith("inner failed: policy broken failed in mask")
    assert (result.text, result.error) == ("ok", None)


# -- personal data ---------------------------------------------------------------------------------------------


async def test_personal_data_stands_nowhere(tmp_path: Path) -> None:
    @tool
    def customer() -> AgentToolResult:
        """Finds a customer."""
        return AgentToolResult.text("ann@example.org", {"mail": "ann@example.org"})

    model = scripted(call("customer"), "Write to ann@example.org.")
    agent = Agent(MODEL, stream_fn=model, tools=[customer], policies=[PiiRedactor(prompts=True)])
    with JsonlSessionStore(tmp_path).create() as session:
        session.attach(agent)
        result, told = await everything(agent, "I am bob@example.org")
        recorded = session.path.read_text()
    assert "example.org" not in told + recorded + repr(result.history)
    assert result.text == "Write to [email]."
    assert extract_text(model.requests[0].messages[0].content) == "I am [email]"
