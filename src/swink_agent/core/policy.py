"""Policies: objects that watch a run at four points and may stop it, add to it, or skip a call.

Owns the verdicts, the four points, and the contexts that policies get there. `run/consulting` asks several policies in
order; `loop` and `dispatch` decide when.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias

from msgspec.structs import force_setattr

from .record import CallRecord
from .secrets.redaction import Redactor
from .types import AgentMessage, AssistantMessage, Cost, ModelSpec, ToolResultMessage, Usage, as_messages
from .values.value import Deps_co, Value, WithDeps, show, show_arguments
from .values.value import WithReason as _WithReason

_NO_DEPS: Any = None


class Stop(_WithReason, frozen=True):
    """End the run."""


class Skip(_WithReason, frozen=True):
    """Do not make this call; the model reads the reason. Before a dispatch only."""


class Inject(Value, frozen=True):
    """Add messages: to this turn if the model has not been asked yet, else to the next.

    After a turn, an assistant message with the same tool calls replaces the turn's own, and a tool result replaces the
    result of the same call, before the model or a reader of the history sees them. Later policies see the replacement,
    and it remains even if one of them stops the run.
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
    `message`, `tool_results` and `calls` are set after a turn: message and results with the changes of other policies,
    calls as they ran. `run_id` is the same in all slots of one run and in its tools (`ToolContext.run_id`), and differs
    in every other run. `request_tokens` is set before a request, if a policy has `on_every_request`: an upper bound of
    its tokens, which is the provider's last count and one token for each new byte. `redactor` is the run's: a policy
    that stores or sends data masks it with that. `delegates` are the tools on the way from the run whose policy it is
    to the run that it is asked about, the outermost first: none in that run itself.
    """

    hidden_fields = frozenset({"calls_fn", "deps", "redactor_fn"})

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
    redactor_fn: Callable[[], Redactor] | None = None
    """Returns the run's redactor, which is made on first use."""
    deps: Deps_co = _NO_DEPS
    """What the application gave to the run."""
    calls_fn: Callable[[], tuple[CallRecord, ...]] | None = None
    """Returns the turn's calls, which are recorded on first use."""
    delegates: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The calls of the turn that is over, in the reply's order; empty elsewhere.

        Of a turn that `resume` continues, these are the answered calls.
        """
        return () if self.calls_fn is None else self.calls_fn()

    @property
    def redactor(self) -> Redactor | None:
        """The redactor that masks secrets in this run; `None` in a context that no run made."""
        return None if self.redactor_fn is None else self.redactor_fn()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has the calls as they are now. It has no redactor, which knows the run's secrets."""
        make, (kind, fields) = super().__reduce__()
        calls_fn = partial(tuple, self.calls) if self.calls else None
        return make, (kind, {**fields, "redactor_fn": None, "calls_fn": calls_fn})


class PreDispatchContext(Generic[Deps_co]):
    """What a policy sees of one tool call. Assign `arguments` to change what the tool will get.

    `is_final_answer` is set if the call gives the value of a `structured_output` to the library's own tool. It does not
    depend on the name: another tool named `final_answer` is an ordinary tool. `delegates` are the tools on the way from
    the run whose policy it is to the run that makes the call, the outermost first: none in that run itself.
    """

    __slots__ = (  # an attribute with a misspelt name is refused
        *("arguments", "call_id", "cost", "delegates", "deps", "is_final_answer", "messages", "name", "run_id"),
        *("state", "turn_index", "usage"),
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
        self.delegates = snapshot.delegates

    def seen_through(self, delegates: tuple[str, ...]) -> PreDispatchContext[Deps_co]:
        """Returns the same for a policy of a run that called this one through these tools."""
        seen = object.__new__(type(self))
        for name in PreDispatchContext.__slots__:
            setattr(seen, name, getattr(self, name))
        seen.delegates = delegates
        return seen

    def __reduce__(self) -> Any:
        raise TypeError("a PreDispatchContext belongs to one call, with its deps: it cannot be copied or pickled")

    def __repr__(self) -> str:
        return f"PreDispatchContext(name={show(self.name)}, arguments={show_arguments(self.arguments)})"


class PreTurnPolicy(Protocol):
    """Runs before the model is asked.

    A policy with `on_every_request = True` is asked again before each repetition of the turn's request: a retry, a
    fallback, the second attempt after an overflow. `ctx.message` is then the failed attempt, and a stop ends the turn
    with it. It is also asked about each request of a transform, before and after it (`post_turn`), as if that were a
    separate run; a stop refuses only that request.
    """

    def pre_turn(self, ctx: PolicyContext, /) -> Verdict | Awaitable[Verdict]: ...


class PreDispatchPolicy(Protocol):
    """Runs for each call of a batch before any approval is requested.

    Runs again for a call if an approval changes its arguments, and if it was deferred and is approved later.
    """

    def pre_dispatch(self, ctx: PreDispatchContext, /) -> Verdict | Awaitable[Verdict]: ...


class PostTurnPolicy(Protocol):
    """Runs when a turn has its message and its results, even if it failed or was aborted."""

    def post_turn(self, ctx: PolicyContext, /) -> Verdict | Awaitable[Verdict]: ...


class PostLoopPolicy(Protocol):
    """Runs when the agent would stop, before follow-ups are polled."""

    def post_loop(self, ctx: PolicyContext, /) -> Verdict | Awaitable[Verdict]: ...


class MaskingPolicy(Protocol):
    """Masks text that enters a run, before anything else sees it: results of tools, replies and thinking, errors and
    reasons; with `masks_prompts = True` also prompts, and what is steered, queued or injected.

    `mask` is a plain, quick function of one line. If it raises, or returns no string, the run ends.
    """

    def mask(self, text: str, /) -> str: ...


Policy: TypeAlias = PreTurnPolicy | PreDispatchPolicy | PostTurnPolicy | PostLoopPolicy | MaskingPolicy
"""An object for `Agent(policies=[…])`, with one or more of the four slots, or a `mask`. It is asked in all of them.

A policy that raises, or answers what is not a verdict, ends the run with `PolicyFailed`; with `optional = True`, it is
logged and ignored. In `pre_dispatch` either skips the call. A policy is also asked about everything that the run's
delegates do, to any depth, after their own; not if it has `own_run_only = True`. One that keeps something for each run
may have `run_over(run_id)`, which is called at the end of every run, those of delegates included.
"""


def name_of(policy: object) -> str:
    """Returns the name under which errors and stops mention a policy."""
    name = getattr(policy, "name", None)
    return name if isinstance(name, str) and name else type(policy).__name__
