"""The sessions that the server works with: their streams, their questions, and the open conversations.

Owns when a conversation is opened, when its session is released for other programs, and the events about its state.
`Talk` is the interface of a conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from swink_agent.core.context.context import estimate_tokens
from swink_agent.core.encoding.codec import encode_event
from swink_agent.core.events import AgentEnd, AgentEvent, AgentStart, ToolCallDeferred
from swink_agent.core.secrets.redaction import EventRedactor, Redactor
from swink_agent.core.types import AgentMessage, ModelSpec

from .client import ClientInput
from .histories import History
from .problems import Problem
from .questions import Questions
from .streams import EventLog
from .talks import Talk
from .threads import Place

LET_GO = 5.0
"""Seconds after a run until the session is released for other programs."""
_MOST_IDLE = 16
"""Conversations that stay open without a run."""
_MOST_QUIET = 1000
_MOST_QUIET_BYTES = 256 * 1024 * 1024
"""Limits for streams without readers: their number, and their total size."""
_FIGURES = 0.1
"""Seconds between two `state` events if only figures change."""

OpenFn = Callable[["SessionChannel", str], Awaitable[Talk]]
"""Opens the conversation of a channel, for the user of this name."""
TellFn = Callable[["SessionChannel"], None]
"""Called when a session changes between idle, running and waiting."""


class OfferedTools(Protocol):
    """The tools of a client, and the user who offered them."""

    by: str
    names: frozenset[str]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a session, as in the event `state`."""

    type: str = "state"
    state: str = "idle"
    """`idle`, `running`, or `waiting`: a call needs an answer."""
    outcome: str = "idle"
    """How the last run ended: `idle`, `error` or `aborted`."""
    queue: list[dict[str, str]] = []
    plan: bool = False
    fill: float = 0.0
    tokens: int = 0
    cost: float | None = None
    model: str = ""
    thinking: str = "off"
    progress: str = ""


