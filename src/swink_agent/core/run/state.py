"""The state of one run, and the operations on it that all parts of the loop share.

    RunSetup      what the run is started with: configuration, tools, instructions, dependencies
    Inbox         the messages that reach it while it goes on (`inbox`)
    Accounts      what it and its delegates have used
    Resumption    the calls that waited when it began, if any did

A run takes its history from a `Transcript`, its state from the configuration, and its messages from the inbox, so the
same run works for an agent, a delegate, or no agent at all. Nothing here outlives the run. Its course is in `loop`,
`reply` and `dispatch`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..agent.structured import StructuredOutput
from ..cancel import CancellationToken
from ..config import AgentLoopConfig
from ..context.context import json_size, most_tokens
from ..errors import AgentError, PolicyFailed
from ..events import AgentEvent, MessagesInjected, UsageAdded, UsageSource
from ..output import Channel, taken, unheard
from ..policy import PolicyContext
from ..record import CallRecord
from ..secrets.masking import masked
from ..secrets.masks import PolicyMasks
from ..secrets.redaction import Redactor
from ..stream import MessageAssembler
from ..tool import AgentTool, AgentToolResult, Toolbox, ToolContext
from ..types import AgentMessage, AgentResult, AssistantMessage, Cost, PolicyStop, ToolResultMessage, Usage
from ..values.value import copy_json
from ..waits import Supervisor, WorkerThreads
from .announcing import Announcer
from .inbox import Inbox
from .observer import RunObserver, has_own_for_each_run, observer_of, tell_event
from .pending import Answer
from .transcript import Transcript
from .turn import SystemPrompt, TurnTools

EmitFn: TypeAlias = Callable[[AgentEvent], None]

_UNSEEN_TOKENS = 1024  # tokens that a provider may add to a request, such as its instructions for the use of tools

RunningCall: TypeAlias = tuple[str, str]
"""The ids of a run and of one of its calls."""


class RunSetup(Struct, frozen=True):
    """What a run is started with. Nothing of it changes while the run goes on."""

    config: AgentLoopConfig
    tools: Toolbox | TurnTools
    system_prompt: SystemPrompt
    deps: Any = None
    """The application's object for tools and policies."""
    delegates: tuple[str, ...] = ()
    """The names of the tools that lead to this run, the outermost first; empty if it is not a delegate's."""
    request: StructuredOutput | None = None
    """The value that the run must return, if its caller wants one."""


class Resumption(Struct):
    """The calls that waited when a run began: what the run brings for them, and where their results are."""

    answers: dict[str, Answer] | None = None
    """The answers to these calls, until the run acts on them; `None` if it brings none."""
    delegate_answers: dict[str, tuple[tuple[AgentMessage, ...], dict[str, Answer], dict[str, Any]]] = {}
    """For calls whose delegates have waiting calls: the delegate's messages, the answers for it, and its state."""
    replaced_positions: tuple[int, ...] = ()
    """The positions of the results that replaced pending ones."""


class Accounts:
    """What one run has used, and what its delegates have, including those that still run. Readable from any thread.

    `delegated_usage` and `delegated_cost` are those of batches that have ended, added in call order, so that events and
    sessions give the same sums.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.usage = Usage()
        self.cost = Cost()
        self.delegated_usage = Usage()
        self.delegated_cost = Cost()
        self.live: dict[ToolContext, Accounts] = {}
        """The accounts of the delegates that are running, by the calls that run them."""
        self._ended: dict[ToolContext, tuple[Usage, Cost]] = {}  # delegates that have ended, in the batch that has not

    def count(self, usage: Usage, cost: Cost) -> None:
        """Adds the usage and cost of a request."""
        self.usage += usage
        self.cost += cost

    def begin(self, ctx: ToolContext, accounts: Accounts) -> None:
        with self._lock:
            self.live[ctx] = accounts

    def end(self, ctx: ToolContext) -> None:
        with self._lock:
            self._ended[ctx] = self.live.pop(ctx).spent

    def spent_by(self, ctx: ToolContext) -> tuple[Usage, Cost] | None:
        """Returns what the call's delegate has used; `None` if it ran none, or one that used nothing."""
        spent = self._ended.get(ctx)
        return None if spent is None or spent == (Usage(), Cost()) else spent

    def settle(self, spent: Iterable[tuple[Usage, Cost] | None]) -> None:
        """Ends a batch: adds what its calls have used, in their order."""
        with self._lock:
            for usage, cost in filter(None, spent):
                self.delegated_usage += usage
                self.delegated_cost += cost
            self._ended.clear()

    @property
    def spent(self) -> tuple[Usage, Cost]:
        """Usage and cost so far, those of delegates included."""
        with self._lock:
            usage, cost = self.usage + self.delegated_usage, self.cost + self.delegated_cost
            for more in [*self._ended.values(), *[accounts.spent for accounts in self.live.values()]]:
                usage, cost = usage + more[0], cost + more[1]
        return usage, cost


