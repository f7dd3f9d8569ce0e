"""Validates arguments when an object is created, so that a run cannot fail on them later.

Checks the type and methods of each field of a configuration. The error for a wrong type does not show the value, which
may be a key. The meaning of a value is checked where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

_SLOTS = ("pre_turn", "pre_dispatch", "post_turn", "post_loop")
_CALLED = ("stream_fn", "convert_to_llm", "sleep")
_CALLED_IF_GIVEN = ("async_transform_context", "transform_context", "get_api_key", "approve")
_OBJECTS = (
    ("retry_strategy", "should_retry", "a RetryStrategy"),
    ("message_provider", "poll_steering", "a MessageProvider"),
    ("redactor", "redact", "a Redactor"),
    ("stream_options", "max_tokens", "StreamOptions"),
)
_LISTS = (*[f"{slot}_policies" for slot in _SLOTS], "masks")
_NUMBER, _WHOLE, _TEXT, _DICT = (int, float), (int,), (str,), (dict, Mapping)
_OPTIONS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("temperature", _NUMBER, "a number"),
    ("max_tokens", _WHOLE, "a whole number"),
    ("timeout", _NUMBER, "a number of seconds"),
    ("session_id", _TEXT, "a string"),
    ("api_key", _TEXT, "a string"),
    ("output_schema", _DICT, "a dict"),
)
_FULL_OPTIONS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("tool_choice", _TEXT, "a string"),
    ("headers", _DICT, "a dict"),
    ("extra", _DICT, "a dict"),
    ("web_search", (bool,), "True or False"),
)


def check_hooks(config: Any) -> None:
    """Raises `TypeError` for a hook of the wrong kind in a loop's configuration."""
    for name in _CALLED:
        if not is_function(hook := getattr(config, name)):
            raise is_not(name, hook, "a function")
    for name in _CALLED_IF_GIVEN:
        hook = getattr(config, name)
        if hook is not None and not is_function(hook):
            raise is_not(name, hook, "a function, or None")
    for name, needed, what in _OBJECTS:
        thing = getattr(config, name)
        if thing is not None and (isinstance(thing, type) or not hasattr(thing, needed)):
            raise is_not(name, thing, what)


def is_function(hook: object) -> bool:
    """Whether an object can be called as a hook.

    A class cannot, since calling it only makes an object. The exception is an async iterator class, which serves as a
    stream function.
    """
    return callable(hook) and (not isinstance(hook, type) or hasattr(hook, "__anext__"))


def check_strategy(strategy: object) -> None:
    """Raises `ValueError` for an unknown name, `TypeError` for an object that is not a strategy."""
    if isinstance(strategy, str):
        if strategy not in ("concurrent", "sequential"):
            raise ValueError(f"tool_execution is {strategy!r}; it must be {_STRATEGY}")
    elif isinstance(strategy, type) or not callable(getattr(strategy, "partition", None)):
        raise is_not("tool_execution", strategy, _STRATEGY)


_STRATEGY = "'concurrent', 'sequential', or a ToolExecutionStrategy"


def check_options(options: Any) -> None:
    """Raises `TypeError` for an option of a request that has the wrong type."""
    for name, types, what in _OPTIONS:
        value = getattr(options, name)
        if value is not None and (not isinstance(value, types) or value is True or value is False):
            raise is_not(f"StreamOptions.{name}", value, f"{what}, or None")
    for name, types, what in _FULL_OPTIONS:
        if not isinstance(value := getattr(options, name), types):
            raise is_not(f"StreamOptions.{name}", value, what)


def as_policies(given: Any, name: str) -> tuple[Any, ...]:
    """Returns the policies as a tuple. Raises `TypeError` if they are not in a list, or one is not a policy."""
    slots = {"policies": (*_SLOTS, "mask"), "masks": ("mask",)}.get(name, (name.removesuffix("_policies"),))
    if isinstance(given, type) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a list, not {a_kind(given)}: write {name}=[…]")
    policies = tuple(cast("Iterable[Any]", given))
    for policy in policies:
        if isinstance(policy, type):
            raise TypeError(f"{name} holds {a_kind(policy)}")
        if not any(callable(getattr(policy, slot, None)) for slot in slots):
            raise TypeError(f"{a_kind(policy)} is not a policy for {name}: it has none of {', '.join(slots)}")
    return policies


