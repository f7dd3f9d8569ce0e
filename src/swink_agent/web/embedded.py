"""A session of an application's own server: its agent, recorded in its store.

Opens the session of such an agent, runs the agent, and closes the session. The application decides what the agent may
do and who is asked.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from swink_agent.app.runs.input_files import attachment, refuse_unsendable
from swink_agent.app.talk.commands.session_commands import compaction_words
from swink_agent.app.talk.plan import PlanMode
from swink_agent.app.talk.queue import MessageQueue, Queued, QueuedKind
from swink_agent.app.talk.runner import Runner, State
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalQuestion
from swink_agent.core.agent.agent import Agent
from swink_agent.core.approval import Defer
from swink_agent.core.events import AgentEnd, AgentEvent, MessagesInjected, TurnStart
from swink_agent.core.run.pending import Answer
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentResult, Document, Image, ModelSpec, StopReason, Text, ThinkingLevel, UserMessage
from swink_agent.core.values.checks import a_kind
from swink_agent.memory import Session, SessionInfo, SessionStore

from .channels import SessionChannel, filled
from .client import ClientInput
from .problems import NotBegun, Problem, invalid
from .talks import Figures

_STOPPING = 5.0
_CLOSING = 3.0


class AgentContext(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of `make_agent`: the session's id, the user who sent what is to be run, how to ask, and the chosen
    model."""

    session: str
    user: str
    ask: Callable[[ApprovalQuestion], Awaitable[ApprovalAnswer | Defer]]
    """For `Approvals`: every reader of the session is asked, and the first answer counts."""
    model: ModelSpec | None = None
    client: ClientInput = msgspec.field(default_factory=ClientInput)
    """What an AG-UI client says besides its messages, now and with each later request."""


MakeAgentFn = Callable[[AgentContext], "Agent[Any] | Awaitable[Agent[Any]]"]
_MakeFn = Callable[[str, "ModelSpec | None"], "Awaitable[Agent[Any]]"]