class SessionChannel:
    """One session: its stream, its questions, and its conversation once it is needed."""

    def __init__(self, session_id: str, open_talk: OpenFn, on_state: TellFn = lambda _: None) -> None:
        self.id = session_id
        self.log = EventLog()
        self.questions = Questions(self.tell, self.changed)
        self.talk: Talk | None = None
        self.opening = asyncio.Lock()
        """Held while the conversation is opened, while its session is closed or opened, and while a prompt starts."""
        self.model: str | None = None
        self.thinking: str | None = None
        """`model` and `thinking` are the choices for the next conversation."""
        self.is_deleted = False
        self._shown: int | None = None
        """The smallest number of messages that a reader was shown while there was no conversation."""
        self.began: tuple[int, int] | None = None
        """The position of the stream, and the number of messages, before the last run."""
        self.offered: OfferedTools | None = None
        """The tools of the client whose request made the run under way."""
        self.client_calls: dict[str, str] = {}
        """The calls of such tools, each with the user whose request made it: their results are that user's to give."""
        self.client = ClientInput()
        """What the AG-UI client says besides its messages."""
        self.client_messages: dict[str, Place] = {}
        """The messages of an AG-UI client that are in the history, by the client's ids."""
        self.page: Any = None
        """The `Live` of the session's page, once the page was opened."""
        self._open_talk = open_talk
        self._on_state = on_state
        self._told = State()
        self._due: asyncio.TimerHandle | None = None
        self._letting_go: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._masking: EventRedactor | None = None

    @property
    def state(self) -> State:
        talk = self.talk
        if talk is None:
            return State(model=self.model or "", thinking=self.thinking or "off")
        figures = talk.figures
        told: dict[str, Any] = {
            "queue": [{"kind": queued.kind, "text": talk.redact(queued.text)} for queued in figures.queue],
            "fill": round(figures.fill, 4),
            "model": str(talk.agent.model),
            "thinking": str(talk.agent.thinking_level),
        }
        return State(state=self.word, **{**figures._asdict(), **told})

    @property
    def word(self) -> str:
        """The state in a word: `idle`, `running` or `waiting`."""
        if not self.is_busy:
            return "idle"
        return "waiting" if self.questions.has_calls else "running"

    @property
    def is_busy(self) -> bool:
        return self.talk is not None and self.talk.is_running

    @property
    def size(self) -> int:
        """Bytes of the events that are kept for readers."""
        return self.log.kept_size + (0 if self.page is None else self.page.log.kept_size)

    # -- events for readers --------------------------------------------------------------------------------------

    def tell(self, name: str, data: Any) -> None:
        """Adds an event that does not come from a run."""
        if name == "reset":  # the history was replaced, and an id may name another call
            self.client_calls.clear()
            self.client_messages.clear()
        fields = msgspec.to_builtins(data)
        self.log.append(name, msgspec.json.encode({"type": name, **fields}))

    def use_redactor(self, redactor: Redactor) -> None:
        """Masks the events of later runs with this redactor."""
        self._masking = redactor.events()

    def on_event(self, event: AgentEvent) -> None:
        """Adds an event of a run, masked."""
        if type(event) is AgentStart:
            self.log.begin_run()
            self.began = (self.log.position, self._messages_before(event))
        elif type(event) is ToolCallDeferred:
            self._note_deferred(event)
        masking = self._masking
        for shown in [event] if masking is None else masking.feed(event):
            name: Any = type(shown).__struct_config__.tag
            self.log.append(name, encode_event(shown))
        if type(event) is AgentEnd:
            self.offered = None
            self.log.end_run()

    def _note_deferred(self, event: ToolCallDeferred) -> None:
        offered = self.offered
        if offered is not None and event.kind == "external" and event.name in offered.names:
            self.client_calls[event.call_id] = offered.by
        else:  # an earlier call may have had the same id
            self.client_calls.pop(event.call_id, None)

    def _messages_before(self, event: AgentStart) -> int:
        messages = () if self.talk is None else self.talk.agent.messages
        added = len(event.prompts)
        is_added = bool(added) and tuple(messages[-added:]) == event.prompts
        return len(messages) - added if is_added else len(messages)

    def changed(self) -> None:
        """Sends readers the new state: at once if its word has changed, otherwise within a tenth of a second."""
        if self.word != self._told.state:
            self._tell_state()
            if self._told.state == "idle":
                self.offered = None  # also if the run did not begin
                self.let_go_soon()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(_FIGURES, self._tell_state)

    def _tell_state(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        state, before = self.state, self._told
        if state != before:
            self._told = state
            self.log.append("state", msgspec.json.encode(state))
        if state.state != before.state:
            self._on_state(self)

    # -- the conversation ----------------------------------------------------------------------------------------

    async def opened(self, by: str, *, to_run: bool = True) -> Talk:
        """Returns the conversation, with its session open, for what this user starts. The caller holds `opening`.
        Raises the errors of opening."""
        self._stop_letting_go()
        if self.is_deleted:
            raise Problem(404, "not_found", f"session {self.id} was deleted")
        try:
            if self.talk is None:
                self.talk = await self._open_talk(self, by)
                if self._shown not in (None, len(self.talk.agent.messages)):  # another program has used it meanwhile
                    self.tell("reset", {})
                self._shown = None
            else:
                await self.talk.take_up(by if to_run else None)
        finally:
            self.let_go_soon()
        return self.talk

    def show(self, loaded: History) -> History:
        """Notes what a reader was shown, so that readers get a reset if the session has changed when it is opened."""
        if self.talk is None:
            count = len(loaded.messages)
            self._shown = count if self._shown is None else min(count, self._shown)
        return loaded

    def let_go_soon(self) -> None:
        """Releases the session some seconds from now, unless a run begins."""
        self._stop_letting_go()
        if self.talk is not None and self.talk.holds_session:
            self._letting_go = asyncio.get_running_loop().call_later(LET_GO, self._begin_to_let_go)

    def _stop_letting_go(self) -> None:
        if self._letting_go is not None:
            self._letting_go.cancel()
            self._letting_go = None

    def _begin_to_let_go(self) -> None:
        self._letting_go = None
        self.later(self._let_go())

    async def _let_go(self) -> None:
        async with self.opening:
            if self.talk is not None and not self.is_busy and self._letting_go is None:
                await self.talk.let_go()
                if self.talk.holds_session:  # something that uses it is under way
                    self.let_go_soon()

    def later(self, work: Any) -> None:
        """Runs work in the background; `close` waits for it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close_talk(self) -> None:
        """Stops the run, and closes conversation and session."""
        self._stop_letting_go()
        talk, self.talk = self.talk, None
        if talk is not None:
            self.model, self.thinking = str(talk.agent.model), str(talk.agent.thinking_level)
            self._shown = len(talk.agent.messages)
            self.client_calls.clear()
            await talk.close()
            if self._told.state != "idle":
                self._tell_state()

    async def close(self, event: str = "bye") -> None:
        """Closes the conversation and ends the stream with this event."""
        await self.close_talk()
        if self._due is not None:
            self._due.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=3)
        self.tell(event, {})
        self.log.close()


class SessionChannels:
    """The channels of a server, by the ids of their sessions."""

    def __init__(self, open_talk: OpenFn, on_state: TellFn) -> None:
        self._channels: dict[str, SessionChannel] = {}
        self._open_talk = open_talk
        self._on_state = on_state

    def __iter__(self) -> Any:
        return iter(list(self._channels.values()))

    def of(self, session_id: str) -> SessionChannel:
        """Returns the channel of an existing session; makes one if necessary."""
        channel = self._channels.pop(session_id, None)
        if channel is None:
            channel = SessionChannel(session_id, self._open_talk, self._on_state)
            self._drop_quiet()
        self._channels[session_id] = channel  # the newest last
        return channel

    def find(self, session_id: str) -> SessionChannel | None:
        return self._channels.get(session_id)

    def word(self, session_id: str) -> str:
        """Returns the state of a session in a word."""
        channel = self.find(session_id)
        return "idle" if channel is None else channel.word

    def forget(self, session_id: str) -> None:
        self._channels.pop(session_id, None)

    async def close_idle(self) -> None:
        """Closes the least recently used idle conversations, if there are too many."""
        idle = [
            channel
            for channel in self
            if channel.talk is not None and not channel.is_busy and not channel.talk.has_background
        ]
        for channel in idle[: max(len(idle) - _MOST_IDLE, 0)]:
            async with channel.opening:
                if not channel.is_busy:
                    await channel.close_talk()

    async def close(self) -> None:
        await asyncio.gather(*[channel.close() for channel in self], return_exceptions=True)

    def _drop_quiet(self) -> None:
        quiet = [channel for channel in self if channel.talk is None and not channel.log.has_readers]
        size = sum([channel.size for channel in quiet])
        for number, channel in enumerate(quiet):
            if number >= len(quiet) - _MOST_QUIET and size <= _MOST_QUIET_BYTES:
                break
            self.forget(channel.id)
            size -= channel.size


def state_of(channel: SessionChannel, loaded: History, usual: Callable[[], str | None]) -> State:
    """Returns the state of a session; without a conversation, the state in which one would begin. Call it in a thread.

    `usual` returns the model of new sessions.
    """
    state, model = channel.state, loaded.info.model
    if channel.talk is not None:
        return state
    cost = loaded.info.cost.amount
    if model is None:
        return msgspec.structs.replace(state, model=channel.model or usual() or "", cost=cost)
    return msgspec.structs.replace(
        state,
        model=channel.model or str(model),
        thinking=channel.thinking or str(model.thinking_level),
        fill=round(filled(loaded.messages if loaded.context is None else loaded.context, model), 4),
        cost=cost,
    )


def filled(messages: Sequence[AgentMessage], model: ModelSpec) -> float:
    """Returns the estimated share of the model's window that the messages take; 0 if the window is unknown."""
    from swink_agent.adapters.catalog import ModelCatalog

    known = ModelCatalog.load().find(model)
    window = 0 if known is None else known.context_window
    return min(estimate_tokens(messages) / window, 1.0) if window else 0.0
