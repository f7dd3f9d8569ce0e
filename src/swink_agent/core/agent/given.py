"""Values that replace the agent's own for one run, and those of `agent.override`, which replace both.

Owns the names of these values, their conversion and their precedence. `run/state` and `loop` use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..config import AgentLoopConfig
from ..run.turn import TurnTools, as_toolbox, check_prompt
from ..tool import Toolbox
from ..values.checks import is_function, is_not
from .arguments import as_model, check_model, check_provider

Given: TypeAlias = dict[str, Any]
"""Converted values by name. For a missing name, the agent's own value applies."""

_NAMES = ("deps", "model", "tools", "system_prompt", "stream_options")
_IN_CONFIG = ("model", "stream_options", "stream_fn")
_OVERRIDES: ContextVar[tuple[tuple[object, Given], ...]] = ContextVar("swink_agent_overrides", default=())
"""The overrides of this context, the innermost last, each with its agent."""


def given_to(agent: object, options: Mapping[str, Any]) -> Given | None:
    """Returns the values for a run of the agent that starts in this context, overrides included; `None` for none.

    Raises `TypeError` for an unknown name, and whatever the constructor raises for a wrong value.
    """
    overrides = _OVERRIDES.get()
    if not options and not overrides:
        return None
    given = _converted(options, _NAMES)
    for owner, values in overrides:
        if owner is agent:
            given |= values
    return given or None


class Override(ContextDecorator):
    """Within its block, these values take precedence over all others in runs of the agent that start in this context.
    It may be entered again, also inside its own block."""

    def __init__(self, agent: object, options: Mapping[str, Any]) -> None:
        self._mine = agent, _converted(options, (*_NAMES, "stream_fn"))

    def __enter__(self) -> None:
        _OVERRIDES.set((*_OVERRIDES.get(), self._mine))

    def __exit__(self, *_: object) -> None:
        # Not reset by a token: a test fixture may exit in another context than it entered.
        overrides = list(_OVERRIDES.get())
        for position in range(len(overrides) - 1, -1, -1):
            if overrides[position] is self._mine:
                del overrides[position]
                break
        _OVERRIDES.set(tuple(overrides))


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
    """Returns the configuration of a run. It never contains the deps that the run is given.

    With a stream function from `override`, there are no fallbacks, and no key is needed.
    """
    if given is None:
        return config
    changes = {name: given[name] for name in _IN_CONFIG if name in given}
    if "stream_fn" in changes:
        changes |= {"fallbacks": (), "get_api_key": None}
    return replace(config, **changes) if changes else config


def check_given(config: AgentLoopConfig, given: Given | None, toolbox: Toolbox | TurnTools) -> None:
    """Raises an error if a run is impossible: no adapter for the model, no key, or no deps for a tool that needs
    them."""
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