class AgentTalk:
    """The `Talk` of an application's agent."""

    def __init__(
        self,
        channel: SessionChannel,
        store: SessionStore,
        agent: Agent[Any],
        session: Session,
        make: _MakeFn,
        by: str,
    ) -> None:
        self._channel = channel
        self._store = store
        self._make = make
        self._agent = agent
        self._by = by
        self._has_run = False  # whether the agent has had a run: each has an agent of its own
        self._session: Session | None = session
        self._redactor: Redactor = agent.redactor or Redactor()
        self._queue = MessageQueue()
        self._plan = PlanMode()
        self._runner = Runner(on_error=self._fail, on_end=self._on_end, clock=time.monotonic)
        self._on_turn: Callable[[], None] = lambda: None
        self._info = session.info
        self._fill = filled(self._agent.messages, self._agent.model)
        channel.use_redactor(self._redactor)
        self._subscription = agent.subscribe(self._on_event)

    @classmethod
    async def open(cls, channel: SessionChannel, store: SessionStore, make_agent: MakeAgentFn, by: str) -> AgentTalk:
        """Opens the session, and makes its agent. Raises `SessionError` and the errors of `make_agent`."""
        session = await asyncio.to_thread(store.open, channel.id)
        try:
            redactor = Redactor()

            async def ask(question: ApprovalQuestion) -> ApprovalAnswer | Defer:
                talk = channel.talk
                redact = redactor.redact if talk is None else talk.redact
                return (await channel.questions.ask(question, redact))[0]

            async def make(by: str, model: ModelSpec | None) -> Agent[Any]:
                context = AgentContext(session=channel.id, user=by, ask=ask, model=model, client=channel.client)
                made: Any = make_agent(context)
                if inspect.isawaitable(made):
                    made = await made
                if not isinstance(made, Agent):
                    raise TypeError(f"make_agent gave {a_kind(made)}, not an Agent")
                return cast("Agent[Any]", made)

            agent = await make(by, _model(channel.model) if channel.model is not None else session.info.model)
            offered = agent.model
            session.attach(agent)
            if channel.model is not None:
                agent.model = offered
            if channel.thinking is not None:
                agent.thinking_level = ThinkingLevel(channel.thinking)
            return cls(channel, store, agent, session, make, by)
        except BaseException:
            await session.aclose()
            raise

    @property
    def agent(self) -> Agent[Any]:
        return self._agent

    @property
    def is_running(self) -> bool:
        return self._runner.is_running

    @property
    def has_background(self) -> bool:
        return False

    @property
    def figures(self) -> Figures:
        outcome = "idle" if self._runner.state == "running" else self._runner.state
        tokens, cost = self._info.usage.tokens, self._info.cost.amount
        return Figures(self._queue.waiting, self._plan.mode == "Plan", self._fill, tokens, cost, outcome)

    @property
    def info(self) -> SessionInfo | None:
        return None if self._session is None else self._session.info

    @property
    def holds_session(self) -> bool:
        return self._session is not None

    def redact(self, text: str) -> str:
        return self._redactor.redact(text)

    # -- runs ----------------------------------------------------------------------------------------------------

    async def prompt(self, text: str, files: Sequence[str], linked: Sequence[Image | Document] = ()) -> None:
        await self.run(await self._message(text, files, linked))

    async def run(self, message: UserMessage) -> None:
        """Starts a run with a message; returns when the message is on disk. Raises `NotBegun`."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_turn = lambda: None if turn.done() else turn.set_result(None)

        async def prompt() -> AgentResult:
            try:
                return await self._agent.prompt([message])
            except Exception as error:  # a missing key, for instance
                if not turn.done():
                    turn.set_exception(NotBegun(error, self.redact(str(error))))
                raise

        self.begin(prompt)
        await turn
        journal = self._agent.journal
        if journal is not None:
            await journal.durable()

    def begin(self, start: Callable[[], Awaitable[Any]]) -> None:
        """Starts other work of the agent, such as `resume`, as a run."""

        async def work() -> State:
            result = await start()
            if result.stop_reason == StopReason.ABORTED:
                return "aborted"
            if result.error is not None:
                self._fail(result.error)
                return "error"
            return "idle"

        self._has_run = True
        self._runner.begin(work())
        self._channel.changed()

    async def resume(self, answers: Mapping[str, Answer]) -> None:
        self.begin(lambda: self._agent.resume(answers))

    async def add(self, kind: QueuedKind, text: str, files: Sequence[str]) -> None:
        message = await self._message(text, files)
        if not self.is_running:
            raise Problem(409, "not_running", "the run has ended meanwhile: send it as a prompt")
        self._queue.add(self._agent, Queued(kind, text, message))
        self._channel.changed()

    async def stop(self) -> list[str]:
        returned = [self.redact(queued.text) for queued in self._queue.take_all(self._agent)]
        if self.is_running:
            self._runner.stop()
            self._agent.abort()
            await self._runner.wait(_STOPPING)
        self._channel.changed()
        return returned

    async def _message(self, text: str, files: Sequence[str], linked: Sequence[Image | Document] = ()) -> UserMessage:
        attached = [*[await asyncio.to_thread(attachment, name, "") for name in files], *linked]
        refuse_unsendable(self._agent.model, attached, picture="leave it out", document="leave it out")
        if not text.strip() and not attached:
            raise invalid("a prompt needs a text, or something attached")
        return UserMessage([*([Text(self.redact(text))] if text.strip() else []), *attached])

    def _on_event(self, event: AgentEvent) -> None:
        self._channel.on_event(event)
        if type(event) is TurnStart:
            self._on_turn()
        elif isinstance(event, MessagesInjected):
            self._queue.entered(event.messages)
        elif type(event) is AgentEnd:
            self._fill = filled(self._agent.messages, self._agent.model)
        else:
            return
        self._channel.changed()

    def _on_end(self) -> None:
        self._on_turn()
        if self._session is not None:
            self._info = self._session.info
        if len(self._queue) and self._runner.state == "idle":  # sent after the run had read the queue
            self.begin(self._agent.continue_loop)
            return
        if left := self._queue.take_all(self._agent):
            self._channel.tell("draft", {"text": self.redact("\n\n".join([queued.text for queued in left]))})
        self._channel.changed()

    def _fail(self, text: str) -> None:
        self._channel.tell("notice", {"text": self.redact(text), "kind": "error"})

    # -- changes -------------------------------------------------------------------------------------------------

    async def command(self, line: str) -> None:
        name, _, rest = line.strip().partition(" ")
        if name != "/compact":
            raise invalid("the only command here is /compact")
        if self.is_running:
            raise Problem(409, "running", "/compact has to wait until the run has ended, or was stopped")

        async def work() -> State:
            report = await self._agent.compact(rest.strip() or None)
            self._channel.tell("notice", {"text": compaction_words(report), "kind": "info"})
            return "idle"

        self._has_run = True
        self._runner.begin(work())
        self._channel.changed()

    async def set_model(self, model: str | None, thinking: str | None) -> None:
        level = self._agent.thinking_level if thinking is None else ThinkingLevel(thinking)
        if model is not None:
            chosen = _model(model)
            offered = (await self._make(self._by, chosen)).model  # the application decides which models it offers
            if (offered.provider, offered.model_id) != (chosen.provider, chosen.model_id):
                raise invalid(f"{str(chosen)[:100]} is not offered here")
            self._agent.model = chosen
        self._agent.thinking_level = level
        self._channel.changed()

    async def set_plan(self, is_on: bool) -> None:
        if is_on != (self._plan.mode == "Plan"):
            (self._plan.enter if is_on else self._plan.leave)(self._agent)
        self._channel.changed()

    async def rename(self, title: str) -> None:
        assert self._session is not None
        self._session.rename(self.redact(title))
        await asyncio.to_thread(self._session.records)

    async def let_go(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._info = session.info
            await session.aclose()

    async def take_up(self, by: str | None) -> None:
        if self._session is None:
            before, model = len(self._agent.messages), self._agent.model
            session = await asyncio.to_thread(self._store.open, self._channel.id)
            try:
                session.attach(self._agent)
            except BaseException:
                await session.aclose()
                raise
            self._agent.model, self._session = model, session
            if len(self._agent.messages) != before:
                self._channel.tell("reset", {})
        if by is not None and not self.is_running and (self._has_run or by != self._by):
            await self._renew(by)

    async def _renew(self, by: str) -> None:
        """Makes the agent of the next run, for the user who starts it. It takes over the session."""
        old, session = self._agent, self._session
        assert session is not None
        agent = await self._make(by, old.model)
        self._by, self._has_run = by, False
        if agent is old:
            return
        session.detach()
        try:
            session.attach(agent)
        except BaseException:
            session.attach(old)
            raise
        agent.model = old.model
        self._subscription.unsubscribe()
        self._agent, self._redactor = agent, agent.redactor or Redactor()
        self._channel.use_redactor(self._redactor)
        self._subscription = agent.subscribe(self._on_event)
        self._plan.adopt(agent)

    async def close(self) -> None:
        await self.stop()
        if not await self._runner.wait(_CLOSING):
            await self._runner.give_up()
        self._subscription.unsubscribe()
        await self.let_go()


def _model(model: str) -> ModelSpec:
    try:
        return ModelSpec.parse(model)
    except ValueError as error:
        raise invalid(str(error)) from None
