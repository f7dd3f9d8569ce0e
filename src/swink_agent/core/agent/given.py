"""What one run is given in place of the agent's own values, and what `agent.override` puts before both.

Owns the names, their conversion, and which of them holds. What a run does with them is in `run/state` and `loop`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..checks import is_function, is_not
from ..config import AgentLoopConfig
from ..tool import Toolbox
from ..turn import TurnTools, as_toolbox, check_prompt
from ..types import AgentMessage
from ..values import hints
from .arguments import Prompt, as_model, check_model, check_provider, prompts_with_images

Given: TypeAlias = dict[str, Any]
"""Converted values by name. A name that is not there has the agent's own value."""

_NAMES = ("deps", "model", "tools", "system_prompt", "stream_options")
_IN_CONFIG = ("model", "stream_options", "stream_fn")
_OVERRIDES: ContextVar[tuple[tuple[object, Given], ...]] = ContextVar("swink_agent_overrides", default=())
"""The overrides that hold in this context, the innermost last, each with its agent."""


def prompts_of(prompt: Prompt, given: hints.PromptOptions[Any]) -> tuple[AgentMessage, ...]:
    """Returns the messages of a prompt with what is attached to it, which is taken out of `given`.

    Raises `ValueError`, `TypeError` and, for a file that cannot be read, `OSError`.
    """
    return prompts_with_images(prompt, given.pop("images", ()), given.pop("documents", ()))


def given_to(agent: object, options: Mapping[str, Any]) -> Given | None:
    """Returns what a run of the agent that starts here is given, overrides included; `None` for nothing.

    Raises `TypeError` for another name, and whatever the constructor raises for a wrong value.
    """
    overrides = _OVERRIDES.get()
    if not options and not overrides:
        return None
    given = _converted(options, _NAMES)
    for owner, values in overrides:
        if owner is agent:
            given |= values
    return given or None


@contextmanager
def overriding(agent: object, options: Mapping[str, Any]) -> Generator[None]:
    """Puts these values before all others in the runs of the agent that start in this context."""
    mine = agent, _converted(options, (*_NAMES, "stream_fn"))
    _OVERRIDES.set((*_OVERRIDES.get(), mine))
    try:
        yield
    finally:
        # Not by a token: a fixture may be left in another context than it was entered in.
        _OVERRIDES.set(tuple([override for override in _OVERRIDES.get() if override is not mine]))


def _converted(options: Mapping[str, Any], names: tuple[str, ...]) -> Given:
    given: Given = {}
    for name, value in options.items():
        if name in ("images", "documents") and "stream_fn" not in names:
            raise TypeError(f"{name!r} goes with a prompt, and this run has none")
        if name not in names:
            raise TypeError(f"{name!r} cannot be given for one run; {', '.join(names)} can")
        if name == "deps":
            given["deps"] = value
        elif value is not None:
            given[name] = _value(name, value)
    return given


def _value(name: str, value: Any) -> Any:
    match name:
        case "model":
            return as_model(value)
        case "tools":
            return as_toolbox(value)
        case "system_prompt":
            check_prompt(value)
        case "stream_fn" if not is_function(value):
            raise is_not(name, value, "a function")
        case "stream_options" if isinstance(value, type) or not hasattr(value, "max_tokens"):
            raise is_not(name, value, "StreamOptions")
        case _:
            pass
    return value


def config_of(config: AgentLoopConfig, given: Given | None) -> AgentLoopConfig:
    """Returns the configuration of a run. It never holds the deps that the run is given, which are not kept.

    A stream function that was put in for a test has no fallbacks and needs no key.
    """
    changes = {name: given[name] for name in _IN_CONFIG if name in given} if given else {}
    if "stream_fn" in changes:
        changes |= {"fallbacks": (), "get_api_key": None}
    return replace(config, **changes) if changes else config


def check_given(config: AgentLoopConfig, given: Given | None, toolbox: Toolbox | TurnTools) -> None:
    """Raises what makes a run impossible: no adapter for the model, no key, or no deps for a tool that needs some."""
    made = config_of(config, given)
    if made.model is not config.model:
        check_provider(made.stream_fn, made.model, config.model.provider)
    if given is None or "stream_fn" not in given:
        check_model(made)
    if given is None:
        if config.deps is None:
            toolbox.check_deps()
    elif given.get("deps", config.deps) is None:
        given.get("tools", toolbox).check_deps()
