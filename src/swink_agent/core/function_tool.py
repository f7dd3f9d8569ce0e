"""Tools from functions: `@tool`, and how such a tool is bound, called and streamed.

Converts a call's arguments to the function's, and the values that it returns or yields to results. The tool protocol is
in `tool`; `schemas` makes the schema of a signature.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from functools import cached_property, partial
from types import AsyncGeneratorType, GeneratorType, GenericAlias, MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from .errors import ToolError
from .schemas.schema import FunctionSchema
from .tool import AgentToolResult, OnSteer, ToolContext, ToolOptions, as_result, error_result
from .values.checks import a_kind, check_tool_name
from .values.value import Deps_contra, copy_json
from .values.words import TOOL_ARGUMENTS, knows_other_words
from .waits import WorkerThreads

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")
Function = TypeVar("Function", bound=Callable[..., Any])

if TYPE_CHECKING:  # with a default, which Python 3.11 does not support, `FunctionTool` alone is a type as well
    from typing_extensions import TypeVar as TypeVarWithDefault

    Function_co = TypeVarWithDefault("Function_co", covariant=True, default=Callable[..., Any])
    Deps = TypeVar("Deps")  # without a default, which could replace the type that a function declares
else:
    Deps = TypeVar("Deps")
    Function_co = TypeVar("Function_co", covariant=True)


def _on_first_use(make: Callable[[Any], T]) -> T:
    """A cached property that type checkers see as a plain field."""
    return cast("T", cached_property(make))


class FunctionTool(Generic[Function_co, Deps_contra]):
    """A tool that `@tool` makes from a function. Calling it calls the function, so tests need no agent.

    In a class it behaves as a method: an instance binds it, and its schema does not contain `self`. Type checkers see
    the function's parameters and return type. The type parameter is the whole function, so that several tools in a list
    have a common type.
    """

    if not TYPE_CHECKING:  # Python 3.11 would require both parameters

        def __class_getitem__(cls, parameters: object) -> GenericAlias:
            return GenericAlias(cls, parameters)

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        label: str | None = None,
        description: str | None = None,
        requires_approval: bool = False,
        on_steer: OnSteer = "cancel",
        timeout: float | None = None,
        retries: int = 0,
        max_concurrent: int | None = None,
        external: bool = False,
    ) -> None:
        if on_steer not in ("cancel", "finish"):
            raise ValueError(f"on_steer is {on_steer!r}; it must be 'cancel' or 'finish'")
        self._binding = _binding_of(function)
        self._is_static = isinstance(function, staticmethod)
        if isinstance(function, (classmethod, staticmethod)):
            function = cast("Any", function).__func__
        self.name = name or function.__name__
        if name is not None:
            check_tool_name(name)
        self.label = label or self.name.replace("_", " ").strip().capitalize()
        self.requires_approval = requires_approval
        self.on_steer: OnSteer = on_steer
        ToolOptions(timeout, retries, max_concurrent, external)  # raises ValueError, TypeError
        self.timeout = timeout
        self.retries = retries
        self.max_concurrent = max_concurrent
        self.external = external
        self._given_description = description
        self._owner: type | None = None
        self._is_async = inspect.iscoroutinefunction(function)
        self._is_stream = inspect.isasyncgenfunction(function)
        self._wrap(function)
        if getattr(function, "__isabstractmethod__", False):
            self.__isabstractmethod__ = True
        try:
            self.signature  # noqa: B018 - made now, so that an invalid signature is reported here
        except TypeError as error:
            # The hints of a method may name something that is defined later, such as its own class.
            if not (isinstance(error.__cause__, NameError) and _is_in_class(function)):
                raise

    def _wrap(self, function: Callable[..., Any]) -> None:
        self.function = self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    @_on_first_use
    def signature(self) -> FunctionSchema:
        names = {} if self._owner is None else {self._owner.__name__: self._owner}
        return FunctionSchema(self.function, ToolContext, self._binding is not None, names)

    @property
    def deps_type(self) -> Any:
        """The type of dependencies that the function's context names; `Any` if it names none."""
        return self.signature.deps_type

    @_on_first_use
    def description(self) -> str:
        return self._given_description or self.signature.description or self.label

    @_on_first_use
    def parameters_schema(self) -> dict[str, Any]:
        return self.signature.schema

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def __call__(self: FunctionTool[Callable[P, T], Deps_contra], *arguments: P.args, **named: P.kwargs) -> T:
        return self.function(*arguments, **named)

    def __reduce__(self) -> Any:
        return self.__qualname__  # pickled by name, as functions are

    # -- in a class ----------------------------------------------------------------------------------------------

    @property
    def why_unusable(self) -> str | None:
        """Why the tool cannot be called, if it is a method that was taken from its class and has no instance."""
        if self._binding is None:
            return None
        owner = self.__qualname__.rpartition(".")[0] or "its class"
        return (
            f"{self.name} cannot be called: it is a method of {owner} and was taken from the class; take it from an "
            f"instance, as in tools=[{owner}(…).{self.__name__}]"
        )

    def __set_name__(self, owner: type, name: str) -> None:
        if self._owner is not None or not _is_in_class(self.function):
            return  # the tool was made outside the class and is only an attribute of it
        self._owner = owner
        if self._binding is None and not self._is_static:
            self._binding = "instance"
            for field in _OF_SIGNATURE:
                self.__dict__.pop(field, None)

    # These overloads are wrong only for a static method whose first parameter could be an instance of the class.
    @overload
    def __get__(
        self: FunctionTool[Callable[Concatenate[type[S], P], T], Deps], instance: S | None, owner: type[S]
    ) -> FunctionTool[Callable[P, T], Deps]: ...
    @overload
    def __get__(self, instance: None, owner: type) -> FunctionTool[Function_co, Deps_contra]: ...
    @overload
    def __get__(
        self: FunctionTool[Callable[Concatenate[S, P], T], Deps], instance: S, owner: type | None = None
    ) -> FunctionTool[Callable[P, T], Deps]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[Function_co, Deps_contra]: ...
    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[Any, Any]:
        if self._binding == "class":
            return BoundTool(self, type(instance) if owner is None else owner)
        return self if self._binding is None or instance is None else BoundTool(self, instance)

    # -- running -------------------------------------------------------------------------------------------------

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Deps_contra], /) -> AgentToolResult:
        """Converts the arguments, calls the function (in a thread if it is not async) and converts its result."""
        if self._binding is not None:
            return AgentToolResult.error(self.why_unusable or "")
        try:
            positional, named = self.signature.bind(arguments, ctx)
        except ValueError as error:
            ctx.has_invalid_arguments = True
            return AgentToolResult.error(f"invalid arguments for {self.name}: {error}")
        try:
            if self._is_async:
                return as_result(await self.function(*positional, **named), self.name)
            if self._is_stream:
                return await self._drain(self.function(*positional, **named), ctx)
            return await self._call_in_thread(positional, named, ctx)
        except Exception as error:
            if self.retries and isinstance(error, ToolError) and error.retry_after is not None and ctx.run is not None:
                raise  # the run tries again
            return error_result(error)

    @property
    def runs_in_thread(self) -> bool:
        """Whether calls run in a thread, which cannot be stopped."""
        return not (self._is_async or self._is_stream)

    async def _call_in_thread(
        self, positional: Sequence[Any], named: dict[str, Any], ctx: ToolContext
    ) -> AgentToolResult:
        threads = ctx.threads
        if threads is None:
            threads = WorkerThreads()
        is_given_up: list[bool] = []

        def call() -> Any:
            value = self.function(*positional, **named)
            return self._exhaust(cast("Any", value), ctx, is_given_up) if isinstance(value, GeneratorType) else value

        try:
            value = await threads.run(call)
        finally:
            is_given_up.append(True)  # a generator ends at its next step; any other function cannot be stopped
            if ctx.threads is None:
                threads.close()
        # A plain function may return a coroutine, for example if it wraps an async one.
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, AsyncGeneratorType):
            return await self._drain(cast("Any", value), ctx)
        return as_result(value, self.name)

    async def _drain(self, generator: AsyncGenerator[Any, None], ctx: ToolContext) -> AgentToolResult:
        """Reports each value as an update and returns the last one as the result. Always closes the generator."""
        task = asyncio.current_task()
        cancels = 0 if task is None else task.cancelling()
        result = AgentToolResult()
        try:
            async for value in generator:
                result = as_result(value, self.name)
                ctx.update(result)
                if task is not None and task.cancelling() > cancels:
                    raise asyncio.CancelledError  # the generator swallowed it and would continue
        finally:
            await generator.aclose()
        return result

    def _exhaust(self, generator: Generator[Any, None, Any], ctx: ToolContext, is_given_up: list[bool]) -> Any:
        """Does the same for a plain generator, in its thread. If it returns a value, that is the result."""
        result = AgentToolResult()
        try:
            while not is_given_up:
                result = as_result(next(generator), self.name)
                ctx.update(result)
        except StopIteration as end:
            return result if end.value is None else end.value
        finally:
            generator.close()
        return result