class Slots:
    """The running calls of tools with `max_concurrent`. A run and all its delegates share one object."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[AgentTool, list[RunningCall]]] = {}
        """Keyed by the `id()` of the tool, which the entry keeps alive."""
        self._waiters: list[Callable[[], bool]] = []

    def has_room(self, tool: AgentTool, most: int, callers: Collection[RunningCall]) -> bool:
        """Whether one more call may run. The calls that lead to it, through delegates, do not count: they wait for it,
        so counting them would block both."""
        running = self._running.get(id(tool))
        return running is None or sum(call not in callers for call in running[1]) < most

    def enter(self, tool: AgentTool, call: RunningCall) -> None:
        self._running.setdefault(id(tool), (tool, []))[1].append(call)

    def leave(self, tool: AgentTool, call: RunningCall) -> None:
        """Frees the slot, and calls the waiters."""
        self._running[id(tool)][1].remove(call)
        self._waiters = [wake for wake in self._waiters if wake()]

    def tell(self, wake: Callable[[], bool]) -> None:
        """Calls `wake` whenever a slot becomes free, until it returns false because no call waits. The waiter that was
        added first is called first, and may take the slot at once."""
        if wake not in self._waiters:
            self._waiters.append(wake)


class Run:
    """One invocation of the loop, from `AgentStart` to `AgentEnd`."""

    def __init__(
        self,
        setup: RunSetup,
        transcript: Transcript,
        cancel: CancellationToken,
        emit: EmitFn,
        loop: RunLoopFn,
        *,
        channel: Channel | None = None,
        answers: dict[str, Answer] | None = None,
        observers: tuple[RunObserver, ...] = (),
        announcing: Callable[[], Announcer] | None = None,
        caller: tuple[Run, str] | None = None,
        is_apart: bool = False,
    ) -> None:
        """`caller` is the run of which this is a delegate's, and the id of the call. The events of a run that is apart
        reach no subscribers, so all observers get them from the run itself."""
        self.config = config = setup.config
        self.request = setup.request
        self.id = os.urandom(12).hex()  # the id that policies, tools and records see
        self.setup = setup
        self.transcript = transcript
        self.start = len(transcript)
        self.cancel = cancel
        self.loop = loop
        """The loop that runs it. Transforms make requests with it, and their modules cannot import the loop."""
        self.channel = channel
        self.agent_observers = observers
        """The observers of the agent, which delegates share."""
        self.observers: tuple[RunObserver, ...] = ()
        """They see the requests and tool calls of this run."""
        self.announcing = announcing
        """Returns the announcer for work that outlives its call. Delegates share that of their caller."""
        self.supervisor = Supervisor(cancel)
        if channel is not None:
            channel.on_demand = self.supervisor.wake
        self.inbox = Inbox(config.message_provider, self.supervisor)
        self.accounts = Accounts()
        self.resumption = None if answers is None else Resumption(answers)
        self.state: MutableMapping[str, Any] = {} if config.state is None else config.state
        self.callers: tuple[RunningCall, ...] = ()
        """The calls that started this run, from the outermost in. Empty if no delegate runs it."""
        self._redactor = config.redactor
        self.masks = PolicyMasks(config.masks) if config.masks else None
        """What masks the text that enters the run; `None` if no policy does."""
        self._threads: WorkerThreads | None = None
        self._slots: Slots | None = None
        if caller is not None:
            run, call_id = caller
            self.agent_observers, self.announcing, self._slots = run.agent_observers, run.announcing, run.slots
            self.callers = (*run.callers, (run.id, call_id))
        self.emit = self._observed(emit, None if caller is None else caller[0].id, is_apart)

        self.turn_index = 0
        self.instructions = ""
        """The system prompt of this turn, computed once in it."""
        self.take_tools(setup.tools if isinstance(setup.tools, Toolbox) else Toolbox())
        self.model = config.model  # the model that is being asked: the primary or a fallback
        self.assembler: MessageAssembler | None = None  # the reply that is being streamed, if one is
        self.has_recovered = False  # whether this turn has already recovered from an overflow
        self.executing: dict[str, None] = {}  # the ids of the calls that run
        self.records_of_calls: Callable[[], tuple[CallRecord, ...]] | None = None
        """Returns what is known of this turn's calls, until its end."""

        self.is_waiting = answers is not None  # whether calls wait for an answer, so that the run must end
        self.stopped_by: PolicyStop | None = None
        self.error: AgentError | None = None
        self.refusal: AgentError | None = None  # why the journal refused an entry: the model is not asked again

    def _observed(self, emit: EmitFn, parent: str | None, is_apart: bool) -> EmitFn:
        """Asks for the observers of this run. Returns the function that emits its events, also to those observers that
        do not get them as subscribers."""
        seeing: list[RunObserver] = []
        told: list[RunObserver] = []
        for observer in self.agent_observers:
            mine = observer_of(observer, self.id, parent)
            if mine is None:
                continue
            seeing.append(mine)
            if is_apart or has_own_for_each_run(observer):
                told.append(mine)
        self.observers = tuple(seeing)
        if not told:
            return emit

        def observed(event: AgentEvent) -> None:
            tell_event(told, event)
            emit(event)

        return observed

    # -- what it was started with --------------------------------------------------------------------------------

    @property
    def deps(self) -> Any:
        return self.setup.deps

    def take_tools(self, toolbox: Toolbox) -> None:
        """Makes these the tools of the run. Adds the tool that takes the value if the run must return one."""
        self.toolbox = toolbox if self.request is None else self.request.beside(toolbox)

    def is_ours(self, name: str) -> bool:
        """Whether this is the library's own tool, which takes the value and needs no approval."""
        return self.request is not None and name == self.request.name

    def close(self) -> None:
        """Ends the run's use of everything that it shares. The application's dependencies are not kept."""
        self.setup = replace(self.setup, deps=None)
        self.inbox.close()
        if self._threads is not None:
            self._threads.close()
        if self.channel is not None:
            self.channel.on_demand = unheard
        self.supervisor.close()

    # -- how far it is -------------------------------------------------------------------------------------------

    @property
    def is_interrupted(self) -> bool:
        return self.supervisor.is_interrupted

    @property
    def is_ending(self) -> bool:
        """Whether no further turn may begin: because of a stop, an error, an abort, or calls that wait."""
        return self.stopped_by is not None or self.error is not None or self.is_interrupted or self.is_waiting

    @property
    def answers(self) -> dict[str, Answer] | None:
        """The answers that the run brings for waiting calls, until it acts on them."""
        return None if self.resumption is None else self.resumption.answers

    def inject(self) -> None:
        """Adds the messages of the inbox to the history, with one event for consecutive messages from one source."""
        for source, messages in self.inbox.empty():
            if self.masks is not None:
                messages = self.entered_messages(messages)
                if self.error is not None:
                    return
            self.transcript.add(messages, source)
            self.emit(MessagesInjected(tuple(messages), source))

    async def make_durable(self, *, after_abort: bool = False) -> None:
        """Waits until everything recorded so far is durable. Raises the journal's error."""
        recorder = self.transcript.recorder
        if recorder is not None:
            recorder.state_is(self.state)
            if not recorder.is_durable:
                await self.supervisor.call(recorder.durable, after_abort=after_abort)

    async def let_reader_catch_up(self) -> None:
        """Waits until the reader has handled all events, so that it can still intervene."""
        if self.channel is not None:
            await self.supervisor.until(self.channel.is_caught_up)

    # -- what it has used ----------------------------------------------------------------------------------------

    @property
    def usage(self) -> Usage:
        return self.accounts.usage

    @property
    def cost(self) -> Cost:
        return self.accounts.cost

    def tell_usage(self, usage: Usage, cost: Cost, source: UsageSource) -> None:
        """Reports usage that the run has counted and no other event contains."""
        if usage != Usage() or cost != Cost():
            self.emit(UsageAdded(usage, cost, source))

    # -- what policies and tools see -----------------------------------------------------------------------------

    @property
    def messages(self) -> Sequence[AgentMessage]:
        """The history as it is now."""
        return self.transcript.history

    def policy_context(
        self,
        message: AssistantMessage | None = None,
        tool_results: tuple[ToolResultMessage, ...] = (),
        request_tokens: int = 0,
    ) -> PolicyContext:
        return PolicyContext(
            turn_index=self.turn_index,
            messages=self.transcript.history,
            usage=self.accounts.usage,
            cost=self.accounts.cost,
            state=copy_json(dict(self.state)) if self.state else {},
            message=message,
            tool_results=tool_results,
            model=self.model,
            max_tokens=self.config.stream_options.max_tokens,
            request_tokens=request_tokens,
            run_id=self.id,
            redactor_fn=self.own_redactor,
            deps=self.deps,
            calls_fn=self.records_of_calls,
        )

    def own_redactor(self) -> Redactor:
        return self.redactor

    def most_request_tokens(self) -> int:
        """The most tokens that the next request can have, for policies that reserve tokens before it is sent.

        The usage of the same model's last reply is exact up to there; in later messages, a token is at least a byte.
        """
        tokens = 0
        for message in reversed(self.transcript.context):
            if isinstance(message, AssistantMessage) and message.usage.total and not message.is_failed:
                is_same_model = (message.provider, message.model_id) == (self.model.provider, self.model.model_id)
                if is_same_model:
                    return tokens + message.usage.total
            tokens += most_tokens(message)
        tools = sum(
            len(tool.name) + len(tool.description) + json_size(tool.parameters_schema) for tool in self.toolbox.tools
        )
        return tokens + len(self.instructions.encode("utf-8", "surrogatepass")) + tools + _UNSEEN_TOKENS

    @property
    def redactor(self) -> Redactor:
        """The configured redactor, else one that knows the secrets of the environment."""
        if self._redactor is None:
            self._redactor = self.transcript.own_redactor()
        return self._redactor

    # -- what enters it ------------------------------------------------------------------------------------------

    def entered(self, text: str) -> str:
        """Returns an error, a reason or a note as the run keeps it: without what masks and redactor hide. Empty if a
        mask fails, which ends the run."""
        if self.masks is None:
            return self.redactor.redact(text)
        try:
            return self.redactor.redact(self.masks.redact(text))
        except PolicyFailed as failed:
            self._fail(failed)
            return ""

    def entered_error(self, error: AgentError) -> str:
        """Returns the text of an error that ends the run. That of a failed mask holds nothing to mask."""
        is_of_mask = self.masks is not None and error is self.masks.failure
        return str(error) if is_of_mask else self.entered(str(error))

    def entered_result(self, result: AgentToolResult) -> AgentToolResult:
        """Returns a tool's result as the run keeps it. Empty, and an error, if a mask fails, which ends the run."""
        try:
            return taken(self.redactor, result, self.masks)
        except PolicyFailed as failed:
            self._fail(failed)
            return AgentToolResult((), None, True)

    def entered_text(self, feed: Callable[[], str]) -> str:
        """Returns a part of a tool's text, masked. Empty if a mask fails, which ends the run."""
        try:
            return feed()
        except PolicyFailed as failed:
            self._fail(failed)
            return ""

    def entered_messages(self, messages: Sequence[AgentMessage]) -> list[AgentMessage]:
        """Returns prompts and injected messages as the run keeps them. None if a mask fails, which ends the run."""
        masks = self._prompt_masks
        if masks is None:
            return list(messages)
        try:
            return [masked(message, masks) for message in messages]
        except PolicyFailed as failed:
            self._fail(failed)
            return []

    @cached_property
    def _prompt_masks(self) -> PolicyMasks | None:
        masking = [policy for policy in self.config.masks if getattr(policy, "masks_prompts", False)]
        return PolicyMasks(masking) if masking else None

    def _fail(self, failed: PolicyFailed) -> None:
        if self.masks is not None:
            self.masks.failure = failed
        self.error = self.error or failed

    @property
    def threads(self) -> WorkerThreads:
        """The threads of the run's tools, made on first use."""
        if self._threads is None:
            self._threads = WorkerThreads()
        return self._threads

    @property
    def slots(self) -> Slots:
        """The running calls of tools with `max_concurrent`. Delegates share those of their caller."""
        if self._slots is None:
            self._slots = Slots()
        return self._slots


RunLoopFn: TypeAlias = Callable[[Run, tuple[AgentMessage, ...] | None], Awaitable[AgentResult]]
