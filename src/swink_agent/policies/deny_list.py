"""`DenyList`: tools, and arguments of tools, that are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from swink_agent.core.policy import PreDispatchContext, Skip

from ._matching import ArgumentPatterns, as_conditions, as_names, texts_of

__all__ = ["DenyList"]


class DenyList:
    """Skips calls of the named tools, and calls in whose arguments a pattern is found. The model is told why.

    `tools` are names or globs (`"delete_*"`). `arguments` maps a tool to regular expressions for its arguments:
    `{"bash": {"command": r"\\brm\\b"}}`, or `{"*": r"\\.env$"}` for any argument of any tool. A pattern is searched
    for in every string of the argument, however deeply nested.

    A list of what is forbidden is a seat belt, not a wall: there is always another way to write a command. Walls are
    the sandbox and the workspace; `AllowList` is the list that fails safely. The answer of a `structured_output` is no
    tool's work and is never refused. A policy that changes arguments goes before this one. Nothing is remembered, so
    the object can be shared.
    """

    name = "deny_list"
    __slots__ = ("_conditions", "_tools")

    def __init__(self, tools: str | Iterable[str] = (), arguments: ArgumentPatterns | None = None) -> None:
        self._tools = as_names(tools, "DenyList")
        self._conditions = as_conditions(arguments or {}, "DenyList")

    def __repr__(self) -> str:
        return f"<DenyList of {len(self._tools)} tools and {len(self._conditions)} arguments>"

    def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
        if ctx.is_final_answer:
            return None
        if any(tool.match(ctx.name) for tool in self._tools):
            return Skip(f"the tool {ctx.name} is not allowed here; do without it")
        denied = self._denied_argument(ctx.name, ctx.arguments)
        if denied is None:
            return None
        return Skip(f"{ctx.name} is not allowed with what is in its argument {denied}; do without it")

    def _denied_argument(self, tool: str, arguments: Mapping[str, object]) -> str | None:
        for condition in self._conditions:
            if not condition.concerns(tool):
                continue
            for argument in arguments if condition.argument == "*" else (condition.argument,):
                for text in texts_of(arguments, argument):
                    if any(pattern.search(text) for pattern in condition.patterns):
                        return argument
        return None
