"""Tools: the protocol, the context and result of a call, and an agent's set of tools.

`function_tool` makes tools from functions, `schemas` makes their schemas, and `dispatch` runs a batch of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from types import MethodType
from typing import Any, Generic, Literal, Protocol, cast

import msgspec

from .approval import Grant
from .cancel import CancellationToken
from .errors import MissingDeps, ToolError
from .run.announcing import Announcer
from .schemas.dependencies import admits_none, context_deps, hints_of, name_of
from .schemas.validation import compile_schema, describe_problems
from .secrets.redaction import Redactor
from .types import (
    USER_BLOCKS,
    AgentMessage,
    AgentToolResult,
    Document,
    Extension,
    Image,
    ModelSpec,
    OfferedTool,
    Text,
    Usage,
    UserBlock,
)
from .values.checks import a_kind, check_switch, is_not
from .values.data import encodable
from .values.value import Deps_co, Deps_contra, Value
from .waits import WorkerThreads

OnSteer = Literal["cancel", "finish"]
_NO_MODEL, _NO_USAGE = ModelSpec("", ""), Usage()
_PLAIN = frozenset({int, float, bool, dict})


class Conversation(Protocol):
    """The part of a conversation that its tools may see.

    Its length, in messages, is the same for all calls of one reply. It grows when their results are added.
    """

    @property
    def memory(self) -> dict[Any, Any]:
        """Data that tools keep about the conversation, each under its own key. It is never sent or saved, and is
        cleared when the history is replaced or reset."""
        ...

    def __len__(self) -> int: ...


class CallServices(Protocol):
    """What a run gives to its tool calls."""

    @property
    def model(self) -> ModelSpec: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def messages(self) -> Sequence[AgentMessage]: ...
    @property
    def redactor(self) -> Redactor | None: ...
    @property
    def threads(self) -> WorkerThreads | None: ...
    @property
    def announcing(self) -> Callable[[], Announcer] | None: ...


class _OutsideRun:
    """Replaces the run in a context that no run made."""

    announcing = None

    def __init__(
        self,
        threads: WorkerThreads | None,
        redactor: Redactor | None,
        model: ModelSpec,
        usage: Usage,
        messages: Sequence[AgentMessage],
    ) -> None:
        self.threads = threads
        self.redactor = redactor
        self.model = model
        self.usage = usage
        self.messages = messages


class ToolContext(Generic[Deps_co]):
    """What a tool receives in addition to its arguments. Every field has a default, so tests can make one."""

    __slots__ = (  # an attribute with a misspelt name is refused
        *("_on_update", "_run_cancel", "_source", "_token", "call_id", "conversation", "deps", "execution_root"),
        *("grant", "has_invalid_arguments", "run_id", "state", "turn_index"),
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
        conversation: Conversation | None = None,
        redactor: Redactor | None = None,
        run: CallServices | None = None,
        deps: Deps_co | None = None,
        turn_index: int = 0,
        model: ModelSpec = _NO_MODEL,
        usage: Usage = _NO_USAGE,
        messages: Sequence[AgentMessage] = (),
    ) -> None:
        self.call_id = call_id
        self.run_id = run_id
        """The id of the run, as policies see it."""
        self._run_cancel = CancellationToken() if cancel is None else cancel
        self._token: CancellationToken | None = None  # the token of the call, once the tool has read it
        self.state: MutableMapping[str, Any] = {} if state is None else state
        """The agent's key-value store itself, not a copy."""
        self.execution_root = execution_root
        self.grant = grant
        """What a person or a rule approved for this call; `None` if no approval was needed."""
        self.conversation = conversation
        """The conversation that the call belongs to, if any."""
        self.deps: Deps_co = deps  # pyright: ignore[reportAttributeAccessIssue] - `cast` would cost a call
        """The dependencies that the application gave to the run: a database, the user, whatever its tools need."""
        self.turn_index = turn_index
        """The turn of the run that the call belongs to; the first is 0."""
        self._source: CallServices = _OutsideRun(threads, redactor, model, usage, messages) if run is None else run
        self._on_update = on_update
        self.has_invalid_arguments = False
        """Set by a tool that finds an error in its arguments which the schema cannot express."""

    def __repr__(self) -> str:
        return f"ToolContext(call_id={self.call_id!r})"

    def __reduce__(self) -> Any:
        raise TypeError("a ToolContext belongs to one call, with its deps: it cannot be copied or pickled")

    @property
    def cancel(self) -> CancellationToken:
        """Cancelled when the call is no longer wanted. A tool that reads it may still return a partial result."""
        if self._token is None:  # made on first use, since most tools never read it
            with self._run_cancel.lock:  # two threads get the same token
                if self._token is None:
                    self._token = CancellationToken(self._run_cancel)
        return self._token

    @property
    def model(self) -> ModelSpec:
        """The model that was asked last: it made the call."""
        return self._source.model

    @property
    def usage(self) -> Usage:
        """The usage of the run so far."""
        return self._source.usage

    @property
    def messages(self) -> Sequence[AgentMessage]:
        """The history up to the reply with the call: a snapshot."""
        return self._source.messages

    @property
    def redactor(self) -> Redactor | None:
        """Masks secrets. Results are masked anyway, but a tool that shortens a text must mask it first."""
        return self._source.redactor

    @property
    def threads(self) -> WorkerThreads | None:
        """The threads of the run, for work that would block the event loop; `None` outside of a run."""
        return self._source.threads

    @property
    def run(self) -> CallServices | None:
        """The run that makes the call, for tools of this library that run agents; `None` outside of a run."""
        return None if isinstance(self._source, _OutsideRun) else self._source

    @property
    def announcer(self) -> Announcer | None:
        """Takes the events of work that outlives the call, for tools of this library; `None` outside of a run."""
        announcing = self._source.announcing
        return None if announcing is None else announcing()

    @property
    def is_listening(self) -> bool:
        """Whether the tool has read `cancel`: if so, it gets a moment to end by itself."""
        return self._token is not None

    @property
    def is_called_off(self) -> bool:
        """Whether the tool has read `cancel` and the token is cancelled. This does not count as reading it."""
        return self._token is not None and self._token.is_cancelled

    def update(self, partial: str | AgentToolResult) -> None:
        """Reports a partial result while the tool runs. Safe from any thread."""
        result: Any = AgentToolResult.text(partial) if isinstance(partial, str) else partial
        if not isinstance(result, AgentToolResult):
            raise is_not("the update", result, "a string or an AgentToolResult")
        if self._on_update is not None:
            self._on_update(result)


