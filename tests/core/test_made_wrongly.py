"""Objects that cannot work are refused when they are made, with an error that names the problem."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentLoopConfig,
    DefaultRetryStrategy,
    Defer,
    ModelSpec,
    Redactor,
    Reject,
    Skip,
    SlidingWindow,
    Stop,
    StreamDone,
    StreamOptions,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
)
from swink_agent.adapters import AnthropicStreamFn
from swink_agent.approvals import Approvals
from swink_agent.policies import MaxTurns
from swink_agent.testing import scripted

SECRET = "sk-this-is-a-secret-key"


MODEL = ModelSpec("test", "model")


class SubTool:
    """A tool, once somebody makes one."""

    name = label = description = "sub"
    parameters_schema: dict[str, Any] = {"type": "object"}
    requires_approval = False

    async def execute(self, arguments: dict[str, Any], ctx: Any) -> Any: ...


class Messages:
    def poll_steering(self) -> list[Any]:
        return []

    def poll_follow_up(self) -> list[Any]:
        return []

    def partition(self, calls: Any) -> Any:
        return [range(len(calls))]


def config(**options: Any) -> AgentLoopConfig:
    return AgentLoopConfig(model=MODEL, stream_fn=scripted(), **options)


def agent(**options: Any) -> Agent:
    return Agent("test:model", **{"stream_fn": scripted(), **options})


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a number as the reason to defer": (lambda: Defer(3), "^Defer.reason must be a string, not an int$"),  # type: ignore[arg-type]
    "a number as the reason to reject": (lambda: Reject(3), "^Reject.reason must be a string, not an int$"),  # type: ignore[arg-type]
    "a number as the reason to skip": (lambda: Skip(3), "^Skip.reason must be a string, not an int$"),  # type: ignore[arg-type]
    "a number as the reason to stop": (lambda: Stop(3), "^Stop.reason must be a string, not an int$"),  # type: ignore[arg-type]
    "a stream function by name": (lambda: agent(stream_fn="scripted"), "^stream_fn must be a function, not a str$"),
    "approval as a flag": (lambda: agent(approve=True), "^approve must be a function, or None, not a bool$"),
    "a transform": (lambda: agent(transform_context=500), "^transform_context must be a function"),
    "an async transform": (lambda: agent(async_transform_context=[]), "^async_transform_context must be a function"),
    "a key for the getter of it": (lambda: agent(get_api_key=SECRET), "^get_api_key must be a function"),
    "a converter": (lambda: agent(convert_to_llm="yes"), "^convert_to_llm must be a function"),
    "a sleep": (lambda: agent(sleep=3), "^sleep must be a function"),
    "a number of retries": (lambda: agent(retry_strategy=3), "^retry_strategy must be a RetryStrategy, not an int$"),
    "options as a dict": (lambda: agent(stream_options={"temperature": 1}), "^stream_options must be StreamOptions"),
    "secrets for their redactor": (lambda: agent(redactor=[SECRET]), "^redactor must be a Redactor, not a list$"),
    "messages to come": (lambda: agent(message_provider=["hi"]), "^message_provider must be a MessageProvider"),
    "instructions": (lambda: agent(system_prompt=["be", "brief"]), "^system_prompt must be a string, or a function"),
    "a list for the state": (lambda: agent(state=[1]), "^state must be a mapping, such as a dict, not a list$"),
    "a text for the state": (lambda: agent(state="{}"), "^state must be a mapping, such as a dict, not a str$"),
    "a copy of an agent": (lambda: copy.copy(agent()), r"^an Agent cannot be copied .* agent\.replaced\(\)"),
    "a deep copy of an agent": (lambda: copy.deepcopy(agent()), "^an Agent cannot be copied or pickled"),
    "a pickled agent": (lambda: pickle.dumps(agent()), r"^an Agent cannot .* agent\.messages can be pickled$"),
    "a history": (lambda: agent(messages=5), "^an int is not a message"),
    "one policy": (
        lambda: agent(policies=MaxTurns(3)),
        r"^policies must be a list, .* MaxTurns: write policies=\[…\]$",
    ),
    "policies by slot": (
        lambda: agent(pre_turn_policies=[MaxTurns(3)]),
        r"no argument 'pre_turn_policies'; write policies=",
    ),
    "instructions of elsewhere": (
        lambda: agent(instructions="Be brief."),
        "no argument 'instructions'; write system_prompt=",
    ),
    "steps": (lambda: agent(max_steps=3), "no argument 'max_steps'; write max_turns="),
    "a type of output": (lambda: agent(output_type=int), "no argument 'output_type'; write output="),
    "sets of tools": (lambda: agent(toolsets=[]), "no argument 'toolsets'; write tools="),
    "no policy": (lambda: agent(policies=[SECRET]), "^a str is not a policy"),
    "the class of a policy": (
        lambda: agent(policies=[MaxTurns]),
        r"^policies holds the class MaxTurns: write MaxTurns\(…\)",
    ),
    "a class for the policies": (lambda: agent(policies=MaxTurns), "^policies must be a list, not the class MaxTurns"),
    "a policy without a function": (lambda: agent(policies=[SimpleNamespace(pre_turn=True)]), "is not a policy"),
    "the class of a tool": (lambda: agent(tools=[SubTool]), r"^the class SubTool is not a tool: write SubTool\(…\)$"),
    "the class of an approval": (
        lambda: agent(approve=Approvals),
        "^approve must be a function, or None, not the class Appr",
    ),
    "the class of a transform": (
        lambda: agent(transform_context=SlidingWindow),
        "^transform_context must be .* the class Slid",
    ),
    "a class of async transform": (
        lambda: agent(async_transform_context=SlidingWindow),
        "^async_transform_context must be",
    ),
    "the class of a strategy": (
        lambda: agent(retry_strategy=DefaultRetryStrategy),
        "^retry_strategy must be a RetryStrategy, ",
    ),
    "the class of options": (
        lambda: agent(stream_options=StreamOptions),
        "^stream_options must be StreamOptions, not the ",
    ),
    "the class of a stream function": (
        lambda: agent(stream_fn=AnthropicStreamFn),
        "^stream_fn must be a function, not the",
    ),
    "the class of a redactor": (
        lambda: agent(redactor=Redactor),
        "^redactor must be a Redactor, not the class Redactor",
    ),
    "the class of a provider": (
        lambda: agent(message_provider=Messages),
        "^message_provider must be .* not the class Messages",
    ),
    "a class of instructions": (
        lambda: agent(system_prompt=dict),
        "^system_prompt must be a string, .* not the class dict",
    ),
    "the class of an execution": (
        lambda: agent(tool_execution=Messages),
        "^tool_execution must be .* not the class Messages",
    ),
    "an execution that makes no groups": (lambda: agent(tool_execution=5), "^tool_execution must be .* not an int$"),
    "a class that asks a fallback": (
        lambda: agent(fallbacks=[("a:b", AnthropicStreamFn)]),
        "^the stream function of a fall",
    ),
    "a policy of the loop": (
        lambda: config(post_turn_policies=[MaxTurns]),
        "^post_turn_policies holds the class MaxTurns",
    ),
    "one policy of the loop": (lambda: config(pre_turn_policies=MaxTurns(3)), "^pre_turn_policies must be a list"),
    "no policy of the loop": (lambda: config(pre_dispatch_policies=[MaxTurns(3)]), "it has none of pre_dispatch$"),
    "a fallback of the loop": (lambda: config(fallbacks=["a:b"]), "^a fallback must be a pair"),
    "a fallback of the loop that nobody asks": (
        lambda: config(fallbacks=[(MODEL, None)]),
        "^the stream function of a fall",
    ),
    "a model alone": (
        lambda: agent(fallbacks=[SECRET]),
        r"^a fallback must be a pair, not a str: write fallbacks=\[\(",
    ),
    "one fallback": (lambda: agent(fallbacks="a:b"), "^fallbacks must be a list of pairs, not a str"),
    "a fallback's function": (lambda: agent(fallbacks=[("a:b", "c")]), "^the stream function of a fallback must be"),
    "a fallback of the loop by name": (
        lambda: config(fallbacks=[("a:b", scripted())]),
        "^the model of a fallback must be a ModelSpec, not a str$",
    ),
    "a model of the loop by name": (
        lambda: AgentLoopConfig(model="a:b", stream_fn=scripted()),  # pyright: ignore[reportArgumentType]
        "^model must be a ModelSpec, not a str$",
    ),
    "a loop without a model": (
        lambda: AgentLoopConfig(model=None, stream_fn=scripted()),  # pyright: ignore[reportArgumentType]
        "^model must be a ModelSpec, not a NoneType$",
    ),
    "the arguments of a call as JSON": (
        lambda: ToolCall("1", "look", '{"at": 1}'),  # pyright: ignore[reportArgumentType]
        "^ToolCall.arguments must be a dict, not a str$",
    ),
    "a call without arguments": (
        lambda: ToolCall("1", "look", None),  # pyright: ignore[reportArgumentType]
        "^ToolCall.arguments must be a dict, not a NoneType$",
    ),
    "a configuration": (
        lambda: AgentLoopConfig(model=ModelSpec("a", "b"), stream_fn="c"),  # pyright: ignore[reportArgumentType]
        "^stream_fn must be a function",
    ),
}


@pytest.mark.table
@pytest.mark.parametrize("what", WRONG)
def test_it_is_refused_when_it_is_made(what: str) -> None:
    make, said = WRONG[what]
    with pytest.raises(TypeError, match=said) as raised:
        make()
    assert SECRET not in str(raised.value)


@pytest.mark.table
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "hot"),
        ("temperature", True),
        ("max_tokens", "100"),
        ("max_tokens", 1.5),
        ("timeout", "1s"),
        ("session_id", 5),
        ("api_key", SECRET.encode()),
        ("tool_choice", None),
        ("headers", [("a", SECRET)]),
        ("extra", None),
    ],
)
def test_options_are_of_their_types(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^StreamOptions.{name} must be a .* not an? ") as raised:
        StreamOptions(**{name: value})
    assert SECRET not in str(raised.value)


def test_a_cache_is_one_of_two() -> None:
    with pytest.raises(ValueError, match=r"StreamOptions\.cache is 'yes'"):
        StreamOptions(cache="yes")  # pyright: ignore[reportArgumentType]


def test_usable_values_are_taken() -> None:
    options = StreamOptions(temperature=1, max_tokens=5, timeout=0.5, session_id="x", api_key="y", headers={"a": "b"})
    assert (options.temperature, options.timeout, options.headers) == (1, 0.5, {"a": "b"})
    made = agent(policies=(MaxTurns(3),), fallbacks=[("test:other", scripted()), ["test:third", None]])
    assert [str(model) for model, _ in made.config.fallbacks] == ["test:other", "test:third"]


async def test_a_stream_may_be_a_class_that_is_read() -> None:
    class Hello:
        def __init__(self, *_: object) -> None:
            self._events = [StreamStart(), TextStart(0), TextDelta(0, "hello"), TextEnd(0), StreamDone()]

        def __aiter__(self) -> Hello:
            return self

        async def __anext__(self) -> Any:
            if not self._events:
                raise StopAsyncIteration
            return self._events.pop(0)

    assert (await agent(stream_fn=Hello).prompt("hi")).text == "hello"


def test_lists_of_a_configuration_become_tuples() -> None:
    limit, other = MaxTurns(3), scripted()
    made = config(pre_turn_policies=iter([limit]), fallbacks=[(MODEL, other)])
    assert made.pre_turn_policies == (limit,)
    assert made.fallbacks == ((MODEL, other),)


def test_two_configurations_share_nothing_that_can_be_changed() -> None:
    first, second = config(), config()
    assert first.retry_strategy is not second.retry_strategy
    assert isinstance(first.retry_strategy, DefaultRetryStrategy)
    first.retry_strategy.max_attempts = 9
    first.stream_options.headers["x"] = "y"
    assert second.retry_strategy == config().retry_strategy == DefaultRetryStrategy()
    assert second.stream_options == StreamOptions()


@pytest.mark.parametrize("given", [None, 3, "print"])
def test_a_subscriber_or_observer_that_cannot_be_called_is_refused(given: Any) -> None:
    agent = Agent(MODEL, stream_fn=scripted())
    with pytest.raises(TypeError, match=f"callback must be a function, not an? {type(given).__name__}"):
        agent.subscribe(given)
    with pytest.raises(TypeError, match=f"observer must be a RunObserver, not an? {type(given).__name__}"):
        agent.observe(given)