class BoundTool(FunctionTool[Any, Any]):
    """A tool made from a method, bound to an instance or class."""

    def __init__(self, unbound: FunctionTool[Any, Any], instance: object) -> None:
        self.__dict__.update({name: value for name, value in vars(unbound).items() if name not in _OF_SIGNATURE})
        self._unbound = unbound
        self._binding = None
        self.__self__ = instance
        self._wrap(MethodType(unbound.function, instance))

    @_on_first_use
    def signature(self) -> FunctionSchema:
        return self._unbound.signature

    @_on_first_use
    def description(self) -> str:
        return self._unbound.description

    @_on_first_use
    def parameters_schema(self) -> dict[str, Any]:
        return copy_json(self._unbound.parameters_schema)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[Any, Any]:
        return self

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__name__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoundTool) and self.__self__ is other.__self__ and self._unbound is other._unbound

    def __hash__(self) -> int:
        return hash((id(self.__self__), self._unbound))


_OF_SIGNATURE = ("signature", "description", "parameters_schema")
_Binding: TypeAlias = Literal["instance", "class"]


def _binding_of(function: object) -> _Binding | None:
    """Returns what the first parameter must be bound to, as far as the function itself shows it."""
    if isinstance(function, classmethod):
        return "class"
    if not inspect.isfunction(function):
        return None
    first = function.__code__.co_varnames[: function.__code__.co_argcount][:1]
    return "instance" if first in (("self",), ("cls",)) and first[0] not in function.__annotations__ else None