_OPTIONS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("timeout", (int, float, type(None)), "a number of seconds, or None"),
    ("retries", (int,), "a whole number"),
    ("max_concurrent", (int, type(None)), "a whole number, or None"),
)


class ToolOptions(Value, frozen=True):
    """How the calls of a tool run. Any tool may have these as attributes."""

    timeout: float | None = None
    """Seconds for one attempt; then the call fails."""
    retries: int = 0
    """How often a `ToolError` with `retry_after` is tried again."""
    max_concurrent: int | None = None
    """How many calls of the tool run at once in a run and its delegates."""
    external: bool = False
    """Whether the application runs the calls: here they wait for their result."""

    def __post_init__(self) -> None:
        for name, types, what in _OPTIONS:
            if not isinstance(value := getattr(self, name), types) or isinstance(value, bool):
                raise is_not(name, value, what)
        check_switch("external", self.external)
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout is {self.timeout!r}; it must be a positive number of seconds, or None")
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries!r}; it must be 0 or more")
        if self.max_concurrent is not None and self.max_concurrent <= 0:
            raise ValueError(f"max_concurrent is {self.max_concurrent!r}; it must be 1 or more, or None")

    @classmethod
    def of(cls, tool: AgentTool[Any]) -> ToolOptions | None:
        """Returns the options of a tool; `None` if it has none. Raises `ValueError` for values that do not fit."""
        timeout = getattr(tool, "timeout", None)
        retries = getattr(tool, "retries", 0)
        most = getattr(tool, "max_concurrent", None)
        external = getattr(tool, "external", False)
        if timeout is None and most is None and not retries and not external:
            return None
        try:
            return cls(timeout, retries, most, external)
        except TypeError as error:
            raise ValueError(f"{tool.name}: {error}") from None


class AgentTool(OfferedTool, Protocol[Deps_contra]):
    """A tool. `on_steer` ("cancel" or "finish") is optional and defaults to "cancel". So are `timeout`, `retries`,
    `max_concurrent` and `external`, the `ToolOptions`.

    A tool that needs approval may define `approval_scope(arguments)`, which returns a JSON object that describes where
    and how it would act: the question shows it, and `ctx.grant` contains it. It may also define
    `foresee(arguments, ctx)`, which returns an error result for a call that it would refuse; then no one is asked.
    """

    @property
    def label(self) -> str: ...
    @property
    def requires_approval(self) -> bool: ...

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Deps_contra], /) -> AgentToolResult:
        """Does the work. The arguments are valid against the schema, and the tool may change them."""
        ...


def as_result(value: Any, name: str) -> AgentToolResult:
    """Converts the return value of a tool to a result: text, blocks and results unchanged, anything else as JSON."""
    if type(value) not in _PLAIN:
        match value:
            case AgentToolResult():
                return value
            case str():
                return AgentToolResult((Text(encodable(value)),))
            case Text() | Image() | Document() | Extension():
                return AgentToolResult((value,))
            case list() | tuple() if value and all(type(item) in USER_BLOCKS for item in cast("list[Any]", value)):
                return AgentToolResult(cast("Sequence[UserBlock]", value))
            case _:
                pass
    try:
        return AgentToolResult((Text(_ENCODER.encode(value).decode()),))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(
            f"{name} returned {a_kind(value)} that is not JSON ({error}): return a string, blocks, "
            "an AgentToolResult, or plain data"
        ) from error


