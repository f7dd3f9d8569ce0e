"""Functions of the turn: they compute the system prompt or the tools for each turn.

Defines what an application may give instead of a text or a list. Decides whether such a function gets the turn's
`PolicyContext`, and keeps the tools of the last turn. `loop` calls the functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from operator import is_
from types import FunctionType
from typing import Any, TypeAlias, cast

from ..policy import PolicyContext
from ..tool import AgentTool, Toolbox
from ..values.checks import is_function, is_not
from ..values.value import Deps

SystemPrompt: TypeAlias = str | Callable[[], Any] | Callable[[PolicyContext[Deps]], Any]
"""The instructions, or a function that each turn calls once for them, with the turn's `PolicyContext` if it has a
required parameter."""

_OfTurn: TypeAlias = Iterable[AgentTool[Deps]] | Awaitable[Iterable[AgentTool[Deps]]]
Tools: TypeAlias = (
    Iterable[AgentTool[Deps]] | Callable[[], _OfTurn[Deps]] | Callable[[PolicyContext[Deps]], _OfTurn[Deps]]
)
"""Tools, or a function that each turn calls once for them."""


def takes_context(function: Callable[..., Any], name: str) -> bool:
    """Whether the function has one required parameter, which is then the turn's context.

    Raises `TypeError` for a function with more required parameters, or with a required keyword.
    """
    if type(function) is FunctionType and not function.__kwdefaults__ and not function.__code__.co_kwonlyargcount:
        required = function.__code__.co_argcount - len(function.__defaults__ or ())  # much cheaper than a signature
    else:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            return False  # a built-in function without a signature
        required = sum(_is_required(parameter) for parameter in parameters)
        if any(_is_required(parameter) and parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters):
            raise TypeError(f"{name} is a function with a required keyword: it is called with the turn's context alone")
    if required > 1:
        hint = ", or write tools=[…] with a tool for each function" if name == "tools" else ""
        raise TypeError(
            f"{name} is a function of {required} parameters: it is called without any, or with the turn's "
            f"PolicyContext alone; give the others defaults{hint}"
        )
    return required == 1


def _is_required(parameter: inspect.Parameter) -> bool:
    is_several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not is_several


def check_prompt(system_prompt: object) -> None:
    """Raises `TypeError` for instructions that are neither a string nor a function of the turn."""
    if not isinstance(system_prompt, str):
        if not is_function(system_prompt):
            raise is_not("system_prompt", system_prompt, "a string, or a function that gives one")
        takes_context(cast("Callable[..., Any]", system_prompt), "system_prompt")


class TurnTools:
    """A function that gives the tools of each turn, and the tools of the last turn."""

    __slots__ = ("function", "last", "takes_context")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.takes_context = takes_context(function, "tools")
        self.function = function
        # A function may have an attribute `known`: tools that can be listed before its first turn.
        self.last = Toolbox(getattr(function, "known", ()))

    def __len__(self) -> int:
        return len(self.last)

    @property
    def tools(self) -> tuple[AgentTool, ...]:
        return self.last.tools

    def check_deps(self) -> None:
        """Does nothing: the tools are not known before their turn."""

    def toolbox_of(self, tools: object) -> Toolbox:
        """Returns the toolbox for the tools of this turn. Raises `TypeError` or `ValueError` if they are not valid."""
        given = Toolbox(cast("Iterable[AgentTool]", tools))
        last = self.last.tools
        if len(given) != len(last) or not all(map(is_, given.tools, last)):
            self.last = given
        return self.last  # with its compiled validators, if the tools are the same


def as_toolbox(tools: Any) -> Toolbox | TurnTools:
    """Converts the tools of an agent or run: a list, or a function of the turn. Raises `TypeError` for one tool."""
    if tools is None or isinstance(tools, Iterable):
        return Toolbox(cast("Iterable[AgentTool]", tools or ()))
    if not callable(tools) or isinstance(tools, type) or hasattr(tools, "execute"):
        raise TypeError(f"the tools of an agent must be a list, not {tools!r}: write tools=[…]")
    return TurnTools(tools)


def wrapped_tools(tools: Tools, wrap: Callable[[AgentTool], AgentTool | None]) -> Tools:
    """Wraps every tool of a list, or of a function of the turn. Leaves out tools for which `wrap` returns `None`."""
    if not callable(tools):
        return [made for tool in tools if (made := wrap(tool)) is not None]
    takes = takes_context(tools, "tools")

    async def wrapped(ctx: PolicyContext) -> Iterable[AgentTool]:
        given: Any = cast("Any", tools)(*([ctx] if takes else []))
        found = await given if inspect.isawaitable(given) else given
        return [made for tool in found if (made := wrap(tool)) is not None]

    known: Iterable[AgentTool] = getattr(tools, "known", ())
    wrapped.__dict__["known"] = [made for tool in known if (made := wrap(tool)) is not None]
    return wrapped


def wrapped_prompt(system_prompt: SystemPrompt, wrap: Callable[[str], str]) -> SystemPrompt:
    """Wraps instructions: a text now, those of a function in every turn."""
    if isinstance(system_prompt, str):
        return wrap(system_prompt)
    takes = takes_context(system_prompt, "system_prompt")

    async def wrapped(ctx: PolicyContext) -> Any:
        given: Any = cast("Any", system_prompt)(*([ctx] if takes else []))
        found = await given if inspect.isawaitable(given) else given
        return wrap(found) if isinstance(found, str) else found

    return wrapped
