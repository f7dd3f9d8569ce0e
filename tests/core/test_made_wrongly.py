"""What cannot work is refused when it is made, in words that name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from swink_agent import Agent, AgentLoopConfig, ModelSpec, StreamOptions
from swink_agent.policies import MaxTurns
from swink_agent.testing import scripted

SECRET = "sk-this-is-a-secret-key"


def agent(**options: Any) -> Agent:
    return Agent("test:model", **{"stream_fn": scripted(), **options})


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a stream function by name": (lambda: agent(stream_fn="scripted"), "^stream_fn is a function, and not a str$"),
    "approval as a flag": (lambda: agent(approve=True), "^approve is a function, or None, and not a bool$"),
    "a transform": (lambda: agent(transform_context=500), "^transform_context is a function"),
    "an async transform": (lambda: agent(async_transform_context=[]), "^async_transform_context is a function"),
    "a key for the getter of it": (lambda: agent(get_api_key=SECRET), "^get_api_key is a function"),
    "a converter": (lambda: agent(convert_to_llm="yes"), "^convert_to_llm is a function"),
    "a sleep": (lambda: agent(sleep=3), "^sleep is a function"),
    "a number of retries": (lambda: agent(retry_strategy=3), "^retry_strategy is a RetryStrategy, and not a int$"),
    "options as a dict": (lambda: agent(stream_options={"temperature": 1}), "^stream_options is StreamOptions"),
    "secrets for their redactor": (lambda: agent(redactor=[SECRET]), "^redactor is a Redactor, and not a list$"),
    "messages to come": (lambda: agent(message_provider=["hi"]), "^message_provider is a MessageProvider"),
    "instructions": (lambda: agent(system_prompt=["be", "brief"]), "^system_prompt is a string, or a function"),
    "a history": (lambda: agent(messages=5), "^a int is no message"),
    "one policy": (lambda: agent(policies=MaxTurns(3)), r"^policies is a list, .* MaxTurns: write policies=\[…\]$"),
    "one policy of a slot": (lambda: agent(pre_turn_policies=MaxTurns(3)), "^pre_turn_policies is a list"),
    "a policy of another slot": (lambda: agent(pre_dispatch_policies=[MaxTurns(3)]), "it has none of pre_dispatch$"),
    "no policy": (lambda: agent(policies=[SECRET]), "^a str is no policy"),
    "a model alone": (lambda: agent(fallbacks=[SECRET]), r"^a fallback is a pair, and not a str: write fallbacks=\[\("),
    "one fallback": (lambda: agent(fallbacks="a:b"), "^fallbacks is a list of pairs, and not a str"),
    "a fallback's function": (lambda: agent(fallbacks=[("a:b", "c")]), "^the stream function of a fallback is"),
    "a configuration": (
        lambda: AgentLoopConfig(model=ModelSpec("a", "b"), stream_fn="c"),  # pyright: ignore[reportArgumentType]
        "^stream_fn is a function",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_it_is_refused_when_it_is_made(what: str) -> None:
    make, said = WRONG[what]
    with pytest.raises(TypeError, match=said) as raised:
        make()
    assert SECRET not in str(raised.value)


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
    with pytest.raises(TypeError, match=f"^StreamOptions.{name} is a .* and not a ") as raised:
        StreamOptions(**{name: value})
    assert SECRET not in str(raised.value)


def test_a_cache_is_one_of_two() -> None:
    with pytest.raises(ValueError, match=r"StreamOptions\.cache is 'yes'"):
        StreamOptions(cache="yes")  # pyright: ignore[reportArgumentType]


def test_what_can_work_is_taken() -> None:
    StreamOptions(temperature=1, max_tokens=5, timeout=0.5, session_id="x", api_key="y", headers={"a": "b"})
    agent(policies=(MaxTurns(3),), fallbacks=[("test:other", scripted()), ["test:third", None]])
