"""The state of one run, and the operations on it that all parts of the loop share.

Also what a run shares with its delegates: their usage, and the limits of concurrent calls. Nothing here outlives the
run; the transcript belongs to the caller. The course of a run is in `loop`, `reply` and `dispatch`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from typing import Any, TypeAlias

from ..agent.options import SystemPrompt
from ..agent.queues import MessageQueues, QueueName
from ..agent.structured import StructuredOutput
from ..cancel import CancellationToken
from ..config import AgentLoopConfig
from ..context.context import json_size, most_tokens
from ..errors import AgentError
from ..events import AgentEvent, InjectionSource, MessagesInjected
from ..output import Channel, unheard
from ..policy import PolicyContext
from ..record import CallRecord
from ..secrets.redaction import Redactor
from ..stream import MessageAssembler
from ..tool import AgentTool, Toolbox, ToolContext
from ..types import AgentMessage, AgentResult, AssistantMessage, Cost, PolicyStop, ToolResultMessage, Usage, as_messages
from ..values.value import copy_json
from ..waits import Supervisor, WorkerThreads
from .announcing import Announcer
from .consulting import tell_run_over
from .observer import RunObserver
from .pending import Answer
from .transcript import Transcript
from .turn import TurnTools

EmitFn: TypeAlias = Callable[[AgentEvent], None]

_UNSEEN_TOKENS = 1024  # tokens that a provider may add to a request, such as its instructions for the use of tools

_NO_USAGE, _NO_COST = Usage(), Cost()
_NO_TOOLS: frozenset[str] = frozenset()

log = logging.getLogger("swink_agent")


RunningCall: TypeAlias = tuple[str, str]
"""The ids of a run and of one of its calls."""


class Slots:
    """The running calls of tools with `max_concurrent`. A run and all its delegates share one object."""

    __slots__ = ("_running", "_waiters")

    def __init__(self) -> None:
        self._running: dict[int, tuple[AgentTool, list[RunningCall]]] = {}
        """Keyed by the `id()` of the tool, which the entry keeps alive."""
        self._waiters: list[Callable[[], bool]] = []

    def has_room(self, tool: AgentTool, most: int, way: Collection[RunningCall]) -> bool:
        """Whether one more call may run. The calls on the `way` to it, through delegates, do not count: they wait for
        it, so counting them would block both."""
        running = self._running.get(id(tool))
        return running is None or sum(call not in way for call in running[1]) < most

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


class Delegations:
    """The usage of the delegates of one run, including those that still run.

    Readable from any thread. `usage` and `cost` are those of batches that have ended, added in call order, so that
    events and sessions give the same sums.
    """

    __slots__ = ("_lock", "_open", "cost", "live", "usage")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.usage = Usage()
        self.cost = Cost()
        self.live: dict[ToolContext, Run] = {}
        """The runs of the delegates that are running, by the calls that run them."""
        self._open: dict[ToolContext, tuple[Usage, Cost]] = {}  # delegates that have ended, in the batch that has not

    def begin(self, ctx: ToolContext, run: Run) -> None:
        with self._lock:
            self.live[ctx] = run

    def end(self, ctx: ToolContext) -> None:
        with self._lock:
            self._open[ctx] = self.live.pop(ctx).spent

    def spent_by(self, ctx: ToolContext) -> tuple[Usage, Cost] | None:
        """Returns what the call's delegate has used; `None` if it ran none, or one that used nothing."""
        spent = self._open.get(ctx)
        return None if spent is None or spent == (Usage(), Cost()) else spent

    def settle(self, spent: Sequence[tuple[Usage, Cost] | None]) -> None:
        """Ends a batch: adds what its calls have used, in their order."""
        with self._lock:
            for usage, cost in filter(None, spent):
                self.usage += usage
                self.cost += cost
            self._open.clear()

    @property
    def spent(self) -> tuple[Usage, Cost]:
        """The usage and cost of all delegates so far."""
        with self._lock:
            usage, cost = self.usage, self.cost
            for more in [*self._open.values(), *[run.spent for run in self.live.values()]]:
                usage, cost = usage + more[0], cost + more[1]
        return usage, cost


