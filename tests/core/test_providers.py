"""Providers that are found through entry points: on use, once, and with an error that helps when there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from swink_agent import Agent, AgentEvent, AuthError, ModelSpec, StopReason, UnknownProvider
from swink_agent.core.providers import ProviderStreamFn, nearest_model
from swink_agent.testing import collect, fail, names, scripted

Install = Callable[..., str]
_NUMBERS = count(1)

ADAPTER = """
from swink_agent.testing import scripted

made = []

def make(model):
    made.append(model)
    return scripted("from {name} 1", "from {name} 2", "from {name} 3")
"""

NO_KEY = """
from swink_agent import AuthError

def make(model):
    raise AuthError("no key: set FAKE_API_KEY")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution with one provider for this test; returns the name of its module."""

    def install(provider: str, source: str = ADAPTER, target: str = "make") -> str:
        module = f"fake_provider_{next(_NUMBERS)}"
        folder = tmp_path / module
        metadata = folder / f"{module}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (folder / f"{module}.py").write_text(source.replace("{name}", provider))
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[swink_agent.providers]\n{provider} = {module}:{target}\n")
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setitem(sys.modules, module, None)  # so that what the test imports is gone after it
        del sys.modules[module]
        return module

    return install


def test_the_provider_of_the_model_answers(install: Install) -> None:
    install("acme")
    result = Agent("acme:large").prompt_sync("hi")
    assert result.text == "from acme 1"


def test_an_adapter_is_loaded_on_use_and_not_before(install: Install) -> None:
    module = install("acme")
    agent = Agent("acme:large")
    agent.model = "acme:small"
    repr(agent)
    assert module not in sys.modules
    agent.prompt_sync("hi")
    assert module in sys.modules


def test_an_adapter_is_made_once_with_the_model_and_used_again(install: Install) -> None:
    module = install("acme")
    agent = Agent("acme:large")
    texts = [agent.prompt_sync("hi").text for _ in range(3)]
    assert texts == ["from acme 1", "from acme 2", "from acme 3"]
    assert sys.modules[module].made == [ModelSpec("acme", "large")]


def test_another_model_is_asked_through_the_adapter_of_its_own_provider(install: Install) -> None:
    install("acme")
    install("other")
    agent = Agent("acme:large")
    first = agent.prompt_sync("hi").text
    agent.model = "other:model"
    second = agent.prompt_sync("hi").text
    assert (first, second) == ("from acme 1", "from other 1")


async def test_streams_find_their_provider_too(install: Install) -> None:
    install("acme")
    agent = Agent("acme:large", messages=["hi"])
    assert names(await collect(agent.continue_loop_stream()))[-1] == "AgentEnd"
    assert names(await collect(agent.prompt_stream("again")))[-1] == "AgentEnd"
    assert len(agent.messages) == 4


async def test_an_unknown_provider_is_named_with_those_that_there_are_before_anything_happens(
    install: Install,
) -> None:
    install("acme")
    install("beta")
    events: list[AgentEvent] = []
    agent = Agent("unheard-of:model", messages=["before"])
    agent.subscribe(events.append)
    for run in (agent.prompt("hi"), agent.continue_loop()):
        with pytest.raises(LookupError) as error:
            await run
        assert "unheard-of" in str(error.value)
        assert "acme" in str(error.value)
        assert "beta" in str(error.value)
    with pytest.raises(LookupError):
        agent.prompt_stream("hi")
    assert events == []
    assert len(agent.messages) == 1
    assert not agent.is_running


def test_with_no_provider_at_all_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(LookupError, match="stream_fn"):
        ProviderStreamFn().adapter(ModelSpec("acme", "large"))


async def test_a_missing_key_is_told_before_anything_happens(install: Install) -> None:
    install("acme", NO_KEY)
    events: list[AgentEvent] = []
    agent = Agent("acme:large")
    agent.subscribe(events.append)
    for _ in range(2):
        with pytest.raises(AuthError, match="FAKE_API_KEY"):
            await agent.prompt("hi")
    assert events == []
    assert agent.messages == []
    assert not agent.is_running


def test_an_adapter_that_cannot_be_imported_is_told_before_anything_happens(install: Install) -> None:
    install("acme", "import a_module_that_is_not_there")
    agent = Agent("acme:large")
    with pytest.raises(ImportError, match="a_module_that_is_not_there"):
        agent.prompt_sync("hi")
    assert not agent.is_running
    assert agent.messages == []


def test_a_provider_installed_later_is_found(install: Install) -> None:
    agent = Agent("acme:large")
    with pytest.raises(LookupError):
        agent.prompt_sync("hi")
    install("acme")
    assert agent.prompt_sync("hi").text == "from acme 1"


def test_a_stream_function_that_was_given_is_used_for_every_provider(install: Install) -> None:
    module = install("acme")
    agent = Agent("acme:large", stream_fn=scripted("given", "given again"))
    assert agent.prompt_sync("hi").text == "given"
    agent.model = "unheard-of:model"
    assert agent.prompt_sync("hi").text == "given again"
    assert module not in sys.modules


def test_a_fallback_without_a_stream_function_is_asked_through_its_own_provider(install: Install) -> None:
    module = install("acme")
    agent = Agent(
        "main:model", stream_fn=scripted(*[fail("throttled", retry_after=0)] * 3), fallbacks=[("acme:small", None)]
    )
    result = agent.prompt_sync("hi")
    assert result.text == "from acme 1"
    assert sys.modules[module].made == [ModelSpec("acme", "small")]


def test_a_fallback_that_has_no_provider_ends_the_run_with_an_error() -> None:
    agent = Agent(
        "main:model", stream_fn=scripted(*[fail("network", retry_after=0)] * 3), fallbacks=[("nowhere:model", None)]
    )
    result = agent.prompt_sync("hi")
    assert result.stop_reason == StopReason.ERROR
    assert "nowhere" in str(result.error)


def test_the_stream_function_shows_which_providers_it_has_used(install: Install) -> None:
    install("acme")
    by_provider = ProviderStreamFn()
    assert "acme" not in repr(by_provider)
    by_provider.adapter(ModelSpec("acme", "large"))
    assert "acme" in repr(by_provider)


MEANT = {
    "gpt-4o": "openai:gpt-4o",
    "o3-mini": "openai:o3-mini",
    "claude-sonnet-4-6": "anthropic:claude-sonnet-4-6",
    "gemini-3.5-flash": "gemini:gemini-3.5-flash",
    "grok-4.3": "xai:grok-4.3",
    "mistral-medium-latest": "mistral:mistral-medium-latest",
    "llama3.2": "ollama:llama3.2",
    "qwen3:8b": "ollama:qwen3:8b",
    "openai/gpt-4o": "openai:gpt-4o",
    "OpenAI:gpt-4o": "openai:gpt-4o",
    "anthropc:claude-sonnet-4-6": "anthropic:claude-sonnet-4-6",
    "anthropc/claude-sonnet-4-6": "anthropic:claude-sonnet-4-6",
    "anthropic": "anthropic:claude-sonnet-4-6",
    "anthropic:": "anthropic:claude-sonnet-4-6",
    "anthropc": "anthropic:claude-sonnet-4-6",
    "ollama": None,
    "": None,
    "nothing like it": None,
}


@pytest.mark.table
@pytest.mark.parametrize("written", MEANT)
def test_a_name_that_is_nearly_right_leads_to_the_right_one(written: str) -> None:
    assert nearest_model(written) == MEANT[written]


@pytest.mark.parametrize("written", ["gpt-4o", "claude-sonnet-4-6", "openai/gpt-4o", "anthropic:"])
def test_an_agent_names_the_model_that_was_meant(written: str) -> None:
    with pytest.raises(ValueError, match=f"write provider:model; did you mean {MEANT[written]}") as raised:
        Agent(written)
    assert written in str(raised.value)


def test_a_model_of_a_family_behind_a_colon_is_named_too() -> None:
    with pytest.raises(UnknownProvider, match="did you mean ollama:qwen3:8b"):
        Agent("qwen3:8b").prompt_sync("hi")


def test_no_other_package_is_loaded_to_find_what_was_meant(install: Install) -> None:
    module = install("acme")
    assert nearest_model("acme/large") == "acme:large"
    assert nearest_model("acne") is None
    assert module not in sys.modules