def checked_lists(config: Any) -> dict[str, Any]:
    """Returns the lists of a configuration that are not tuples yet, as tuples. Raises `TypeError` for a wrong item."""
    changed: dict[str, Any] = {}
    for name in _LISTS:
        if (given := getattr(config, name)) != () and (policies := as_policies(given, name)) != given:
            changed[name] = policies
    if config.fallbacks != () and (pairs := as_fallbacks(config.fallbacks, is_any_adapter=False)) != config.fallbacks:
        changed["fallbacks"] = pairs
    return changed


def as_fallbacks(given: Any, *, is_any_adapter: bool = True) -> tuple[tuple[Any, Any], ...]:
    """Returns the pairs of a model and its stream function, which may be `None` if `is_any_adapter` is set."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"fallbacks must be a list of pairs, not {a_kind(given)}: {_A_PAIR}")
    pairs = tuple(cast("Iterable[Any]", given))
    for pair in pairs:
        if type(pair) not in (tuple, list) or len(pair) != 2:
            raise TypeError(f"a fallback must be a pair, not {a_kind(pair)}: {_A_PAIR}")
        if not is_any_adapter and not hasattr(pair[0], "model_id"):
            raise is_not("the model of a fallback", pair[0], "a ModelSpec")
        if pair[1] is None and is_any_adapter:
            continue
        if not is_function(pair[1]):
            or_none = ", or None" if is_any_adapter else ""
            raise is_not("the stream function of a fallback", pair[1], f"a function{or_none}")
    return pairs


_A_PAIR = 'write fallbacks=[("provider:model", None)], where None finds the adapter by itself'


def check_tool_name(name: object) -> None:
    """Raises `TypeError` or `ValueError` for a name that no provider accepts."""
    if not isinstance(name, str):
        raise is_not("name", name, "the name of the tool")
    if not name.strip():
        raise ValueError("the name of the tool is empty: the model needs a name to call it")
    if not name.isprintable() or " " in name:
        raise ValueError(f"the name of a tool is {name!r}; write it without spaces: letters, digits, _ and -")


def check_switch(name: str, value: object) -> None:
    """Raises `TypeError` for a value that is not a bool: the text "no" would be true."""
    if not isinstance(value, bool):
        raise is_not(name, value, "True or False")


def check_text(name: str, value: object) -> None:
    """Raises `TypeError` for a value that is not a string."""
    if not isinstance(value, str):
        raise is_not(name, value, "a string")


def check_number(name: str, value: object, what: str = "a number") -> None:
    """Raises `TypeError` for a value that is not a number. A bool is not one."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise is_not(name, value, what)


def check_seconds(name: str, value: object, *, or_zero: bool = False) -> None:
    """Raises `TypeError` for a value that is not a number, `ValueError` for one that is not positive."""
    check_number(name, value, "a number of seconds")
    seconds = cast("float", value)
    if not (seconds >= 0 if or_zero else seconds > 0):
        raise ValueError(f"{name} must be a {'' if or_zero else 'positive '}number of seconds, not {seconds}")


def check_methods(name: str, thing: object, what: str, *needed: str) -> None:
    """Raises `TypeError` for an object without these attributes, or a class instead of its object."""
    if isinstance(thing, type) or not all(hasattr(thing, method) for method in needed):
        raise is_not(name, thing, what)


def check_whole(name: str, value: object, least: int = 1) -> None:
    """Raises `TypeError` for a value that is not a whole number, `ValueError` for one that is too small."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise is_not(name, value, "a whole number")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def is_not(name: str, value: object, what: str) -> TypeError:
    """Returns the error for a value of the wrong kind."""
    return TypeError(f"{name} must be {what}, not {a_kind(value)}")


def a_kind(value: object) -> str:
    """Describes the kind of a value, such as `an int`, without showing the value."""
    if isinstance(value, type):
        return f"the class {value.__name__}: write {value.__name__}(…)"
    name = type(value).__name__
    return f"{'an' if name.lower().startswith(('a', 'e', 'i', 'o', 'un')) else 'a'} {name}"
