"""The approval of tool calls: asks about each call with its scope, and returns the decision.

Changes no call. `dispatch` decides when calls are approved, and acts on the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from msgspec import Struct

from .approval import ApprovalMode, Approve, ApproveWith, Defer, ProposedCall, Reject
from .calls import CallState
from .errors import ToolError
from .events import ToolApprovalRequested, ToolApprovalResolved
from .run.state import Run
from .tool import AgentToolResult, ToolContext, error_result
from .values.data import as_json_data
from .values.value import copy_json
from .waits import Interrupted

_NO_CALLBACK = "it needs approval, and the agent has no approve callback; give it one"

Answer: TypeAlias = Approve | ApproveWith | Reject

log = logging.getLogger("swink_agent")


class Failed(Struct, frozen=True):
    """The tool itself refuses the call, so there is nothing to approve."""

    result: AgentToolResult


class Answered(Struct, frozen=True):
    """The answer to the question about a call, and the scope that was asked about."""

    answer: Answer | Defer
    scope: dict[str, Any]


def needs_approval(run: Run, call: CallState) -> bool:
    mode = run.config.approval_mode
    is_asked_for = mode == ApprovalMode.ENABLED or getattr(call.tool, "requires_approval", False)
    return bool(is_asked_for) and mode != ApprovalMode.BYPASSED and not run.is_ours(call.name)


async def decide(
    run: Run, call: CallState, context: ToolContext, make_durable: Callable[[], Awaitable[bool]]
) -> Answered | Failed | None:
    """Asks about the call, and reports the question and the answer as events. Before a person may be asked, calls
    `make_durable`; returns `None` if that returns `False`."""
    refusal = await _foreseen(run, call, context)
    if refusal is not None:
        return Failed(refusal)
    question = _Question(run, call)
    scope = await scope_of(run, call, question.prepare)
    if isinstance(scope, Failed):
        return scope
    if question.asks and not await make_durable():
        return None
    run.emit(ToolApprovalRequested(call.id, call.name, call.arguments, scope))
    call.approval = "asked"
    answer: Answer | Defer = Reject("aborted")
    try:
        answer = await question.ask(scope)
    finally:
        if not isinstance(answer, Defer):
            tell_answer(run, call, answer)
    return Answered(answer, scope)


def tell_answer(run: Run, call: CallState, answer: Answer) -> None:
    """Notes the answer, and reports it as an event."""
    call.approval = "rejected" if isinstance(answer, Reject) else "approved"
    reason = run.entered(answer.reason) if isinstance(answer, Reject) else ""
    note = run.entered(answer.note) if isinstance(answer, ApproveWith) else ""
    run.emit(ToolApprovalResolved(call.id, call.name, not isinstance(answer, Reject), reason, note))


async def _foreseen(run: Run, call: CallState, context: ToolContext) -> AgentToolResult | None:
    """Returns the refusal with which the tool would answer the call, if it foresees that: then no one is asked."""
    foresee = getattr(call.tool, "foresee", None)
    if foresee is None or run.toolbox.problems(call.name, call.arguments) is not None:
        return None
    arguments = call.arguments
    try:
        return await run.supervisor.call(lambda: run.threads.run(lambda: foresee(arguments, context)))
    except ToolError as error:
        return error_result(error)
    except Exception:  # `foresee` is optional: the call itself reports what is wrong
        log.debug("foresee() of %s failed", call.name, exc_info=True)
        return None


async def scope_of(
    run: Run, call: CallState, then: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any] | Failed:
    """Returns the tool's approval scope.

    The tool's function runs in a thread, as it may read files or try a sandbox; `then` is called there with the scope.
    If the function fails, the returned scope matches nothing that the tool does.
    """
    describe = getattr(call.tool, "approval_scope", None)
    if describe is None:
        return {}
    arguments = call.arguments

    def look() -> dict[str, Any]:
        scope = as_json_data(describe(arguments))
        if then is not None:
            then(scope)
        return scope

    try:
        return await run.supervisor.call(lambda: run.threads.run(look))
    except ToolError as error:
        return Failed(error_result(error))
    except Exception as error:
        log.debug("approval_scope() of %s failed", call.name, exc_info=True)
        return as_json_data({"unknown": type(error).__name__})


class _Question:
    """The question about one call."""

    def __init__(self, run: Run, call: CallState) -> None:
        self._run = run
        self._call = call
        self._prepared: Callable[[], object] | None = None
        self._given: object = None
        """The answer that the callback gave at once."""

    @property
    def asks(self) -> bool:
        """Whether a person may be asked."""
        return self._given is None and self._run.config.approve is not None

    def prepare(self, scope: dict[str, Any]) -> None:
        """Calls the `prepare_approval` of a callback that has it. Runs in the thread that found the scope."""
        approve: Any = self._run.config.approve
        if not _can_prepare(cast("type[object]", type(approve))):
            return
        try:
            found = approve.prepare_approval(self._request(scope))
        except Exception as error:
            self._prepared = _raises(error)
            return
        if found is None or callable(found):
            self._prepared = found
        else:
            self._given = found

    async def ask(self, scope: dict[str, Any]) -> Answer | Defer:
        """Returns the answer; anything but a clear yes is a rejection."""
        run = self._run
        if run.is_interrupted:
            raise Interrupted
        if run.config.approve is None:
            return Reject(_NO_CALLBACK)
        if self._given is not None:
            return _answer_in(self._given)
        try:
            if self._prepared is not None:
                answer: object = await run.supervisor.call(self._prepared)
            else:
                answer = await run.supervisor.call(run.config.approve, self._request(scope))
        except Exception as error:
            log.exception("the approval callback failed: the call of %s is rejected", self._call.name)
            return Reject(f"the approval callback failed: {type(error).__name__}")
        return _answer_in(answer)

    def _request(self, scope: dict[str, Any]) -> ProposedCall:
        # Copies, so that the callback cannot change the call.
        call = self._call
        return ProposedCall(call.id, call.name, copy_json(call.arguments), copy_json(scope), self._run.setup.delegates)


def _can_prepare(kind: type[object]) -> bool:
    """Whether the class that defines `__call__`, or a subclass of it, has `prepare_approval`.

    If a subclass overrides only `__call__`, that is called: its answer may differ.
    """
    for base in kind.__mro__:
        names = vars(base)
        if "prepare_approval" in names:
            return True
        if "__call__" in names:
            return False
    return False


def _raises(error: Exception) -> Callable[[], object]:
    def ask() -> object:
        raise error

    return ask


def _answer_in(answer: object) -> Answer | Defer:
    match answer:
        case Approve() | Reject() | Defer():
            return answer
        case ApproveWith():
            if not isinstance(cast("object", answer.arguments), dict):
                kind = type(answer.arguments).__name__
                return Reject(f"the arguments in the callback's ApproveWith are a {kind}, and not a dict")
            try:
                arguments = as_json_data(answer.arguments)
            except ValueError as error:
                return Reject(f"the approval callback answered arguments that are {error}")
            return ApproveWith(arguments, answer.note if isinstance(cast("object", answer.note), str) else "")
        case True:
            return Approve()
        case False:
            return Reject()
        case _:
            return Reject(f"the approval callback answered {type(answer).__name__}, which is not an approval")
