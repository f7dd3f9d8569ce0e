"""Replays a recorded session: an agent with stand-ins for everything outside it.

    the model        sends the recorded replies
    the tools        return the recorded results; the real ones never run
    people           act at the same places: prompts, steering, follow-ups, aborts, answers to calls that waited
    the agent        does all the rest itself: policies, approvals, validation, the loop

Owns `replay`, the stand-ins and when they act. Neither this module nor its package is named `replay`: importing it
would hide the function in `swink_agent.memory`. `log.fold` reads the records;
`divergence` compares messages.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, cast

from swink_agent.core import events, types
from swink_agent.core.agent.agent import Agent
from swink_agent.core.agent.structured import answer_tool_name, is_object_schema
from swink_agent.core.approval import Approve, ApproveFn, ApproveWith, Defer, ProposedCall, Reject
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.encoding.stream_writer import events_of
from swink_agent.core.errors import AgentError, ErrorKind
from swink_agent.core.record import CallRecord
from swink_agent.core.retry import DefaultRetryStrategy
from swink_agent.core.run.inbox import QueueName
from swink_agent.core.run.pending import Answer, Pending, WaitingCall
from swink_agent.core.run.turn import wrapped_tools
from swink_agent.core.stream import AssistantMessageEvent, StreamFailed, StreamFn, StreamOptions
from swink_agent.core.tool import AgentTool, AgentToolResult, ToolContext
from swink_agent.core.values.checks import a_kind
from swink_agent.core.values.value import copy_json

from ..log.fold import Fold
from ..log.runs import AddedMessage, StoredRun, StoredTurn
from .divergence import Compared, Comparison, Divergence, ReplayReport

_LONGEST_WAIT = 5.0  # seconds that a call waits to be cancelled, if it was cancelled in the recording
_REFUSED = frozenset(map(types.ToolOutcome, ("rejected", "skipped", "unknown_tool", "incomplete", "invalid")))
"""Outcomes of calls that end without a start. A tool may also report invalid arguments itself, once it has started."""


class Record(Protocol):
    """One record of a session: its number and its entry."""

    @property
    def number(self) -> int: ...
    @property
    def entry(self) -> Any: ...


class RecordedSession(Protocol):
    """An object that can be replayed: a session, a loaded session, or any other with the entries of a journal."""

    def records(self) -> Iterable[Record]: ...


WrapToolFn: TypeAlias = Callable[[AgentTool], AgentTool]
MakeAgentFn: TypeAlias = Callable[[StreamFn, WrapToolFn], Agent | Awaitable[Agent]]


async def replay(session: RecordedSession, make_agent: MakeAgentFn, *, patience: float = 30.0) -> ReplayReport:
    """Runs a recorded session again, and reports the first difference, if there is one.

    `make_agent(stream_fn, wrap_tool)` returns the agent to test, sync or async. No model is called and no tool runs,
    even if it uses neither argument: the replay replaces both. If nothing happens for `patience` seconds, because a
    policy or an approval waits for a person, that is a divergence too.

    Raises `TypeError` if `make_agent` returns anything but an agent.
    """
    runs, total = _runs_of(session)
    stage = ReplayStage(patience)
    made = make_agent(stage, stage.wrap_tool)
    agent: Any = await made if inspect.isawaitable(made) else made
    if not isinstance(agent, Agent):
        what = "None" if agent is None else a_kind(agent)
        raise TypeError(f"make_agent returned {what}, not an Agent")
    stage.take(cast("Agent", agent))
    try:
        for index, (run, before) in enumerate(runs):
            await stage.play(index, run, before)
            if stage.divergence is not None:
                return ReplayReport(divergence=stage.divergence, messages=stage.reached, total=total, runs=index + 1)
    finally:
        stage.give_back()
    return ReplayReport(messages=total, total=total, runs=len(runs))


def _runs_of(
    session: RecordedSession,
) -> tuple[list[tuple[StoredRun, Sequence[types.AgentMessage] | None]], int]:
    """The runs in order, each with the history to begin with if it was set, and how many messages the history has where
    it is longest."""
    fold = Fold()
    runs: list[tuple[StoredRun, Sequence[types.AgentMessage] | None]] = []
    for record in session.records():
        fold.add(record.number, record.entry)
        for run in fold.runs[len(runs) :]:
            runs.append((run, fold.messages[: run.start] if run.is_set else None))
    ends = [run.start + sum(one.replaces is None for one in run.added) for run in fold.runs]
    return runs, max([fold.count, *ends])


class ReplayStage:
    """Replays one session with one agent, and compares what the agent does."""

    def __init__(self, patience: float) -> None:
        self.divergence: Divergence | None = None
        self.reached = 0
        """How many messages are known to be equal."""
        self._made: Agent | None = None
        self._agent: Agent | None = None
        self._patience = patience
        self._clock: asyncio.Timeout | None = None
        self._length = 0  # how many messages the agent had at its last event
        self._asked_about: str | None = None  # the tool of the call that `approve` is being asked about
        self._run: StoredRun | None = None
        self._run_index = 0
        self._expected: list[AddedMessage] = []
        self._answer_tool: str | None = None  # the tool that takes the value, if the run was asked for one
        self._gives_text = False  # whether the model gave the value as text, with the schema enforced by its provider
        self._begin_turn(-1)
        self._is_asking = False
        self._fed: set[tuple[int, str]] = set()
        self._given: dict[str, Any] = {}
        """The reply and the results of a turn before policies saw them, by call id; the reply's key is empty."""
        self._replaced: set[int] = set()
        self._comparison = Comparison(None)

    # -- the agent ---------------------------------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        assert self._agent is not None
        return self._agent

    def take(self, agent: Agent) -> None:
        """Makes an agent like this one, with stand-ins for everything outside it.

        So a replay does not depend on how `make_agent` was written. The results of retries, fallbacks and transforms
        are on record.
        """
        agent.detach_journal()
        approve = agent.config.approve
        self._made = agent
        self._agent = agent.replaced(
            tools=wrapped_tools(
                agent.given_tools, lambda tool: tool if isinstance(tool, _RecordedTool) else self.wrap_tool(tool)
            ),
            stream_fn=self,
            retry_strategy=DefaultRetryStrategy(max_attempts=1),  # a recorded failure is that of the last attempt
            async_transform_context=None,
            transform_context=None,
            approve=None if approve is None else self._approving(approve),
            message_provider=self,
        )
        self._comparison = Comparison(agent.redactor)
        self._agent.subscribe(self._observe)

    def give_back(self) -> None:
        """Copies history and state to the agent that `take` was given: its owner may read them."""
        if self._made is not None:
            self._made.messages = self.agent.messages
            _set_state(self._made, dict(self.agent.state))

    async def play(self, index: int, run: StoredRun, before: Sequence[types.AgentMessage] | None) -> None:
        """Plays one run, and compares what it added to the history. `before` is the history to begin with; `None` for
        the one that the previous run left."""
        agent = self.agent
        if before is not None:
            agent.messages = before
        if run.state is not None:
            _set_state(self.agent, run.state)
        self._run, self._run_index = run, index
        self._expected = [one for one in run.added if one.replaces is None]
        own = [tool.name for tool in agent.tools]
        self._answer_tool = None if run.record.schema is None else answer_tool_name(own)
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

    async def _go(self, run: StoredRun) -> types.AgentResult | None:
        prompts: Any = [message for _, message in run.prompts]
        answers = self._answers(run)
        if self._answer_tool is not None and (prompts or answers):
            await self._go_for_an_answer(run, answers or prompts, self._answer_tool)
            return None
        if answers:
            return await self.agent.resume(answers)
        return await (self.agent.prompt(prompts) if prompts else self.agent.continue_loop())

    def _answers(self, run: StoredRun) -> dict[str, Answer]:
        turn = run.turns[0] if run.turns else None
        answers: dict[str, Answer] = {}
        if turn is not None and turn.waiting:
            for one, call in zip(turn.waiting, run.record.turns[0].calls, strict=True):
                if turn.is_answered(one.index):
                    # A stand-in replaces the delegate, so any answer to a call inside it will do.
                    inner = AgentToolResult() if one.pending.kind == "delegate" else None
                    answers |= {waiting.call_id: inner or _answer(one, call) for waiting in one.calls()}
        return answers

    async def _go_for_an_answer(self, run: StoredRun, prompts: Any, answer_tool: str) -> None:
        """Asks for a value with a schema that only the accepted calls of the tool fit.

        The recorded schema is not enough: the caller's type may have refused values that the schema allows. If the
        model gave the value as text, `_check_answer` accepts only the last text instead.
        """
        accepted = [
            call.arguments
            for call in run.record.calls
            if call.name == answer_tool and call.result is not None and not call.result.is_error
        ]
        schema: dict[str, Any] = {"type": "object", "enum": accepted} if accepted else {"type": "object", "not": {}}
        self._gives_text = run.record.has_value and not accepted
        if self._gives_text:
            schema = {"type": "object"} if is_object_schema(run.record.schema or {}) else {}
        stop = run.record.stopped_by
        retries = len(run.turns)
        if stop is not None and stop.policy == answer_tool and not accepted:
            replies = [turn.reply for turn in run.turns if turn.reply is not None and not turn.reply.is_failed]
            tried = [not one.tool_calls or any(call.name == answer_tool for call in one.tool_calls) for one in replies]
            retries = sum(tried) - 1
        try:
            await self.agent.structured_output(prompts, schema, max(0, retries), validate=self._check_answer)
        except AgentError:
            pass  # a missing answer or an error is on record too
        finally:
            self._gives_text = False

    def _check_answer(self, value: object) -> None:
        """Refuses all texts but the last: they did not fit when they were recorded."""
        if self._gives_text and self._run is not None and self._turn_index < len(self._run.turns) - 1:
            raise ValueError("it did not fit when it was recorded")

    # -- comparing ---------------------------------------------------------------------------------------------

    def _observe(self, event: events.AgentEvent) -> None:
        if self._clock is not None and not self._clock.expired():
            self._clock.reschedule(asyncio.get_running_loop().time() + self._patience)
            self._length = len(self.agent.messages)
            if isinstance(event, (events.ToolApprovalRequested, events.ToolApprovalResolved)):
                self._asked_about = event.name if isinstance(event, events.ToolApprovalRequested) else None
        if isinstance(event, events.MessageStart):
            self._is_asking = True
        elif isinstance(event, events.MessageEnd):
            self._given = {"": event.message.content}
            self._interrupt_if_due(may_steer=False)
        elif isinstance(event, events.TurnResumed):
            self._begin_turn(0)
            self._given = {"": event.message.content}
        elif isinstance(event, events.ToolCallDeferred):
            index = self._open.get(event.call_id)
            if index is not None and self._calls[index].outcome is types.ToolOutcome.PENDING:
                self._open.pop(event.call_id)
            self._interrupt_if_due()
        elif isinstance(event, events.ToolExecutionEnd):
            self._given[event.call_id] = event.result.content
            self._open.pop(event.call_id, None)
            if not self._open and self._turn is not None and self._turn.state is not None:
                _set_state(self.agent, self._turn.state)
            self._interrupt_if_due()
        elif isinstance(event, events.TurnEnd):
            self._is_in_batch = False
            self._note_replaced(event)

    def _note_replaced(self, event: events.TurnEnd) -> None:
        """Notes the messages that policies replaced in the turn where the recording ends: that is not on record."""
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
        self._open = {} if turn is None else {turn.calls[index].id: index for index in self._calls}
        self._is_in_batch = bool(self._open)
        self._is_steered = self._is_aborted = False

    @property
    def _turn(self) -> StoredTurn | None:
        return self._run.turns[self._turn_index] if self._run is not None and self._turn_index >= 0 else None

    @property
    def _calls(self) -> dict[int, CallRecord]:
        """The recorded calls of this turn, by their indices in the reply."""
        if self._turn is None or self._run is None:
            return {}
        calls = self._run.record.turns[self._turn_index].calls
        if not self._turn.waiting:
            return dict(enumerate(calls))
        pairs = zip(self._turn.waiting, calls, strict=True)
        return {one.index: call for one, call in pairs if self._turn.is_answered(one.index)}

    def _diverge(
        self, position: int, expected: Compared | None = None, actual: Compared | None = None, reason: str = ""
    ) -> None:
        """Notes the first difference, and aborts the agent."""
        if self.divergence is None:
            self.divergence = Divergence(
                position=position, expected=expected, actual=actual, reason=reason, run=self._run_index
            )
        self.agent.abort()

    def _compare(self, until: int | None = None) -> bool:
        """Compares all messages that the run has added so far, or those up to the position `until`."""
        run = self._run
        assert run is not None
        for actual in self.agent.messages[self.reached : until]:
            index = self.reached - run.start
            if index >= len(self._expected):
                if not run.ends_early:
                    self._diverge(self.reached, None, actual, "the agent added more messages than are on record")
                return run.ends_early
            expected = self._expected[index]
            is_known = expected.is_known and id(actual) not in self._replaced
            if _is_correction(run, expected) and isinstance(actual, types.UserMessage):
                is_known = False  # the correction depends on the caller's type, which is not on record
            if is_known and not self._comparison.is_same(expected.message, actual, self._answer_tool):
                self._diverge(self.reached, expected.message, actual, _difference(expected, actual))
                return False
            if not expected.is_known and (gone := self._gone_tool(run, expected)) is not None:
                reason = f"the tool {gone.name} had started when it was recorded, and the agent does not have it now"
                self._diverge(self.reached, gone, actual, reason)
                return False
            self.reached += 1
        return True

    def _gone_tool(self, run: StoredRun, expected: AddedMessage) -> types.ToolCall | None:
        """The call of a lost result, if it had started and the agent no longer has its tool."""
        turn = run.turns[expected.turn]
        if expected.call is None or expected.call not in turn.started:
            return None
        call = turn.calls[expected.call]
        is_there = call.name == self._answer_tool or any(tool.name == call.name for tool in self.agent.tools)
        return None if is_there else call

    def _compare_places(self, run: StoredRun) -> bool:
        """Compares the results that took the places of pending ones."""
        for one in run.added:
            if one.replaces is None or not one.is_known:
                continue
            actual = self.agent.messages[one.replaces]
            if not self._comparison.is_same(one.message, actual, self._answer_tool):
                self._diverge(one.replaces, one.message, actual, _difference(one, actual))
                return False
        return True

    def _compare_rest(self, run: StoredRun, how_it_ended: str) -> None:
        if not self._compare_places(run):
            return
        if self._compare() and self.reached < run.start + len(self._expected):
            expected = self._expected[self.reached - run.start]
            if expected.is_known:
                self._diverge(self.reached, expected.message, None, f"{how_it_ended}, and more was recorded")

    # -- the model ---------------------------------------------------------------------------------------------

    async def __call__(
        self, model: types.ModelSpec, context: types.AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        """Streams the recorded replies, one for each turn."""
        if self._run is None or not self._is_asking:
            text = "this is a replay: only the agent's own replies are on record"
            yield StreamFailed(text, ErrorKind.INVALID_REQUEST)
            return
        self._is_asking = False
        reply = self._next_reply()
        if reply is None:
            yield StreamFailed("the replay ends here", ErrorKind.ABORTED)
            return
        for event in events_of(reply):
            yield event

    def native_schema(self, model: types.ModelSpec, schema: dict[str, Any], has_tools: bool) -> bool:
        """Whether the model gives a value as text, as it did when it was recorded."""
        return self._gives_text

    def _next_reply(self) -> types.AssistantMessage | None:
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
            self._diverge(self.reached, expected.message, None, f"{_NAMES[expected.source]} is missing")
            return None
        self._begin_turn(expected.turn)
        return None if self._turn is None else self._turn.reply

    # -- the tools ---------------------------------------------------------------------------------------------

    def wrap_tool(self, tool: AgentTool) -> AgentTool:
        """A stand-in with this tool's name and schema, which returns the recorded results."""
        return _RecordedTool(tool, self)

    async def result_of(self, name: str, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        """Returns the recorded result, or notes a divergence if the call differs from the recorded one."""
        run, turn, index = self._run, self._turn, self._open.get(ctx.call_id)
        if run is None or turn is None or index is None:
            return AgentToolResult.error("this is a replay, and this call is not on record")
        recorded, call = turn.result(index), self._calls[index]
        now = types.ToolCall(call.id, name, copy_json(arguments))
        position = self._position_of(index)
        is_lost = run.is_lost(self._turn_index, index)
        pending = None if recorded is None else Pending.of(recorded)
        if pending is not None and pending.kind == "delegate":
            raise _StillWaits(pending)
        is_refused = recorded is not None and (recorded.outcome in _REFUSED or pending is not None)
        if not is_lost and recorded is not None and is_refused and not call.is_started:
            self._diverge(position, recorded, now, f"the tool {name} runs now, and did not when it was recorded")
        elif not self._comparison.is_equal(call.arguments, arguments) and (call.is_started or not is_lost):
            then = types.ToolCall(call.id, name, call.arguments)
            self._diverge(position, then, now, f"the tool {name} is run with other arguments")
        elif is_lost or recorded is None or recorded.outcome is types.ToolOutcome.CANCELLED:
            return await self._wait_for_the_end(index, ctx)
        else:
            ctx.has_invalid_arguments = recorded.outcome is types.ToolOutcome.INVALID
            content = recorded.content[:-1] if call.note else recorded.content  # the agent's own approval adds it again
            return AgentToolResult(content, recorded.details, recorded.is_error)
        return AgentToolResult.error("the replay ends here")

    def foreseen(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult | None:
        """The recorded refusal of a call that its tool refused before the approval."""
        turn, index = self._turn, self._open.get(ctx.call_id)
        recorded = None if turn is None or index is None else turn.result(index)
        if index is None or recorded is None or recorded.outcome is not types.ToolOutcome.FAILED:
            return None
        if self._calls[index].is_started:
            return None
        return AgentToolResult(recorded.content, recorded.details, recorded.is_error)

    def _position_of(self, call: int) -> int:
        start = 0 if self._run is None else self._run.start
        for index in range(self.reached - start, len(self._expected)):
            if (self._expected[index].turn, self._expected[index].call) == (self._turn_index, call):
                return start + index
        return self.reached

    # -- people ------------------------------------------------------------------------------------------------

    def poll_steering(self) -> Sequence[types.AgentMessage]:
        """The recorded steering messages, when they can enter the history at the same place."""
        return self._feed("steering") if self._is_steered or not self._is_in_batch else ()

    def poll_follow_up(self) -> Sequence[types.AgentMessage]:
        return self._feed("follow_up")

    def _feed(self, source: QueueName) -> Sequence[types.AgentMessage]:
        key = (self._turn_index, source)
        if self._run is None or key in self._fed:
            return ()
        self._fed.add(key)
        following = self._turn_index + 1
        if following < len(self._run.turns):
            return self._run.turns[following].messages(source)
        # Steering cancelled the tools, and a policy ended the run before the message was recorded.
        return (types.UserMessage("not on record"),) if self._is_in_batch and source == "steering" else ()

    def _approving(self, approve: ApproveFn) -> ApproveFn:
        """The agent's own approval, except for a call whose question was aborted in the recording."""

        def ask(request: ProposedCall) -> Any:
            self._interrupt_if_due()
            if self._is_aborted:
                return asyncio.sleep(_LONGEST_WAIT, False)  # the recorded question was never answered
            if (words := self._aborted_when_asked(request.call_id)) is not None:
                self._is_aborted = True
                self.agent.abort()
                return Reject(words)
            index = self._open.get(request.call_id)
            if index is not None and self._calls[index].outcome is types.ToolOutcome.PENDING:
                return Defer(self._calls[index].reason)  # the answer came in another run
            self.give_back()  # the callback may read the history
            return approve(request)

        return ask

    def _aborted_when_asked(self, call_id: str) -> str | None:
        """The reason of a rejected call, if the run was aborted during its approval."""
        run, index = self._run, self._open.get(call_id)
        if run is None or index is None or self._calls[index].outcome is not types.ToolOutcome.REJECTED:
            return None
        reason = self._calls[index].reason
        return reason if reason == "aborted" and run.ends_early else None

    def _interrupt_if_due(self, *, may_steer: bool = True) -> None:
        """Steers or aborts once the only open calls are those that were interrupted in the recording."""
        run = self._run
        if run is None or not self._is_in_batch or self._is_steered or self._is_aborted:
            return
        left = set(self._open.values())
        if not left:
            self._is_steered = self._is_steered_early(run)
            return
        reasons = {self._why_cut_short(call) for call in left}
        if None in reasons:
            return
        self._is_steered = "aborted" not in reasons and may_steer
        if "aborted" in reasons:
            self._is_aborted = True
            self.agent.abort()

    def _is_steered_early(self, run: StoredRun) -> bool:
        """Whether the steering message before the next reply came while tools ran: before a policy's message."""
        if self._turn_index + 1 == len(run.turns):
            return False
        sources = [source for _, source, _ in run.turns[self._turn_index + 1].injected]
        return "steering" in sources and "policy" in sources[sources.index("steering") :]

    def _why_cut_short(self, index: int) -> str | None:
        """Why a call of this turn was interrupted: `steering` or `aborted`. `None` if it was not, or the tool cancelled
        itself."""
        run = self._run
        assert run is not None
        if run.is_lost(self._turn_index, index):
            return "aborted"
        call = self._calls[index]
        if call.outcome is not types.ToolOutcome.CANCELLED:
            return None
        reason = call.reason
        following = run.turns[self._turn_index + 1 : self._turn_index + 2]
        if reason == "steering" and following and not following[0].messages("steering"):
            return None  # the message was lost by damage to the file, and nothing else would end the call
        return reason if reason in ("steering", "aborted") else None

    async def _wait_for_the_end(self, index: int, ctx: ToolContext) -> AgentToolResult:
        """Waits until a call is cancelled as in the recording, or cancels it if the tool did that itself."""
        self._interrupt_if_due()
        if self._is_steered and (messages := self._feed("steering")):
            self.agent.steer(messages)  # it is polled only after a tool has finished
        reason = self._why_cut_short(index)
        if reason is None:
            raise asyncio.CancelledError
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                # On an abort, a tool that watches `ctx.cancel` gets time to end by itself. These calls did not.
                await (ctx.cancel.wait() if reason == "steering" else asyncio.Event().wait())
        except TimeoutError:
            return AgentToolResult.error("it was cancelled when it was recorded, and now it is not")
        raise asyncio.CancelledError


class _RecordedTool:
    """Stands in for a tool: same name, schema and options, but it returns recorded results."""

    def __init__(self, tool: AgentTool, stage: ReplayStage) -> None:
        self._stage = stage
        self.name = tool.name
        self.label = tool.label
        self.description = tool.description
        self.parameters_schema = tool.parameters_schema
        self.requires_approval = tool.requires_approval
        self.on_steer = getattr(tool, "on_steer", "cancel")
        self.external = bool(getattr(tool, "external", False))
        self.is_delegate = getattr(tool, "is_delegate", False) is True
        if hasattr(tool, "foresee") or hasattr(tool, "approval_scope"):
            self.foresee = stage.foreseen

    def __repr__(self) -> str:
        return f"<stand-in for the tool {self.name}>"

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Returns the recorded result. The real tool never runs."""
        return await self._stage.result_of(self.name, arguments, ctx)


class _StillWaits(Exception):
    """A call inside the delegate waited when it was recorded, so the call of the delegate waits."""

    def __init__(self, pending: Pending) -> None:
        super().__init__("a call of the delegate waits")
        self.waits_for = pending


def _set_state(agent: Agent, state: dict[str, Any]) -> None:
    agent.state.clear()
    agent.state.update(copy_json(state))


def _answer(one: WaitingCall, call: CallRecord) -> Answer:
    """The answer that led to the recorded result of a call that waited."""
    if call.approval == "rejected" or (call.approval is None and call.outcome is types.ToolOutcome.REJECTED):
        return Reject(call.reason)
    is_given = not call.is_started and call.outcome in (types.ToolOutcome.RAN, types.ToolOutcome.FAILED)
    if call.result is not None and (is_given or one.pending.kind == "external"):
        return call.result
    if call.arguments != one.pending.arguments:
        return ApproveWith(call.arguments, call.note)
    return Approve()


_NAMES = {
    "prompt": "a prompt",
    "steering": "a steering message",
    "follow_up": "a follow-up",
    "policy": "a policy's message",
    "reply": "a reply",
    "result": "a result",
}


def _is_correction(run: StoredRun, expected: AddedMessage) -> bool:
    """Whether the message corrects an answer in text: it is the last policy message after that answer."""
    if run.record.kind != "structured" or expected.source != "policy" or expected.turn < 1:
        return False
    reply = run.turns[expected.turn - 1].reply
    of_policies = [number for number, source, _ in run.turns[expected.turn].injected if source == "policy"]
    return reply is not None and not reply.tool_calls and expected.number == of_policies[-1]


def _difference(expected: AddedMessage, actual: types.AgentMessage) -> str:
    if type(expected.message) is not type(actual):
        return f"the recording has {_NAMES[expected.source]}, and something else came"
    name = getattr(actual, "tool_name", "")
    return f"another result of the tool {name}" if name else f"{_NAMES[expected.source]} differs"