def _is_in_class(function: object) -> bool:
    """Whether the function was defined in the body of a class."""
    around = getattr(function, "__qualname__", "").rpartition(".")[0]
    return inspect.isfunction(function) and bool(around) and not around.endswith("<locals>")


class ToolDecorator(Protocol):
    """The decorator that `tool` with options returns."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[ToolContext[Deps], P], T], /
    ) -> FunctionTool[Callable[Concatenate[ToolContext[Deps], P], T], Deps]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, ToolContext[Deps], P], T], /
    ) -> FunctionTool[Callable[Concatenate[S, ToolContext[Deps], P], T], Deps]: ...
    @overload
    def __call__(self, function: Function, /) -> FunctionTool[Function, Any]: ...


@overload
def tool(
    function: Callable[Concatenate[ToolContext[Deps], P], T], /
) -> FunctionTool[Callable[Concatenate[ToolContext[Deps], P], T], Deps]: ...
@overload
def tool(
    function: Callable[Concatenate[S, ToolContext[Deps], P], T], /
) -> FunctionTool[Callable[Concatenate[S, ToolContext[Deps], P], T], Deps]: ...
@overload
def tool(function: Function, /) -> FunctionTool[Function, Any]: ...
@overload
def tool(
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    requires_approval: bool = False,
    on_steer: OnSteer = "cancel",
    timeout: float | None = None,
    retries: int = 0,
    max_concurrent: int | None = None,
    external: bool = False,
) -> ToolDecorator: ...
@knows_other_words("a tool", TOOL_ARGUMENTS)
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a tool from a typed function or method, sync or async: `@tool` or `@tool(requires_approval=True)`.

    The schema comes from the type hints and their constraints, the descriptions from the docstring and from
    `Annotated[..., "text"]`. A parameter of type `ToolContext` receives the context. Each value of a generator is an
    update, and the last one is the result. Raises `TypeError` for a signature that JSON cannot represent.

    `timeout` is in seconds, for one attempt. `retries` is how often a `ToolError("…", retry_after=seconds)` is tried
    again. `max_concurrent` is how many calls run at once. With `external`, the application gives the results: the calls
    wait for `resume`. Raises `ValueError` for values that are not positive, and for negative `retries`.
    """
    if function is not None:
        is_named = hasattr(function, "__name__")  # a `functools.partial` has no name
        if not is_named or not isinstance(cast("object", function), (Callable, classmethod, staticmethod)):
            raise TypeError(f"{a_kind(function)} cannot be made a tool: give a function or method")
        return FunctionTool(function, **options)
    return partial(FunctionTool, **options)
