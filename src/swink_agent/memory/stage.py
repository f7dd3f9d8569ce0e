"""Where a recorded session is played again: an agent between stand-ins for everything by which it reaches the world.

    the model        gives the recorded replies
    the tools        give the recorded results; the real ones never run
    people           say what they said, at the same places: prompts, steering, follow-ups, aborts
    the agent        does all the rest itself: policies, approvals, validation, the loop

Owns the stand-ins and the moments at which they act. What is on record is read in `recording`; what counts as a
difference is in `divergence`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

from msgspec import structs

from swink_agent.core.agent import Agent
from swink_agent.core.agent_parts.queues import QueueName
from swink_agent.core.approval import ApproveFn, ApproveWith, ProposedCall, Reject
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import AgentError, ErrorKind
from swink_agent.core.events import (
    AgentEvent,
    MessageEnd,
    MessageStart,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolExecutionEnd,
    TurnEnd,
)
from swink_agent.core.playback import events_of
from swink_agent.core.stream import AssistantMessageEvent, StreamFailed, StreamOptions
from swink_agent.core.tool import AgentTool, AgentToolResult, ToolContext
from swink_agent.core.types import (
    AgentContext,
    AgentMessage,
    AgentResult,
    AssistantMessage,
    ModelSpec,
    Text,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
    extract_text,
)
from swink_agent.core.values.value import copy_json

from .divergence import Compared, Comparison, Divergence
from .recording import ANSWER, Expected, RecordedRun, Turn, arguments_of

__all__ = ["ReplayStage"]

_LONGEST_WAIT = 5.0
"""Seconds that a call which was cancelled in the recording waits to be cancelled again."""
_ABORTED = "the run was aborted"
"""Why a call is rejected if that happens while it is put up for approval."""
_NOT_STARTED = frozenset({ToolOutcome.REJECTED, ToolOutcome.SKIPPED, ToolOutcome.UNKNOWN_TOOL, ToolOutcome.INCOMPLETE})


class ReplayStage:
    """Where one agent plays one session: what it is given, and what it is seen to do."""

    def __init__(self, patience: float) -> None:
        self.divergence: Divergence | None = None
        self.reached = 0
        """How many messages are known to be the same."""
        self._agent: Agent | None = None
        self._patience = patience
        self._clock: asyncio.Timeout | None = None
        self._length = 0
        """How many messages there were when something happened last."""
        self._asked_about: str | None = None
        """The tool of the call that `approve` is being asked about."""
        self._run: RecordedRun | None = None
        self._run_index = 0
        self._expected: list[Expected] = []
        self._answer_tool: str | None = None
        self._begin_turn(-1)
        self._is_asking = False
        self._fed: set[tuple[int, str]] = set()
        self._given: dict[str, Any] = {}
        """The reply and the results of a turn before policies saw them, by call id."""
        self._replaced: set[int] = set()
        self._comparison = Comparison(None)
        self._notes: dict[str, str] = {}
        """What the agent's approval had to say of the arguments that it changed, by call id."""

    # -- the agent ---------------------------------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        assert self._agent is not None
        return self._agent

    def take(self, agent: Agent) -> None:
        """Puts the stand-ins in the place of everything by which the agent would reach the world."""
        self._agent = agent
        self._comparison = Comparison(agent.redactor)
        agent.detach_journal()
        agent.tools = [tool if isinstance(tool, _RecordedTool) else self.wrap_tool(tool) for tool in agent.tools]
        agent.subscribe(self._observe)
        # Behind its back, on purpose: a user who changes these is told of it, and a replay must not depend on how
        # `make_agent` was written. What retries, fallbacks and transforms led to is on record.
        config = agent._config  # pyright: ignore[reportPrivateUsage]
        agent._config = structs.replace(  # pyright: ignore[reportPrivateUsage]
            config,
            stream_fn=self.stream,
            retry_strategy=_NoRetry(),
            fallbacks=(),
            get_api_key=None,
            async_transform_context=None,
            transform_context=None,
            approve=None if config.approve is None else self._approving(config.approve),
        )
        agent._queues.provider = self  # pyright: ignore[reportPrivateUsage]

    async def play(self, index: int, run: RecordedRun) -> None:
        """Plays one run, and compares what it added to the history."""
        agent = self.agent
        if run.before is not None:
            agent.messages = run.before
        if run.state is not None:
            self._set_state(run.state)
        self._run, self._run_index = run, index
        self._expected = [expected for _, expected in run.expected()]
        self._answer_tool = run.answer_tool([tool.name for tool in agent.tools])
        self._fed.clear()
        self._replaced.clear()
        self._begin_turn(-1)
        self.reached = run.start
        how_it_ended = "the run ended"
        try:
            async with asyncio.timeout(self._patience) as self._clock:
                result = await self._go(run)
            if result is not None and result.stopped_by is not None:
                stop = result.stopped_by
                how_it_ended = f"policy {stop.policy} stopped the run ({stop.reason})"
            elif result is not None and result.error is not None:
                how_it_ended = f"the run ended with an error: {result.error}"
        except TimeoutError:
            if self._compare(self._length):
                about = self._asked_about
                waits_for = "" if about is None else f": `approve` has not answered about the tool {about}"
                self._diverge(self.reached, reason=f"nothing happened for {self._patience:g} s{waits_for}")
        except AgentError as error:
            how_it_ended = f"the agent refused to run: {error}"
        finally:
            self._clock = None
            agent.clear_queues()
        if self.divergence is None:
            self._compare_rest(run, how_it_ended)
        self._run = None

    async def _go(self, run: RecordedRun) -> AgentResult | None:
        prompts = [message for _, message in run.prompts]
        if self._answer_tool is not None and prompts:
            await self._go_for_an_answer(run, prompts, self._answer_tool)
            return None
        return await (self.agent.prompt(prompts) if prompts else self.agent.continue_loop())

    async def _go_for_an_answer(self, run: RecordedRun, prompts: list[AgentMessage], answer_tool: str) -> None:
        """The schema is not on record; one that takes what was taken, and nothing else, comes to the same."""
        accepted = run.accepted(answer_tool)
        schema: dict[str, Any] = {"type": "object", "enum": accepted} if accepted else {"type": "object", "not": {}}
        stop = None if run.end is None else run.end.stopped_by
        has_failed = stop is not None and stop.policy == answer_tool and not accepted
        retries = run.attempts(answer_tool) - 1 if has_failed else len(run.turns)
        try:
            await self.agent.structured_output(prompts, schema, max(0, retries))
        except AgentError:
            pass  # that no answer came, or an error, is on record as well

    # -- what it does ------------------------------------------------------------------------------------------

    def _observe(self, event: AgentEvent) -> None:
        if self._clock is not None and not self._clock.expired():
            self._clock.reschedule(asyncio.get_running_loop().time() + self._patience)
            self._length = len(self.agent.messages)
            if isinstance(event, (ToolApprovalRequested, ToolApprovalResolved)):
                self._asked_about = event.name if isinstance(event, ToolApprovalRequested) else None
        if isinstance(event, MessageStart):
            self._is_asking = True
        elif isinstance(event, MessageEnd):
            self._given = {"": event.message.content}
            self._interrupt_if_due(may_steer=False)
        elif isinstance(event, ToolExecutionEnd):
            self._given[event.call_id] = event.result.content
            self._open.pop(event.call_id, None)
            if not self._open and self._turn is not None and self._turn.state is not None:
                self._set_state(self._turn.state)
            self._interrupt_if_due()
        elif isinstance(event, TurnEnd):
            self._is_in_batch = False
            self._note_replaced(event)

    def _note_replaced(self, event: TurnEnd) -> None:
        """Where the recording broke off in this turn, what a policy made of it is not on record."""
        run = self._run
        if run is None or run.end is not None or self._turn_index != len(run.turns) - 1:
            return
        if event.message is not None and event.message.content != self._given.get(""):
            self._replaced.add(id(event.message))
        for result in event.tool_results:
            if result.content != self._given.get(result.tool_call_id):
                self._replaced.add(id(result))

    def _begin_turn(self, index: int) -> None:
        self._turn_index = index
        turn = self._turn
        self._open = {} if turn is None else {call.id: index for index, call in enumerate(turn.calls)}
        self._is_in_batch = bool(self._open)
        self._is_steered = self._is_aborted = False

    @property
    def _turn(self) -> Turn | None:
        return self._run.turns[self._turn_index] if self._run is not None and self._turn_index >= 0 else None

    def _diverge(
        self, position: int, expected: Compared | None = None, actual: Compared | None = None, reason: str = ""
    ) -> None:
        """Notes the first difference, and lets the agent do no more."""
        if self.divergence is None:
            self.divergence = Divergence(
                position=position, expected=expected, actual=actual, reason=reason, run=self._run_index
            )
        self.agent.abort()

    def _compare(self, until: int | None = None) -> bool:
        """Whether everything that the run has added so far, or until it had so many messages, is as it was."""
        run = self._run
        assert run is not None
        for actual in self.agent.messages[self.reached : until]:
            index = self.reached - run.start
            if index >= len(self._expected):
                if not run.ends_early:
                    self._diverge(self.reached, None, actual, "the agent said more than is on record")
                return run.ends_early
            expected = self._expected[index]
            is_known = expected.is_known and id(actual) not in self._replaced
            if is_known and not self._comparison.is_same(expected.message, actual, self._answer_tool):
                self._diverge(self.reached, expected.message, actual, _difference(expected, actual))
                return False
            if not expected.is_known and (gone := self._gone_tool(run, expected)) is not None:
                reason = f"the tool {gone.name} had started when it was recorded, and the agent does not have it now"
                self._diverge(self.reached, gone, actual, reason)
                return False
            self.reached += 1
        return True

    def _gone_tool(self, run: RecordedRun, expected: Expected) -> ToolCall | None:
        """The call of a result that a crash cost, if it had started and could not any more."""
        turn = run.turns[expected.turn]
        if expected.call is None or expected.call not in turn.started:
            return None
        call = turn.calls[expected.call]
        is_there = call.name == self._answer_tool or any(tool.name == call.name for tool in self.agent.tools)
        return None if is_there or ANSWER.fullmatch(call.name) else call

    def _compare_rest(self, run: RecordedRun, how_it_ended: str) -> None:
        if self._compare() and self.reached < run.start + len(self._expected):
            expected = self._expected[self.reached - run.start]
            if expected.is_known:
                self._diverge(self.reached, expected.message, None, f"{how_it_ended}, and more was recorded")

    # -- the model ---------------------------------------------------------------------------------------------

    async def stream(
        self, model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        """The recorded replies, one for each turn."""
        if self._run is None or not self._is_asking:
            text = "this is a replay: only the agent's own replies are on record, and nobody else's"
            yield StreamFailed(text, ErrorKind.INVALID_REQUEST)
            return
        self._is_asking = False
        reply = self._next_reply()
        if reply is None:
            yield StreamFailed("the replay ends here", ErrorKind.ABORTED)
            return
        for event in events_of(reply):
            yield event

    def _next_reply(self) -> AssistantMessage | None:
        run = self._run
        assert run is not None
        if self.divergence is not None or not self._compare():
            return None
        index = self.reached - run.start
        if index >= len(self._expected):
            if not run.ends_early:
                self._diverge(self.reached, reason="the agent asks the model again, and the recorded run ends here")
            return None
        expected = self._expected[index]
        if not expected.is_known:
            return None
        if expected.source != "reply":
            self._diverge(self.reached, expected.message, None, f"{_NAMES[expected.source]} did not come")
            return None
        self._begin_turn(expected.turn)
        return None if self._turn is None else self._turn.reply

    # -- the tools ---------------------------------------------------------------------------------------------

    def wrap_tool(self, tool: AgentTool) -> AgentTool:
        """A tool that looks like this one, and gives what is on record."""
        return _RecordedTool(tool, self)

    async def result_of(self, name: str, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        """What the call gave when it was recorded, unless it was another call."""
        run, turn, index = self._run, self._turn, self._open.get(ctx.call_id)
        if run is None or turn is None or index is None:
            return AgentToolResult.error("this is a replay, and this call is not on record")
        recorded, call = turn.results.get(index), turn.calls[index]
        ran_with, now = arguments_of(turn, index), ToolCall(call.id, name, copy_json(arguments))
        position = self._position_of(index)
        is_lost = run.is_lost(self._turn_index, index)
        if not is_lost and recorded is not None and _was_not_started(turn, index):
            self._diverge(position, recorded, now, f"the tool {name} runs now, and did not when it was recorded")
        elif not self._comparison.is_equal(ran_with, arguments) and not (is_lost and index not in turn.started):
            then = ToolCall(call.id, name, ran_with)
            self._diverge(position, then, now, f"the tool {name} is run with other arguments")
        elif is_lost or recorded is None or recorded.outcome is ToolOutcome.CANCELLED:
            return await self._wait_for_the_end(run, ctx)
        else:
            ctx.has_invalid_arguments = recorded.outcome is ToolOutcome.INVALID
            return AgentToolResult(self._without_note(recorded, ctx), recorded.details, recorded.is_error)
        return AgentToolResult.error("the replay ends here")

    def _without_note(self, recorded: ToolResultMessage, ctx: ToolContext) -> tuple[Any, ...]:
        """What the tool itself gave: what a person had to say of the call is added to it again."""
        content, note = recorded.content, (Text(f"\n{self._notes.pop(ctx.call_id, '')}"),)
        return content[:-1] if self._comparison.is_equal(content[-1:], note) else content

    def foreseen(self, ctx: ToolContext) -> AgentToolResult | None:
        """The refusal of a call that was refused before anybody was asked about it."""
        turn, index = self._turn, self._open.get(ctx.call_id)
        recorded = None if turn is None or index is None else turn.results.get(index)
        if turn is None or index is None or recorded is None or index in turn.started:
            return None
        if recorded.outcome is not ToolOutcome.FAILED:
            return None
        return AgentToolResult(recorded.content, recorded.details, recorded.is_error)

    def _position_of(self, call: int) -> int:
        """Where the result of a call of this turn stands, or would."""
        start = 0 if self._run is None else self._run.start
        for index in range(self.reached - start, len(self._expected)):
            if (self._expected[index].turn, self._expected[index].call) == (self._turn_index, call):
                return start + index
        return self.reached

    def _set_state(self, state: dict[str, Any]) -> None:
        self.agent.state.clear()
        self.agent.state.update(copy_json(state))

    # -- people ------------------------------------------------------------------------------------------------

    def poll_steering(self) -> Sequence[AgentMessage]:
        """What was said while the agent worked, when it enters the history at the same place."""
        return self._feed("steering") if self._is_steered or not self._is_in_batch else ()

    def poll_follow_up(self) -> Sequence[AgentMessage]:
        return self._feed("follow_up")

    def _feed(self, source: QueueName) -> Sequence[AgentMessage]:
        key = (self._turn_index, source)
        if self._run is None or key in self._fed:
            return ()
        self._fed.add(key)
        following = self._turn_index + 1
        if following < len(self._run.turns):
            return self._run.turns[following].messages(source)
        # Tools made way for what somebody said, and a policy ended the run before it was heard.
        return (UserMessage("not on record"),) if self._is_in_batch and source == "steering" else ()

    def _approving(self, approve: ApproveFn) -> ApproveFn:
        """The agent's own approval, but for a call over which the recorded run was aborted or broke off."""

        def ask(request: ProposedCall) -> Any:
            self._interrupt_if_due()
            if self._is_aborted:
                return asyncio.sleep(_LONGEST_WAIT, False)  # as somebody did who then gave up
            if self._was_aborted_when_asked(request.call_id):
                self._is_aborted = True
                self.agent.abort()
                return Reject(_ABORTED)
            answer: Any = approve(request)
            return self._noting_later(answer, request) if inspect.isawaitable(answer) else self._noting(answer, request)

        return ask

    def _noting(self, answer: Any, request: ProposedCall) -> Any:
        if isinstance(answer, ApproveWith) and answer.note:
            self._notes[request.call_id] = answer.note
        return answer

    async def _noting_later(self, answer: Awaitable[Any], request: ProposedCall) -> Any:
        return self._noting(await answer, request)

    def _was_aborted_when_asked(self, call_id: str) -> bool:
        """Whether the run was aborted at the very moment at which this call was put up for approval."""
        turn, index = self._turn, self._open.get(call_id)
        recorded = None if turn is None or index is None else turn.results.get(index)
        if recorded is None or recorded.outcome is not ToolOutcome.REJECTED:
            return False
        return extract_text(recorded.content).endswith(f": {_ABORTED}")

    def _interrupt_if_due(self, *, may_steer: bool = True) -> None:
        """Steers or aborts when the only calls left are those that had no result because of it."""
        run = self._run
        if run is None or not self._is_in_batch or self._is_steered or self._is_aborted:
            return
        left = set(self._open.values())
        if not left:
            self._is_steered = run.is_steered_early(self._turn_index)
        elif all(run.was_cut_short(self._turn_index, index) for index in left):
            interruption = run.interruption(self._turn_index)
            self._is_steered = interruption == "steering" and may_steer
            if interruption == "abort":
                self._is_aborted = True
                self.agent.abort()

    async def _wait_for_the_end(self, run: RecordedRun, ctx: ToolContext) -> AgentToolResult:
        """What a call does that was cancelled: it waits for that, or cancels itself if nobody did."""
        self._interrupt_if_due()
        if self._is_steered and (messages := self._feed("steering")):
            self.agent.steer(messages)  # no tool has finished, after which it would be polled for
        interruption = run.interruption(self._turn_index)
        if interruption is None:
            raise asyncio.CancelledError
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                # One that listens has a moment to end by itself when the run is aborted, and these had no such moment.
                await (ctx.cancel.wait() if interruption == "steering" else asyncio.Event().wait())
        except TimeoutError:
            return AgentToolResult.error("it was cancelled when it was recorded, and now it is not")
        raise asyncio.CancelledError


class _RecordedTool:
    """A tool in name, schema and manners only: what it gives is on record."""

    def __init__(self, tool: AgentTool, stage: ReplayStage) -> None:
        self._stage = stage
        self.name = tool.name
        self.label = tool.label
        self.description = tool.description
        self.parameters_schema = tool.parameters_schema
        self.requires_approval = tool.requires_approval
        self.on_steer = getattr(tool, "on_steer", "cancel")
        if hasattr(tool, "foresee") or hasattr(tool, "approval_scope"):
            self.foresee = self._foresee

    def __repr__(self) -> str:
        return f"<stand-in for the tool {self.name}>"

    def _foresee(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult | None:
        return self._stage.foreseen(ctx)

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Gives what is on record. The tool that it stands for never runs."""
        return await self._stage.result_of(self.name, arguments, ctx)


class _NoRetry:
    """A failure on record is the one that was left when all attempts had been made."""

    def should_retry(self, error: AgentError, attempt: int, /) -> bool:
        return False

    def delay(self, attempt: int, /) -> float:
        return 0.0


_NAMES = {
    "prompt": "a prompt",
    "steering": "what a person said meanwhile",
    "follow_up": "a follow-up",
    "policy": "what a policy injected",
    "reply": "a reply",
    "result": "a result",
}


def _was_not_started(turn: Turn, index: int) -> bool:
    outcome = turn.results[index].outcome
    return outcome in _NOT_STARTED or (outcome is ToolOutcome.INVALID and index not in turn.started)


def _difference(expected: Expected, actual: AgentMessage) -> str:
    if type(expected.message) is not type(actual):
        return f"recorded is {_NAMES.get(expected.source, 'a message')}, and something else came"
    name = getattr(actual, "tool_name", "")
    return f"another result of the tool {name}" if name else f"{_NAMES.get(expected.source, 'a message')} is another"
