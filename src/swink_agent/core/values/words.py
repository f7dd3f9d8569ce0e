"""The words of other frameworks, and of earlier versions: what to write instead.

Owns the tables, and the errors made from them. An argument or an attribute that an object really has never gets here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_POLICIES = "policies=[…], which takes policies of all slots"
RUN_ARGUMENTS: Mapping[str, str] = {
    "instructions": "system_prompt=…",
    "max_steps": "max_turns=…",
    "output_type": "output=…",
    "toolsets": "tools=[…]",
}
"""Arguments of an agent's runs."""

AGENT_ARGUMENTS: Mapping[str, str] = {
    **RUN_ARGUMENTS,
    "pre_turn_policies": _POLICIES,
    "pre_dispatch_policies": _POLICIES,
    "post_turn_policies": _POLICIES,
    "post_loop_policies": _POLICIES,
}
"""Arguments of an agent."""

TOOL_ARGUMENTS: Mapping[str, str] = {
    "approval": "requires_approval=True",
    "needs_approval": "requires_approval=True",
}
"""Arguments of `@tool`."""

_ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "Agent": {
        "run": "prompt(…), which returns the result of a run",
        "run_sync": "prompt_sync(…)",
        "run_stream": "prompt_stream(…) for its events, or text_stream(…) for its text",
    },
    "AgentResult": {"data": "output", "final_output": "output"},
}


def knows_other_words(owner: str, words: Mapping[str, str]) -> Callable[[F], F]:
    """Lets a function refuse arguments that are called otherwise here with an error that says how."""

    def decorate(function: F) -> F:
        @wraps(function)
        def refusing(*arguments: Any, **given: Any) -> Any:
            if not words.keys().isdisjoint(given):
                name = next(name for name in given if name in words)
                raise TypeError(f"{owner} has no argument {name!r}; write {words[name]}")
            return function(*arguments, **given)

        return refusing  # pyright: ignore[reportReturnType] - it takes the same arguments

    return decorate


def no_attribute(owner: object, name: str) -> AttributeError:
    """Returns the error for an attribute that an object does not have."""
    kind = type(owner).__name__
    meant = _ATTRIBUTES.get(kind, {}).get(name)
    problem = f"{kind!r} object has no attribute {name!r}"
    return AttributeError(f"{problem}; write {meant}" if meant else problem, name=name, obj=owner)
