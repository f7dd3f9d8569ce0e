"""Tools: what one is, how to make one from a function, and an agent's set of them.

Owns the tool protocol, `@tool`, and results. Schemas are made and checked in `schemas`; running a batch
of calls is in `dispatch`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import cached_property, partial
from types import AsyncGeneratorType, GeneratorType, MethodType
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

import msgspec
from msgspec.structs import force_setattr

from .approval import Grant
from .cancel import CancellationToken
from .errors import ToolError
from .run.threads import WorkerThreads
from .schemas.validation import compile_schema, describe_problems
from .types import Extension, Image, Text, UserBlock, as_blocks
from .values import hints
from .values.value import Value, copy_json

__all__ = ["AgentTool", "AgentToolResult", "FunctionTool", "ToolContext", "Toolbox", "tool"]

OnSteer = Literal["cancel", "finish"]
_RESULT_BLOCKS = frozenset({Text, Image, Extension})
_PLAIN = frozenset({int, float, bool, dict})


class AgentToolResult(Value, frozen=True):
    """What a tool gives back: content for the model, and `details` for people and logs."""

    content: tuple[UserBlock, ...] = ()
    details: Any = None
    is_error: bool = False

    if TYPE_CHECKING:

        def __init__(
            self, content: str | Sequence[UserBlock] = ..., details: Any = ..., is_error: bool = ...
        ) -> None: ...

    def __post_init__(self) -> None:
        content: tuple[Any, ...] = self.content
        if not (type(content) is tuple and len(content) == 1 and type(content[0]) in _RESULT_BLOCKS):
            force_setattr(self, "content", as_blocks(content, "AgentToolResult", _RESULT_BLOCKS))

    @classmethod
    def text(cls, text: str, details: Any = None) -> AgentToolResult:
        """A result that is one text."""
        return cls((Text(text),), details)

    @classmethod
    def error(cls, text: str, details: Any = None) -> AgentToolResult:
        """An error result: the model reads the text and may try again."""
        return cls((Text(text),), details, True)


class Conversation(Protocol):
    """The conversation that calls a tool, as far as tools may know it.

    Its length, in messages, is the same for all calls of one reply, and grows once the model has their results.
    """

    @property
    def memory(self) -> dict[Any, Any]:
        """What tools keep about it, each under a key of its own: never sent, never saved, gone when the history is
        replaced or reset."""
        ...

    def __len__(self) -> int: ...


class ToolContext:
    """What a tool is given besides its arguments. Every field has a default, so tests can make one."""

    __slots__ = (
        "_cancel",
        "_on_update",
        "_run_cancel",
        "call_id",
        "conversation",
        "execution_root",
        "grant",
        "has_invalid_arguments",
        "redactor",
        "run_id",
        "state",
        "threads",
    )

    def __init__(
        self,
        call_id: str = "",
        cancel: CancellationToken | None = None,
        state: MutableMapping[str, Any] | None = None,
        execution_root: hints.Path | None = None,
        on_update: Callable[[AgentToolResult], None] | None = None,
        threads: WorkerThreads | None = None,
        grant: Grant | None = None,
        run_id: str = "",
        conversation: Conversation | None = None,
        redactor: hints.Redactor | None = None,
    ) -> None:
        self.call_id = call_id
        self.run_id = run_id
        """The run's own, the same that policies are shown."""
        self._run_cancel = cancel
        self._cancel: dict[str, CancellationToken] = {}
        self.state: MutableMapping[str, Any] = {} if state is None else state
        """The agent's own key-value store, live."""
        self.execution_root = execution_root
        self.threads = threads
        self.grant = grant
        """What a person or a rule approved for this call; `None` if nobody was asked."""
        self.conversation = conversation
        """The conversation that the call belongs to; `None` outside of one."""
        self.redactor = redactor
        """What masks secrets in the result: for a tool that cuts a text, and so must mask it before."""
        self._on_update = on_update
        self.has_invalid_arguments = False
        """Set by a tool that finds something wrong with its arguments which the schema cannot say."""

    def __repr__(self) -> str:
        return f"ToolContext(call_id={self.call_id!r})"

    @property
    def cancel(self) -> CancellationToken:
        """Cancelled when the call is no longer wanted; a tool that looks at it can still give a partial result."""
        token = self._cancel.get("token")
        # Most tools never look. Of two threads that look at once, `setdefault` gives both the same token.
        return token or self._cancel.setdefault("token", CancellationToken(self._run_cancel))

    @property
    def is_listening(self) -> bool:
        """Whether the tool has looked at `cancel`: if so, it is given a moment to end by itself."""
        return bool(self._cancel)

    def update(self, partial: str | AgentToolResult) -> None:
        """Reports a partial result while the tool runs. Safe from any thread."""
        if self._on_update is not None:
            self._on_update(AgentToolResult.text(partial) if isinstance(partial, str) else partial)