def _to_json(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic's
    if callable(dump):
        return dump(mode="json")
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    raise TypeError(f"{type(value).__name__} is not JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_to_json)


_WRAPPED = (" raised StopIteration", " raised StopAsyncIteration")
"""How the message ends with which Python wraps these exceptions if they leave a coroutine or a generator."""


def error_result(error: BaseException) -> AgentToolResult:
    """Converts an exception of a tool to a result: the text of a `ToolError`, else the exception's type and text."""
    if isinstance(error, ToolError):
        return AgentToolResult.error(str(error))
    if type(error) is RuntimeError and error.__cause__ is not None and str(error).endswith(_WRAPPED):
        error = error.__cause__
    return AgentToolResult.error(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _declared_deps(tool: AgentTool) -> Any:
    """Returns the type of dependencies that a tool names: in `deps_type`, or in the hints of its `execute`."""
    declared = getattr(tool, "deps_type", None)
    if declared is not None:
        return declared
    execute: Any = getattr(type(tool), "execute", None)
    for name, hint in getattr(execute, "__annotations__", {}).items():
        if "ToolContext[" in (hint if isinstance(hint, str) else repr(hint)):
            try:
                deps = context_deps(hints_of(execute, None, ToolContext)[name], ToolContext)
            except TypeError:
                return Any  # another hint cannot be evaluated, and none of them is needed
            return Any if deps is None else deps[0]
    return Any


# -- an agent's tools ------------------------------------------------------------------------------------------


def _bound(item: Any) -> AgentTool:
    """Returns the tool. From Python 3.13 on, a tool beneath `@classmethod` comes as a method around an unbound tool."""
    return item.__func__.__get__(item.__self__) if issubclass(type(item), MethodType) else item


class Toolbox(Mapping[str, AgentTool]):
    """An agent's tools by name, with their compiled validators.

    Raises `ValueError` for a duplicate name or invalid `ToolOptions`, and `TypeError` for an object that is not a tool.
    """

    __slots__ = ("_is_without_deps", "_validators", "by_name", "options", "tools")

    def __init__(self, tools: Iterable[AgentTool] = ()) -> None:
        if not isinstance(tools, (list, tuple, Iterable)):  # pyright: ignore[reportUnnecessaryIsInstance] - one tool is a common slip
            raise TypeError(f"the tools of an agent must be a list, not {tools!r}: write tools=[…]")
        self.tools = tuple(map(_bound, tools))
        self.by_name: dict[str, AgentTool] = {}
        """The same, for code that looks tools up often: its `get` is faster."""
        self.options: dict[str, ToolOptions] | None = None
        """The options of the tools that have any; `None` if none has."""
        for item in self.tools:
            if isinstance(item, type):
                raise TypeError(f"the class {item.__name__} is not a tool: write {item.__name__}(…)")
            name = getattr(item, "name", None)
            if not isinstance(name, str) or not callable(getattr(item, "execute", None)):
                if hasattr(item, "as_tool"):
                    raise TypeError(f"{item!r} is not a tool: agent.as_tool(name, description) makes one of an agent")
                raise TypeError(f"{item!r} is not a tool: decorate a function with @tool, or give it name and execute")
            if (why := getattr(item, "why_unusable", None)) is not None:
                raise TypeError(why)
            if name in self.by_name:
                raise ValueError(f"two tools are named {name!r}: tool names are unique in an agent")
            self.by_name[name] = item
            if (options := ToolOptions.of(item)) is not None:
                self.options = {**(self.options or {}), name: options}
        self._is_without_deps = False
        self._validators: dict[str, Any] = {}

    def __getitem__(self, name: str) -> AgentTool:
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def check_deps(self) -> None:
        """Raises `MissingDeps` if a tool needs dependencies, for a run that has none."""
        if self._is_without_deps:
            return
        for item in self.tools:
            declared = _declared_deps(item)
            if declared is not Any and not admits_none(declared):
                raise MissingDeps(item.name, name_of(declared))
        self._is_without_deps = True

    def problems(self, name: str, arguments: dict[str, Any]) -> str | None:
        """Returns what is wrong with the arguments, field by field, or `None`."""
        validator = self._validators.get(name)
        if validator is None:
            try:
                validator = compile_schema(self.by_name[name].parameters_schema)
            except ValueError as error:
                return f"the tool cannot be called: {error}"
            self._validators[name] = validator
        try:
            if validator.is_valid(arguments):
                return None
            return describe_problems(validator, arguments)
        except Exception as error:  # arguments that are not JSON, which a policy or an approval may have set
            return str(error)
