"""Mistakes that are found when something is made, and not in the middle of a run.

Owns what each field of a configuration must be able to do, and the words for one that cannot. A value is never shown:
it may be a key. What a value means is checked where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

__all__ = ["as_fallbacks", "as_policies", "check_hooks", "check_options", "check_prompt"]

_SLOTS = ("pre_turn", "pre_dispatch", "post_turn", "post_loop")
_CALLED = ("stream_fn", "convert_to_llm", "sleep")
_CALLED_IF_GIVEN = ("async_transform_context", "transform_context", "get_api_key", "approve")
_OBJECTS = (
    ("retry_strategy", "should_retry", "a RetryStrategy"),
    ("message_provider", "poll_steering", "a MessageProvider"),
    ("redactor", "redact", "a Redactor"),
    ("stream_options", "max_tokens", "StreamOptions"),
)
_NUMBER, _WHOLE, _TEXT, _DICT = (int, float), (int,), (str,), (Mapping,)
_OPTIONS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("temperature", _NUMBER, "a number"),
    ("max_tokens", _WHOLE, "a whole number"),
    ("timeout", _NUMBER, "a number of seconds"),
    ("session_id", _TEXT, "a string"),
    ("api_key", _TEXT, "a string"),
)
_FULL_OPTIONS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("tool_choice", _TEXT, "a string"),
    ("headers", _DICT, "a dict"),
    ("extra", _DICT, "a dict"),
)


def check_hooks(config: Any) -> None:
    """Raises `TypeError` for a hook of a loop's configuration that cannot be called, or is something else."""
    for name in _CALLED:
        if not callable(hook := getattr(config, name)):
            raise _is_no(name, hook, "a function")
    for name in _CALLED_IF_GIVEN:
        hook = getattr(config, name)
        if hook is not None and not callable(hook):
            raise _is_no(name, hook, "a function, or None")
    for name, needed, what in _OBJECTS:
        thing = getattr(config, name)
        if thing is not None and not hasattr(thing, needed):
            raise _is_no(name, thing, what)


def check_options(options: Any) -> None:
    """Raises `TypeError` for an option of a request that is of another type."""
    for name, types, what in _OPTIONS:
        value = getattr(options, name)
        if value is not None and (not isinstance(value, types) or value is True or value is False):
            raise _is_no(f"StreamOptions.{name}", value, f"{what}, or None")
    for name, types, what in _FULL_OPTIONS:
        if not isinstance(value := getattr(options, name), types):
            raise _is_no(f"StreamOptions.{name}", value, what)


def check_prompt(system_prompt: object) -> None:
    """Raises `TypeError` for instructions that are neither a string nor a function."""
    if not isinstance(system_prompt, str) and not callable(system_prompt):
        raise _is_no("system_prompt", system_prompt, "a string, or a function that gives one")


def as_policies(given: Any, name: str) -> tuple[Any, ...]:
    """The policies of a list. Raises `TypeError` for one that is not in a list, or no policy."""
    slots = _SLOTS if name == "policies" else (name.removesuffix("_policies"),)
    if not isinstance(given, Iterable):
        raise TypeError(f"{name} is a list, and not a {type(given).__name__}: write {name}=[…]")
    policies = tuple(cast("Iterable[Any]", given))
    for policy in policies:
        if not any(hasattr(policy, slot) for slot in slots):
            raise TypeError(f"a {type(policy).__name__} is no policy for {name}: it has none of {', '.join(slots)}")
    return policies


def as_fallbacks(given: Any) -> tuple[tuple[Any, Any], ...]:
    """The pairs of a model and what asks it. Raises `TypeError` for anything else."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"fallbacks is a list of pairs, and not a {type(given).__name__}: {_A_PAIR}")
    pairs = tuple(cast("Iterable[Any]", given))
    for pair in pairs:
        if type(pair) not in (tuple, list) or len(pair) != 2:
            raise TypeError(f"a fallback is a pair, and not a {type(pair).__name__}: {_A_PAIR}")
        if pair[1] is not None and not callable(pair[1]):
            raise _is_no("the stream function of a fallback", pair[1], "a function, or None")
    return pairs


_A_PAIR = 'write fallbacks=[("provider:model", None)], where None finds the adapter by itself'


def _is_no(name: str, value: object, what: str) -> TypeError:
    return TypeError(f"{name} is {what}, and not a {type(value).__name__}")