class AgentTool(Protocol):
    """A tool. `on_steer` ("cancel" or "finish") may be left out, and is "cancel" then.

    One that needs approval may have `approval_scope(arguments)`, a JSON object that says where and how it would act:
    it is shown with the question, and `ctx.grant` holds it together with what was approved. And it may have
    `foresee(arguments, ctx)`, an error result for a call that it would refuse: nobody is asked about that.
    """

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters_schema(self) -> dict[str, Any]: ...
    @property
    def requires_approval(self) -> bool: ...

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Does the work. The arguments are valid against the schema, and the tool's own to change."""
        ...


# -- tools from functions ------------------------------------------------------------------------------------

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")
Function = TypeVar("Function", bound=Callable[..., Any])

if TYPE_CHECKING:  # a default, which Python 3.11 does not know, so that `FunctionTool` alone is a type as well
    from typing_extensions import TypeVar as TypeVarWithDefault

    Function_co = TypeVarWithDefault("Function_co", covariant=True, default=Callable[..., Any])
else:
    Function_co = TypeVar("Function_co", covariant=True)


def _on_first_use(make: Callable[[Any], T]) -> T:
    """A field that is made when it is first asked for; to a type checker, a field like any other."""
    return cast("T", cached_property(make))


class FunctionTool(Generic[Function_co]):
    """A tool made from a function by `@tool`. Calling it calls the function, so tests need no agent.

    In a class it is what a function is there: an instance has it bound, and its schema never holds `self`. To a type
    checker it takes and returns what the function does; the parameter of the type is the function as a whole, because
    several tools in a list then still have a type in common.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        label: str | None = None,
        description: str | None = None,
        requires_approval: bool = False,
        on_steer: OnSteer = "cancel",
    ) -> None:
        if on_steer not in ("cancel", "finish"):
            raise ValueError(f"on_steer is {on_steer!r}; it is 'cancel' or 'finish'")
        self._binding = _binding_of(function)
        self._is_static = isinstance(function, staticmethod)
        if isinstance(function, (classmethod, staticmethod)):
            function = cast("Any", function).__func__
        self.name = name or function.__name__
        self.label = label or self.name.replace("_", " ").strip().capitalize()
        self.requires_approval = requires_approval
        self.on_steer: OnSteer = on_steer
        self._given_description = description
        self._owner: type | None = None
        self._is_async = inspect.iscoroutinefunction(function)
        self._is_stream = inspect.isasyncgenfunction(function)
        self._wrap(function)
        if getattr(function, "__isabstractmethod__", False):
            self.__isabstractmethod__ = True
        try:
            self.signature  # noqa: B018 - made now, so that what is wrong with it is said here
        except TypeError as error:
            # The hints of a method may name what is there only later, such as its own class.
            if not (isinstance(error.__cause__, NameError) and _is_in_class(function)):
                raise

    def _wrap(self, function: Callable[..., Any]) -> None:
        self.function = self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    @_on_first_use
    def signature(self) -> hints.FunctionSchema:
        from .schemas.schema import FunctionSchema  # not at import: a program with no function tools does not need it

        names = {} if self._owner is None else {self._owner.__name__: self._owner}
        return FunctionSchema(self.function, ToolContext, self._binding is not None, names)

    @_on_first_use
    def description(self) -> str:
        return self._given_description or self.signature.description or self.label

    @_on_first_use
    def parameters_schema(self) -> dict[str, Any]:
        return self.signature.schema

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def __call__(self: FunctionTool[Callable[P, T]], *arguments: P.args, **named: P.kwargs) -> T:
        return self.function(*arguments, **named)

    def __reduce__(self) -> Any:
        return self.__qualname__  # pickled as functions are: by the name under which its module holds it

    # -- in a class ----------------------------------------------------------------------------------------------

    @property
    def is_unbound(self) -> bool:
        """Whether it is a method that was taken from its class, and so has nothing to work on."""
        return self._binding is not None

    def __set_name__(self, owner: type, name: str) -> None:
        if self._owner is not None or not _is_in_class(self.function):
            return  # a tool that was made elsewhere, and is only kept here
        self._owner = owner
        if self._binding is None and not self._is_static:
            self._binding = "instance"
            for field in _OF_SIGNATURE:
                self.__dict__.pop(field, None)

    # A static method whose first parameter could be its object is the one thing that these take for another.
    @overload
    def __get__(
        self: FunctionTool[Callable[Concatenate[type[S], P], T]], instance: S | None, owner: type[S]
    ) -> FunctionTool[Callable[P, T]]: ...
    @overload
    def __get__(self, instance: None, owner: type) -> FunctionTool[Function_co]: ...
    @overload
    def __get__(
        self: FunctionTool[Callable[Concatenate[S, P], T]], instance: S, owner: type | None = None
    ) -> FunctionTool[Callable[P, T]]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[Function_co]: ...
    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[Any]:
        if self._binding == "class":
            return BoundTool(self, type(instance) if owner is None else owner)
        return self if self._binding is None or instance is None else BoundTool(self, instance)

    # -- running -------------------------------------------------------------------------------------------------

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Converts the arguments, calls the function, in a thread if it is a plain one, and wraps what it returns."""
        if self._binding is not None:
            return AgentToolResult.error(_why_unbound(self))
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
            return error_result(error)

    async def _call_in_thread(self, positional: list[Any], named: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        threads = ctx.threads or WorkerThreads()
        is_given_up: list[bool] = []

        def call() -> Any:
            value = self.function(*positional, **named)
            return self._exhaust(cast("Any", value), ctx, is_given_up) if isinstance(value, GeneratorType) else value

        try:
            value = await threads.run(call)
        finally:
            is_given_up.append(True)  # a generator ends at its next step; nobody can end any other function
            if ctx.threads is None:
                threads.close()
        # A plain function may return a coroutine, as one that was wrapped does.
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, AsyncGeneratorType):
            return await self._drain(cast("Any", value), ctx)
        return as_result(value, self.name)

    async def _drain(self, generator: AsyncGenerator[Any, None], ctx: ToolContext) -> AgentToolResult:
        """Each value as an update when it comes, the last one as the result. Whatever ends it closes the generator."""
        task = asyncio.current_task()
        cancels = 0 if task is None else task.cancelling()
        result = AgentToolResult()
        try:
            async for value in generator:
                result = as_result(value, self.name)
                ctx.update(result)
                if task is not None and task.cancelling() > cancels:
                    raise asyncio.CancelledError  # it swallowed one, and would go on
        finally:
            await generator.aclose()
        return result

    def _exhaust(self, generator: Generator[Any, None, Any], ctx: ToolContext, is_given_up: list[bool]) -> Any:
        """The same for a plain generator, in its thread. What it returns, if anything, is the result."""
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


