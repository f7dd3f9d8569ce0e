"""Tools: what one is, how to make one from a function, and the check of its arguments.

Owns the tool protocol, `@tool`, results, and validation. Running a batch of calls is in `dispatch`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, overload

import msgspec
from msgspec.structs import force_setattr

from .approval import Grant
from .cancel import CancellationToken
from .errors import ToolError
from .threads import WorkerThreads
from .types import Extension, Image, Text, UserBlock, as_blocks
from .value import Value

if TYPE_CHECKING:
    from pathlib import Path

    from .schema import FunctionSchema

__all__ = ["AgentTool", "AgentToolResult", "FunctionTool", "ToolContext", "Toolbox", "tool"]

OnSteer = Literal["cancel", "finish"]
_MOST_PROBLEMS = 100
_RESULT_BLOCKS = frozenset({Text, Image, Extension})


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
        force_setattr(self, "content", as_blocks(self.content, "AgentToolResult", _RESULT_BLOCKS))

    @classmethod
    def text(cls, text: str, details: Any = None) -> AgentToolResult:
        """A result that is one text."""
        return cls((Text(text),), details)

    @classmethod
    def error(cls, text: str, details: Any = None) -> AgentToolResult:
        """An error result: the model reads the text and may try again."""
        return cls((Text(text),), details, True)


class ToolContext:
    """What a tool is given besides its arguments. Every field has a default, so tests can make one."""

    __slots__ = (
        "_cancel",
        "_on_update",
        "_run_cancel",
        "call_id",
        "execution_root",
        "grant",
        "run_id",
        "state",
        "threads",
    )

    def __init__(
        self,
        call_id: str = "",
        cancel: CancellationToken | None = None,
        state: MutableMapping[str, Any] | None = None,
        execution_root: Path | None = None,
        on_update: Callable[[AgentToolResult], None] | None = None,
        threads: WorkerThreads | None = None,
        grant: Grant | None = None,
        run_id: str = "",
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
        self._on_update = on_update

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
    it is shown with the question, and `ctx.grant` holds it together with what was approved.
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

F = TypeVar("F", bound=Callable[..., Any])


class FunctionTool:
    """A tool made from a function by `@tool`. Calling it calls the function, so tests need no agent."""

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
        from .schema import FunctionSchema  # not at import: a program with no function tools does not need it

        if on_steer not in ("cancel", "finish"):
            raise ValueError(f"on_steer is {on_steer!r}; it is 'cancel' or 'finish'")
        self.function = function
        self.signature: FunctionSchema = FunctionSchema(function, ToolContext)
        self.name = name or function.__name__
        self.label = label or self.name.replace("_", " ").strip().capitalize()
        self.description = description or self.signature.description or self.label
        self.parameters_schema: dict[str, Any] = self.signature.schema
        self.requires_approval = requires_approval
        self.on_steer: OnSteer = on_steer
        self._is_async = inspect.iscoroutinefunction(function)
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled as functions are: by the name under which its module holds it

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Converts the arguments, calls the function, in a thread if it is a plain one, and wraps what it returns."""
        try:
            positional, named = self.signature.bind(arguments, ctx)
        except ValueError as error:
            return AgentToolResult.error(f"invalid arguments for {self.name}: {error}")
        try:
            if self._is_async:
                return as_result(await self.function(*positional, **named), self.name)
            return as_result(await self._call_in_thread(positional, named, ctx), self.name)
        except Exception as error:
            return error_result(error)

    async def _call_in_thread(self, positional: list[Any], named: dict[str, Any], ctx: ToolContext) -> Any:
        threads = ctx.threads or WorkerThreads()
        try:
            value = await threads.run(lambda: self.function(*positional, **named))
        finally:
            if ctx.threads is None:
                threads.close()
        # A plain function may return a coroutine, as one that was wrapped does.
        return await value if inspect.isawaitable(value) else value


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    requires_approval: bool = False,
    on_steer: OnSteer = "cancel",
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a tool from a typed function, sync or async: `@tool` or `@tool(requires_approval=True)`.

    The schema comes from the type hints, the descriptions from the docstring and from `Annotated[..., "text"]`. A
    parameter of type `ToolContext` is filled in. Raises `TypeError` for a signature that JSON cannot carry.
    """
    if function is not None:
        return FunctionTool(function, **options)
    return partial(FunctionTool, **options)


def as_result(value: Any, name: str) -> AgentToolResult:
    """What a tool returned, as a result: text as it is, blocks and results as they are, anything else as JSON."""
    kind = type(value)
    if kind is int or kind is float or kind is bool or kind is dict:  # by far the most, and none of what follows
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
        return AgentToolResult((Text(msgspec.json.encode(value, enc_hook=_to_json).decode()),))
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


def error_result(error: BaseException) -> AgentToolResult:
    """What an exception in a tool becomes: a `ToolError`'s own text, else the exception's type and text."""
    if isinstance(error, ToolError):
        return AgentToolResult.error(str(error))
    return AgentToolResult.error(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


# -- validation ----------------------------------------------------------------------------------------------


class Toolbox(Mapping[str, AgentTool]):
    """An agent's tools by name, with their compiled validators. Names are unique: a duplicate is a `ValueError`."""

    def __init__(self, tools: Sequence[AgentTool] = ()) -> None:
        self.tools = tuple(tools)
        self._by_name: dict[str, AgentTool] = {}
        for item in self.tools:
            name = getattr(item, "name", None)
            if not isinstance(name, str) or not callable(getattr(item, "execute", None)):
                raise TypeError(f"{item!r} is no tool: decorate a function with @tool, or give it name and execute")
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


def compile_schema(schema: dict[str, Any]) -> Any:
    """A validator for the schema, compiled once per schema in the program. Raises `ValueError`."""
    try:
        return _compiled(msgspec.json.encode(schema))
    except TypeError as error:
        raise ValueError(f"its parameters_schema is not JSON: {error}") from error


@lru_cache(maxsize=1024)
def _compiled(schema: bytes) -> Any:
    import jsonschema_rs  # on first use: it is the only compiled dependency that a run without tools never needs

    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema), retriever=_no_remote_schemas)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise ValueError(f"its parameters_schema is not valid JSON Schema: {str(error).splitlines()[0]}") from error


def _no_remote_schemas(uri: str) -> Any:
    raise ValueError(f"a schema refers to {uri}, and schemas are not fetched: put the definition into $defs")


def describe_problems(validator: Any, value: Any) -> str:
    """All problems in one line, each with the path of its field."""
    problems = list(islice(_problems(validator.iter_errors(value), ()), _MOST_PROBLEMS + 1))
    shown = sorted(set(problems[:_MOST_PROBLEMS]))
    return "; ".join([*shown, "… and more"] if len(problems) > _MOST_PROBLEMS else shown)


def _problems(errors: Iterable[Any], above: tuple[object, ...]) -> Iterator[str]:
    for error in errors:
        where = (*above, *error.instance_path)
        path = ".".join(str(part) for part in where)
        message = error.message if len(error.message) <= 300 else f"{error.message[:120]}…{error.message[-150:]}"
        yield f"{path}: {message}" if path else message
        # Of a choice between schemas, what is wrong with each: the field that is meant is among these.
        for branch in getattr(error.kind, "context", None) or ():
            nested = [item for item in branch if item.instance_path]
            yield from _problems(nested, above)
