"""Words of other frameworks are errors that name ours."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from swink_agent import Agent, tool
from swink_agent.testing import scripted

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("word", "ours"), [("run", "prompt("), ("run_sync", "prompt_sync("), ("run_stream", "prompt_stream(")]
)
def test_ways_to_run_of_other_frameworks_name_ours(word: str, ours: str) -> None:
    agent: Any = Agent("test:model", stream_fn=scripted())
    with pytest.raises(AttributeError, match=f"no attribute '{word}'; write ") as refused:
        getattr(agent, word)
    assert ours in str(refused.value)
    assert not hasattr(agent, word)


@pytest.mark.parametrize("word", ["data", "final_output"])
async def test_results_of_other_frameworks_name_ours(word: str) -> None:
    result: Any = await Agent("test:model", stream_fn=scripted("hello")).prompt("go")
    with pytest.raises(AttributeError, match="; write output"):
        getattr(result, word)


def test_any_other_attribute_is_missing_as_usual() -> None:
    agent: Any = Agent("test:model", stream_fn=scripted())
    with pytest.raises(AttributeError, match=r"^'Agent' object has no attribute 'nonsense'$"):
        _ = agent.nonsense


def test_the_signature_is_that_of_the_constructor() -> None:
    names = list(inspect.signature(Agent).parameters)
    assert names[0] == "model"
    assert "given" not in names


def test_every_parameter_of_the_constructor_is_described() -> None:
    described = inspect.getdoc(Agent.__init__) or ""
    missing = [name for name in inspect.signature(Agent).parameters if f"    {name}: " not in described]
    assert missing == []


@pytest.mark.parametrize("word", ["approval", "needs_approval"])
def test_arguments_of_tools_in_other_frameworks_name_ours(word: str) -> None:
    options: Any = {word: True}
    with pytest.raises(TypeError, match=f"^a tool has no argument '{word}'; write requires_approval=True$"):
        tool(**options)


@pytest.mark.parametrize("word", ["instructions", "max_steps", "output_type", "toolsets"])
async def test_arguments_of_runs_in_other_frameworks_name_ours(word: str) -> None:
    agent: Any = Agent("test:model", stream_fn=scripted())
    options: dict[str, Any] = {word: "x"}
    with pytest.raises(TypeError, match=f"^a run has no argument '{word}'; write "):
        await agent.prompt("go", **options)