class BoundTool(FunctionTool[Any]):
    """A tool made from a method, with the object that it works on."""

    def __init__(self, unbound: FunctionTool[Any], instance: object) -> None:
        self.__dict__.update({name: value for name, value in vars(unbound).items() if name not in _OF_SIGNATURE})
        self._unbound = unbound
        self._binding = None
        self.__self__ = instance
        self._wrap(MethodType(unbound.function, instance))

    @_on_first_use
    def signature(self) -> hints.FunctionSchema:
        return self._unbound.signature

    @_on_first_use
    def description(self) -> str:
        return self._unbound.description

    @_on_first_use
    def parameters_schema(self) -> dict[str, Any]:
        return copy_json(self._unbound.parameters_schema)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[Any]:
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
    """What the function's first parameter waits for, as far as the function itself shows it."""
    if isinstance(function, classmethod):
        return "class"
    if not inspect.isfunction(function):
        return None
    first = function.__code__.co_varnames[: function.__code__.co_argcount][:1]
    return "instance" if first in (("self",), ("cls",)) and first[0] not in function.__annotations__ else None


def _is_in_class(function: object) -> bool:
    """Whether it is a function from the body of a class."""
    around = getattr(function, "__qualname__", "").rpartition(".")[0]
    return inspect.isfunction(function) and bool(around) and not around.endswith("<locals>")


def _why_unbound(tool: FunctionTool[Any]) -> str:
    owner = tool.__qualname__.rpartition(".")[0] or "its class"
    return (
        f"{tool.name} cannot be called: it is a method of {owner} and was taken from the class; take it from an "
        f"instance, as in tools=[{owner}(…).{tool.__name__}]"
    )


