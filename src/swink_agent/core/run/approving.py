"""The approval of a batch of tool calls: asks about each call with its scope, and acts on the answer.

`dispatch` decides when calls are approved, and gives each call its result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ..approval import ApprovalMode, Approve, ApproveWith, Defer, Grant, ProposedCall, Reject
from ..errors import ToolError
from ..events import ToolApprovalRequested, ToolApprovalResolved
from ..tool import error_result
from ..types import ToolOutcome
from ..values.value import copy_json, frozen_json, is_same_json
from .supervisor import Interrupted

if TYPE_CHECKING:
    from ..dispatch import Batch
    from .tool_call import CallState

_NO_CALLBACK = "it needs approval, and the agent has no approve callback; give it one"
_OTHER_ACCESS = "the answer changed the access that was asked about; make the call again to ask for other access"

log = logging.getLogger("swink_agent")


async def approve(batch: Batch) -> None:
    """Asks about the calls that need approval, one after another, before any call runs."""
    run = batch.run
    for call in batch.unresolved:
        if run.stopped_by is not None or run.is_interrupted:
            return
        if not _needs_approval(batch, call) or await _is_foreseen(batch, call):
            continue
        question = _Question(batch, call)
        scope = await _scope(batch, call, question.prepare)
        if scope is None:
            continue
        if question.asks and not await batch.may_ask():
            return
        run.emit(ToolApprovalRequested(call.id, call.name, frozen_json(call.arguments), frozen_json(scope)))
        answer = Reject("aborted")
        call.approval = "asked"
        try:
            answer = await question.ask(scope)
        finally:
            if not isinstance(answer, Defer):
                tell_answer(batch, call, answer)
        if isinstance(answer, Defer):
            batch.defer(call, "approval", answer.reason, scope)
        else:
            await act_on(batch, call, answer, scope)


async def act_on(batch: Batch, call: CallState, answer: Approve | ApproveWith | Reject, scope: dict[str, Any]) -> None:
    """Rejects the call, or gives it the grant with which it runs."""
    if isinstance(answer, Reject):
        text = f"tool call rejected: {answer.reason}" if answer.reason else "tool call rejected"
        batch.refuse(call, text, ToolOutcome.REJECTED, answer.reason)
        return
    granted: dict[str, Any] | None = scope
    if isinstance(answer, ApproveWith):
        call.arguments, call.note = answer.arguments, answer.note
        if batch.run.config.pre_dispatch_policies:
            await batch.screen_one(call, batch.run.policy_context())
        granted = None if call.message is not None else await _scope(batch, call)
        if granted is not None and not is_same_json(granted.get("access"), scope.get("access")):
            batch.refuse(call, f"tool call rejected: {_OTHER_ACCESS}", ToolOutcome.REJECTED, _OTHER_ACCESS)
            return
    if granted is not None:
        reads_only = isinstance(answer, Approve) and answer.reads_only
        call.grant = Grant(call.name, call.arguments, granted, reads_only)


def tell_answer(batch: Batch, call: CallState, answer: Approve | ApproveWith | Reject) -> None:
    """Notes the answer, and reports it as an event."""
    run = batch.run
    call.approval = "rejected" if isinstance(answer, Reject) else "approved"
    if not run.audience.all:
        return
    reason = run.redactor.redact(answer.reason) if isinstance(answer, Reject) else ""
    note = run.redactor.redact(answer.note) if isinstance(answer, ApproveWith) else ""
    run.emit(ToolApprovalResolved(call.id, call.name, not isinstance(answer, Reject), reason, note))


def _needs_approval(batch: Batch, call: CallState) -> bool:
    mode = batch.run.config.approval_mode
    is_asked_for = mode == ApprovalMode.ENABLED or getattr(call.tool, "requires_approval", False)
    return bool(is_asked_for) and mode != ApprovalMode.BYPASSED and call.name not in batch.run.unasked_tools


async def _is_foreseen(batch: Batch, call: CallState) -> bool:
    """Whether the tool foresees that it would refuse the call: the refusal becomes the result, without a question."""
    foresee, run = getattr(call.tool, "foresee", None), batch.run
    if foresee is None or run.toolbox.problems(call.name, call.arguments) is not None:
        return False
    arguments, context = frozen_json(call.arguments), batch.context_for(call)
    try:
        refusal = await run.supervisor.in_thread(run.threads, lambda: foresee(arguments, context))
    except ToolError as error:
        refusal = error_result(error)
    except Exception:  # `foresee` is optional: the call itself reports what is wrong
        log.debug("foresee() of %s failed", call.name, exc_info=True)
        return False
    if refusal is not None:
        batch.resolve(call, refusal, ToolOutcome.FAILED)
    return refusal is not None


async def _scope(
    batch: Batch, call: CallState, then: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any] | None:
    """Returns the tool's approval scope; `None` if the tool refused the call, which then has its result.

    The tool's function runs in a thread, as it may read files or try a sandbox; `then` is called there with the scope.
    If the function fails, the returned scope matches nothing that the tool does.
    """
    scope_of, run = getattr(call.tool, "approval_scope", None), batch.run
    if scope_of is None:
        return {}
    arguments = frozen_json(call.arguments)

    def look() -> dict[str, Any]:
        scope = frozen_json(scope_of(arguments))
        if then is not None:
            then(scope)
        return scope

    try:
        return await run.supervisor.in_thread(run.threads, look)
    except ToolError as error:
        batch.resolve(call, error_result(error), ToolOutcome.FAILED)
        return None
    except Exception as error:
        log.debug("approval_scope() of %s failed", call.name, exc_info=True)
        return frozen_json({"unknown": type(error).__name__})


class _Question:
    """The question about one call."""

    def __init__(self, batch: Batch, call: CallState) -> None:
        self._run = batch.run
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

    async def ask(self, scope: dict[str, Any]) -> Approve | ApproveWith | Reject | Defer:
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
                answer: object = await run.supervisor.ask(self._prepared)
            else:
                answer = await run.supervisor.ask(run.config.approve, self._request(scope))
        except Exception as error:
            log.exception("the approval callback failed: the call of %s is rejected", self._call.name)
            return Reject(f"the approval callback failed: {type(error).__name__}")
        return _answer_in(answer)

    def _request(self, scope: dict[str, Any]) -> ProposedCall:
        # Copies, so that the callback cannot change the call.
        call = self._call
        return ProposedCall(call.id, call.name, copy_json(call.arguments), copy_json(scope), self._run.delegates)


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


def _answer_in(answer: object) -> Approve | ApproveWith | Reject | Defer:
    match answer:
        case Approve() | Reject() | Defer():
            return answer
        case ApproveWith():
            if not isinstance(cast("object", answer.arguments), dict):
                kind = type(answer.arguments).__name__
                return Reject(f"the arguments in the callback's ApproveWith are a {kind}, and not a dict")
            try:
                arguments = frozen_json(answer.arguments)
            except RecursionError:
                return Reject("the approval callback answered arguments that contain themselves")
            return ApproveWith(arguments, answer.note if isinstance(cast("object", answer.note), str) else "")
        case True:
            return Approve()
        case False:
            return Reject()
        case _:
            return Reject(f"the approval callback answered {type(answer).__name__}, which is not an approval")