class Run:
    """One invocation of the loop, from `AgentStart` to `AgentEnd`."""

    def __init__(
        self,
        config: AgentLoopConfig,
        transcript: Transcript,
        toolbox: Toolbox | TurnTools,
        system_prompt: SystemPrompt,
        cancel: CancellationToken,
        emit: EmitFn,
        loop: RunLoopFn,
        channel: Channel | None = None,
        request: StructuredOutput | None = None,
        deps: Any = None,
        delegates: tuple[str, ...] = (),
    ) -> None:
        self.config = config
        self.model = config.model  # the model that is being asked: the primary or a fallback
        self.transcript = transcript
        self.deps = deps  # the application's object for tools and policies, until the end of the run
        self.turn_tools = None if isinstance(toolbox, Toolbox) else toolbox
        """The function that returns the tools of each turn, if there is one."""
        self.system_prompt = system_prompt
        self.instructions = system_prompt if isinstance(system_prompt, str) else ""
        """The system prompt of this turn, computed once in it."""
        self.request = request  # the value that the run must return, for `structured_output`
        self.delegates = delegates
        """The names of the tools that lead to this run, the outermost first; empty if it is not a delegate's."""
        self.delegations: Delegations | None = None  # the usage of the delegates of this run, if it has had any
        self.observers: tuple[RunObserver, ...] = ()  # they see requests and tool calls in addition to the events
        self.unasked_tools = _NO_TOOLS  # the library's own tools, which need no approval
        self.take_tools(toolbox if isinstance(toolbox, Toolbox) else Toolbox())
        self.cancel = cancel
        self.emit = emit
        self.announcing: Callable[[], Announcer] | None = None
        """Returns the announcer for work that outlives its call. Delegates share that of their caller."""
        self.loop = loop
        """The loop that runs it. Transforms make requests with it, and their modules cannot import the loop."""
        self.channel = channel
        self.start = len(transcript)
        self.id = os.urandom(12).hex()  # the id that policies, tools and records see
        self.supervisor = Supervisor(cancel, is_watched=channel is not None)
        if channel is not None:
            channel.on_demand = self.supervisor.wake
        provider = config.message_provider
        self._queues = provider if type(provider) is MessageQueues else None
        if self._queues is not None:
            self._queues.woken = self.supervisor
        self.steering: Collection[AgentMessage] = () if self._queues is None else self._queues.steering
        """The queued steering messages: most turns only check that it is empty."""
        self.has_to_poll = provider is not None and (self._queues is None or self._queues.provider is not None)
        """Whether the application has its own message provider, which must be polled."""
        self._threads: WorkerThreads | None = None
        self._slots: Slots | None = None
        self.way: tuple[RunningCall, ...] = ()
        """The calls that lead to this run, if it is a delegate's, outermost first."""
        self.answers: dict[str, Answer] | None = None  # the answers to calls that wait, if the run brings any
        self.inside: dict[str, tuple[tuple[AgentMessage, ...], dict[str, Answer], dict[str, Any]]] | None = None
        """For calls whose delegates have waiting calls: the delegate's messages, the answers for it, and its state."""
        self.places: tuple[int, ...] = ()  # the positions of the results that replaced pending ones
        self.is_waiting = False  # whether calls wait for an answer, so that the run must end
        self.state: MutableMapping[str, Any] = {} if config.state is None else config.state
        self.pending: list[tuple[InjectionSource, AgentMessage]] = []  # messages that lead the next turn
        self.executing: dict[str, None] = {}  # the ids of the calls that run
        self.records_of_calls: Callable[[], tuple[CallRecord, ...]] | None = None
        """Returns what is known of this turn's calls, until its end."""
        self.assembler: MessageAssembler | None = None  # the reply that is being streamed, if one is
        self.turn_index = 0
        self.transforms = config.transform_context is not None or config.async_transform_context is not None
        policies = config.pre_turn_policies
        self.has_reserving_policies = bool(policies) and any(getattr(one, "every_call", False) for one in policies)
        """Whether a policy needs the most tokens that a request can have."""
        self.has_recovered = False  # whether this turn has already recovered from an overflow
        self.usage = _NO_USAGE
        self.cost = _NO_COST
        self.stopped_by: PolicyStop | None = None
        self.error: AgentError | None = None
        self.refusal: AgentError | None = None  # why the journal refused an entry: the model is not asked again
        self._redactor = config.redactor

    @property
    def is_interrupted(self) -> bool:
        return self.supervisor.is_interrupted

    def take_tools(self, toolbox: Toolbox) -> None:
        """Makes these the tools of the run. Adds the tool that takes the value if the run must return one."""
        if self.request is not None:
            toolbox = self.request.beside(toolbox)
            self.unasked_tools = frozenset({self.request.name})
        self.toolbox = toolbox

    @property
    def messages(self) -> Sequence[AgentMessage]:
        """The history as it is now."""
        return self.transcript.history

    def close(self) -> None:
        self.deps = None
        if self._threads is not None:
            self._threads.close()
        if self._queues is not None:
            self._queues.woken = None
        tell_run_over(self.config, self.id)
        if self.channel is not None:
            self.channel.on_demand = unheard
        self.supervisor.close()

    # -- messages that arrive during the run ---------------------------------------------------------------------

    def queue(self, source: InjectionSource, messages: Sequence[AgentMessage]) -> None:
        if messages:
            self.pending.extend([(source, message) for message in messages])

    def inject(self) -> None:
        """Adds the pending messages to the history, with one event for consecutive messages from one source."""
        if not self.pending:
            return
        pending, self.pending = self.pending, []
        while pending:
            source = pending[0][0]
            messages: list[AgentMessage] = []
            while pending and pending[0][0] == source:
                messages.append(pending.pop(0)[1])
            self.transcript.add(messages, source)
            self.emit(MessagesInjected(tuple(messages), source))

    async def poll(self, source: QueueName) -> bool:
        """Polls for messages; returns whether there were any. A provider that fails is logged and ignored."""
        if not self.has_to_poll:
            messages = () if self._queues is None else self._queues.take(source)
            self.queue(source, messages)
            return bool(messages)
        provider = self.config.message_provider
        if provider is None:
            return False
        try:
            poll = provider.poll_steering if source == "steering" else provider.poll_follow_up
            messages = as_messages(await self.supervisor.ask(poll) or ())
        except Exception:
            log.exception("the message provider failed to give %s messages and is ignored", source)
            return False
        self.queue(source, messages)
        return bool(messages)

    def put_back(self) -> None:
        """Gives polled messages that never entered the context back to their provider."""
        put_back = getattr(self.config.message_provider, "put_back", None)
        for source in ("steering", "follow_up"):
            messages = [message for origin, message in self.pending if origin == source]
            if messages and put_back is not None:
                try:
                    put_back(source, messages)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException:
                    log.exception("the message provider did not take %d %s messages back", len(messages), source)
            elif messages:
                log.warning("%d %s messages were polled but not used, and cannot be put back", len(messages), source)
        self.pending.clear()

    # -- what others see ------------------------------------------------------------------------------------------

    def policy_context(
        self,
        message: AssistantMessage | None = None,
        tool_results: tuple[ToolResultMessage, ...] = (),
        request_tokens: int = 0,
    ) -> PolicyContext:
        return PolicyContext(
            turn_index=self.turn_index,
            messages=self.transcript.history,
            usage=self.usage,
            cost=self.cost,
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

    def is_inside(self, caller: Run, call_id: str) -> None:
        """Makes this the run of a delegate that the call of the caller started."""
        self._slots = caller.slots
        self.observers = caller.observers
        self.way = (*caller.way, (caller.id, call_id))

    def count(self, usage: Usage, cost: Cost) -> None:
        """Adds the usage and cost of a request to the run's."""
        if usage != _NO_USAGE:
            self.usage += usage
        if cost != _NO_COST:
            self.cost += cost

    @property
    def spent(self) -> tuple[Usage, Cost]:
        """Usage and cost of the run so far, those of its delegates included."""
        if self.delegations is None:
            return self.usage, self.cost
        usage, cost = self.delegations.spent
        return self.usage + usage, self.cost + cost

    async def make_durable(self, *, last_words: bool = False) -> None:
        """Waits until everything recorded so far is durable. Raises the journal's error."""
        recorder = self.transcript.recorder
        if recorder is not None:
            recorder.state_is(self.state)
            if not recorder.is_durable:
                await self.supervisor.wait(recorder.durable(), last_words=last_words)

    async def let_reader_catch_up(self) -> None:
        """Waits until the reader has handled all events, so that it can still intervene."""
        if self.channel is not None:
            await self.supervisor.park(self.channel.is_caught_up)


RunLoopFn: TypeAlias = Callable[[Run, tuple[AgentMessage, ...] | None], Awaitable[AgentResult]]