class ToolDecorator(Protocol):
    """What `tool` with options gives: it makes a tool of the function that it stands above."""

    def __call__(self, function: Function, /) -> FunctionTool[Function]: ...


@overload
def tool(function: Function, /) -> FunctionTool[Function]: ...
@overload
def tool(
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    requires_approval: bool = False,
    on_steer: OnSteer = "cancel",
) -> ToolDecorator: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a tool from a typed function or method, sync or async: `@tool` or `@tool(requires_approval=True)`.

    The schema comes from the type hints and their constraints, the descriptions from the docstring and from
    `Annotated[..., "text"]`. A parameter of type `ToolContext` is filled in. Of a generator, each value is an update
    and the last one the result. Raises `TypeError` for a signature that JSON cannot carry.
    """
    if function is not None:
        if not isinstance(cast("object", function), (Callable, classmethod, staticmethod)):
            raise TypeError(f"a {type(function).__name__} cannot be made a tool: give a function or method")
        return FunctionTool(function, **options)
    return partial(FunctionTool, **options)


def as_result(value: Any, name: str) -> AgentToolResult:
    """What a tool returned, as a result: text as it is, blocks and results as they are, anything else as JSON."""
    if type(value) in _PLAIN:  # by far the most, and none of what follows
        return _as_json(value, name)
    if isinstance(value, AgentToolResult):
        return value
    if isinstance(value, str):
        return AgentToolResult((Text(_encodable(value)),))
    match value:
        case Text() | Image() | Extension():
            return AgentToolResult((value,))
        case list() | tuple() if value and all(type(item) in _RESULT_BLOCKS for item in cast("Sequence[Any]", value)):
            return AgentToolResult(cast("Sequence[UserBlock]", value))
        case _:
            return _as_json(value, name)


def _as_json(value: Any, name: str) -> AgentToolResult:
    try:
        return AgentToolResult((Text(_ENCODER.encode(value).decode()),))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(
            f"{name} returned a {type(value).__name__} that is not JSON ({error}): return a string, blocks, "
            "an AgentToolResult, or plain data"
        ) from error


def _encodable(text: str) -> str:
    """The text as UTF-8 can carry it: names of files may hold what it cannot."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _to_json(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic's
    if callable(dump):
        return dump(mode="json")
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    raise TypeError(f"{type(value).__name__} is not JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_to_json)


def error_result(error: BaseException) -> AgentToolResult:
    """What an exception in a tool becomes: a `ToolError`'s own text, else the exception's type and text."""
    if isinstance(error, ToolError):
        return AgentToolResult.error(str(error))
    return AgentToolResult.error(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


# -- an agent's tools ------------------------------------------------------------------------------------------


class Toolbox(Mapping[str, AgentTool]):
    """An agent's tools by name, with their compiled validators. Names are unique: a duplicate is a `ValueError`."""

    def __init__(self, tools: Iterable[AgentTool] = ()) -> None:
        if not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - one tool is a common slip
            raise TypeError(f"the tools of an agent are a list, and not {tools!r}: write tools=[…]")
        self.tools = tuple(tools)
        self._by_name: dict[str, AgentTool] = {}
        for item in self.tools:
            name = getattr(item, "name", None)
            if not isinstance(name, str) or not callable(getattr(item, "execute", None)):
                raise TypeError(f"{item!r} is no tool: decorate a function with @tool, or give it name and execute")
            if isinstance(item, FunctionTool) and (method := cast("FunctionTool[Any]", item)).is_unbound:
                raise TypeError(_why_unbound(method))
            if name in self._by_name:
                raise ValueError(f"two tools are named {name!r}: tool names are unique in an agent")
            self._by_name[name] = item
        self._validators: dict[str, Any] = {}

    def __getitem__(self, name: str) -> AgentTool:
        return self._by_name[name]

    def find(self, name: str) -> AgentTool | None:
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def problems(self, name: str, arguments: dict[str, Any]) -> str | None:
        """What is wrong with the arguments, field by field, or `None`."""
        validator = self._validators.get(name)
        if validator is None:
            try:
                validator = compile_schema(self._by_name[name].parameters_schema)
            except ValueError as error:
                return f"{name} cannot be called: {error}"
            self._validators[name] = validator
        try:
            if validator.is_valid(arguments):
                return None
            problems = describe_problems(validator, arguments)
        except Exception as error:  # arguments that are not JSON: a policy or an approval may have put them there
            problems = str(error)
        return f"invalid arguments for {name}: {problems}"
