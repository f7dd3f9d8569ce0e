"""`AllowList`: the tools, and arguments of tools, that may be used; every other call is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from swink_agent.core.policy import PreDispatchContext, Skip

from ._matching import ArgumentPatterns, as_conditions, as_names, texts_of

__all__ = ["AllowList"]


class AllowList:
    """Skips every call of a tool that is not named, and calls whose arguments do not fit. The model is told why.

    `tools` are names or globs (`"read_*"`). `arguments` narrows what a tool may be given:
    `{"bash": {"command": r"git (status|diff)"}}`. Each string of such an argument, however deeply nested, must match
    one of its patterns from beginning to end; an argument that is not named may hold anything, and one that is not
    given is not missed. `.` does not match a newline, so a second line needs a pattern that says so.

    The answer of a `structured_output` is no tool's work and is never refused. A policy that changes arguments goes
    before this one. Nothing is remembered, so the object can be shared.
    """

    name = "allow_list"
    __slots__ = ("_conditions", "_names", "_tools")

    def __init__(self, tools: str | Iterable[str], arguments: ArgumentPatterns | None = None) -> None:
        names = (tools,) if isinstance(tools, str) else tuple(tools)
        self._names = ", ".join(names) or "none"
        self._tools = as_names(names, "AllowList")
        self._conditions = as_conditions(arguments or {}, "AllowList")

    def __repr__(self) -> str:
        return f"<AllowList of {len(self._tools)} tools and {len(self._conditions)} arguments>"

    def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
        if ctx.is_final_answer:
            return None
        if not any(tool.match(ctx.name) for tool in self._tools):
            return Skip(f"the tool {ctx.name} is not among those allowed here: {self._names}")
        unfit = self._unfit_argument(ctx.name, ctx.arguments)
        if unfit is None:
            return None
        return Skip(f"what is in the argument {unfit} of {ctx.name} is not allowed here")

    def _unfit_argument(self, tool: str, arguments: Mapping[str, object]) -> str | None:
        for condition in self._conditions:
            if not condition.concerns(tool):
                continue
            for argument in arguments if condition.argument == "*" else (condition.argument,):
                for text in texts_of(arguments, argument):
                    if not any(pattern.fullmatch(text) for pattern in condition.patterns):
                        return argument
        return None
