"""Policies: objects that watch a run at four points and may stop it, add to it, or skip a call.

Owns the verdicts, the four points, and what a policy is shown there. How several are asked is in `run/consulting`,
and when in `loop` and `dispatch`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias

from msgspec.structs import force_setattr

from .types import AgentMessage, AssistantMessage, Cost, ModelSpec, ToolResultMessage, Usage, as_messages
from .values import hints
from .values.value import Deps_co, Value, WithDeps, show, show_arguments
from .values.value import WithReason as _WithReason

_NO_DEPS: Any = None


class Stop(_WithReason, frozen=True):
    """End the run."""


class Skip(_WithReason, frozen=True):
    """Do not make this call; the model reads the reason. Before a dispatch only."""


class Inject(Value, frozen=True):
    """Add messages: to this turn before the model is asked, else to the next.

    After a turn, an assistant message with the same tool calls as the turn's own replaces that one instead, and a
    tool result for one of the turn's calls replaces that result: before the model, or anyone who reads the history,
    sees it. Policies that follow see the replacement, and it stands even if one of them stops the run.
    """

    messages: tuple[AgentMessage, ...]

    if TYPE_CHECKING:

        def __init__(self, messages: str | AgentMessage | Sequence[str | AgentMessage]) -> None: ...

    def __post_init__(self) -> None:
        force_setattr(self, "messages", as_messages(self.messages))


Verdict: TypeAlias = Stop | Skip | Inject | None


class PolicyContext(WithDeps, Generic[Deps_co], frozen=True, kw_only=True):
    """What a policy sees: a snapshot, taken when the slot is reached.

    `messages` is the committed history; `usage` and `cost` are the run's so far; `state` is a copy of the agent's.
    `message` and `tool_results` are there after a turn. `run_id` is the same in all slots of one run and in its tools
    (`ToolContext.run_id`), and no other run ever has it. `request_tokens`, before a call and only for policies with
    `every_call`, is the most that the request can hold: what the provider counted last time, and one token for each
    byte that is new. `redactor` is the one of the run: a policy that stores or sends what it sees masks it with that.
    """

    hidden_fields = frozenset({"deps", "redactor_fn"})

    turn_index: int
    messages: Sequence[AgentMessage]
    usage: Usage
    cost: Cost
    state: Mapping[str, Any]
    message: AssistantMessage | None = None
    tool_results: tuple[ToolResultMessage, ...] = ()
    model: ModelSpec = ModelSpec("", "")
    max_tokens: int | None = None
    request_tokens: int = 0
    run_id: str = ""
    redactor_fn: Callable[[], hints.Redactor] | None = None
    """Gives the run's redactor, which is made on first use."""
    deps: Deps_co = _NO_DEPS
    """What the application gave to the run."""

    @property
    def redactor(self) -> hints.Redactor | None:
        """What masks secrets in this run; `None` in a context that no run made."""
        return None if self.redactor_fn is None else self.redactor_fn()


class PreDispatchContext(Generic[Deps_co]):
    """What a policy sees of one tool call. Assign `arguments` to change what the tool will get.

    `is_final_answer` says that the call gives the value of a `structured_output`, to the library's own tool. The
    name does not decide this: another tool named `final_answer` is an ordinary tool.
    """

    __slots__ = (
        *("arguments", "call_id", "cost", "deps", "is_final_answer", "messages", "name", "run_id", "state"),
        *("turn_index", "usage"),
    )

    def __init__(
        self,
        snapshot: PolicyContext[Deps_co],
        call_id: str,
        name: str,
        arguments: dict[str, Any],
        is_final_answer: bool = False,
    ) -> None:
        self.turn_index = snapshot.turn_index
        self.messages = snapshot.messages
        self.usage = snapshot.usage
        self.cost = snapshot.cost
        self.state = snapshot.state
        self.deps = snapshot.deps
        self.run_id = snapshot.run_id
        self.call_id = call_id
        self.name = name
        self.arguments = arguments
        self.is_final_answer = is_final_answer

    def __reduce__(self) -> Any:
        raise TypeError("a PreDispatchContext belongs to one call, with its deps: it cannot be copied or pickled")

    def __repr__(self) -> str:
        return f"PreDispatchContext(name={show(self.name)}, arguments={show_arguments(self.arguments)})"


class PreTurnPolicy(Protocol):
    """Runs before the model is asked.

    One that has `every_call = True` is asked again before each repetition of the turn's request: a retry, a fallback,
    the second try after an overflow. `ctx.message` is then the attempt that failed; a stop ends the turn with that.
    A request of a transform is a separate run for it, `post_turn` included; a stop refuses only that request.
    One that reserves something for a call may have `run_over(run_id)`, which is called at the end of every run.
    """

    def pre_turn(self, ctx: PolicyContext, /) -> Verdict | Awaitable[Verdict]: ...


class PreDispatchPolicy(Protocol):
    """Runs once per tool call, for the whole batch before anyone is asked for approval."""

    def pre_dispatch(self, ctx: PreDispatchContext, /) -> Verdict | Awaitable[Verdict]: ...


class PostTurnPolicy(Protocol):
    """Runs when a turn has its message and its results, also if it failed or was aborted."""

    def post_turn(self, ctx: PolicyContext, /) -> Verdict | Awaitable[Verdict]: ...


class PostLoopPolicy(Protocol):
    """Runs when the agent would stop, before follow-ups are looked for."""

    def post_loop(self, ctx: PolicyContext, /) -> Verdict | Awaitable[Verdict]: ...


Policy: TypeAlias = PreTurnPolicy | PreDispatchPolicy | PostTurnPolicy | PostLoopPolicy
"""What `Agent(policies=[…])` takes: an object with one or more of the four slots. It is asked in all that it has."""
