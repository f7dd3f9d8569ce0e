"""A session of `swink web`: the conversation of the terminal UI, with a front that serves many readers.

Owns the front and the view of such a conversation. `app.talk` does the work, as in a terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from swink_agent.app.agent.models import named_model
from swink_agent.app.agent.opening import Opening
from swink_agent.app.errors import UsageProblem
from swink_agent.app.runs.input_files import refuse_unsendable
from swink_agent.app.runs.sessions import RunSession, WantedSession
from swink_agent.app.talk.commands import COMMANDS, command_in
from swink_agent.app.talk.conversation import Conversation
from swink_agent.app.talk.front import NoticeKind, PickItem, PreviewFn, ShownCommand
from swink_agent.app.talk.options import TalkOptions
from swink_agent.app.talk.queue import QueuedKind
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalQuestion
from swink_agent.core.agent.agent import Agent
from swink_agent.core.approval import Defer
from swink_agent.core.events import AgentEvent, DelegateEvent, MessagesInjected, MessageUpdate, TurnStart
from swink_agent.core.run.pending import Answer
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import StreamFn
from swink_agent.core.types import AgentMessage, Document, Image, ModelSpec, ThinkingLevel
from swink_agent.memory import SessionInfo

from .channels import SessionChannel
from .problems import Problem, invalid
from .talks import Figures

if TYPE_CHECKING:
    from swink_agent.core.record import RunRecord

_STOPPING = 5.0
_ELSEWHERE = {
    "/key": "keys are stored with `swink keys set PROVIDER`",
    "/bindings": "they are the keys of a terminal",
    "/clear": "it changes what a terminal shows",
    "/copy": "the browser copies",
    "/resume": "open the session itself",
    "/reset": "create a session instead",
    "/fork": "fork the session instead",
    "/editor": "it needs a terminal",
    "/theme": "it changes what a terminal shows",
    "/quit": "it ends a terminal's program",
    "/q": "it ends a terminal's program",
}


class WebFront:
    """The `Front` of a session on the server: its questions go to every reader, and one of them answers."""

    keys: Sequence[tuple[str, str]] = (("Enter", "send"), ("Shift+Enter", "a new line"), ("Esc", "stop"))
    lacks = frozenset(_ELSEWHERE)
    theme = ""

    def __init__(self, channel: SessionChannel) -> None:
        self._channel = channel
        self.talk: Conversation | None = None

    def changed(self) -> None:
        self._channel.changed()

    async def ask(self, question: ApprovalQuestion) -> ApprovalAnswer | Defer:
        talk = self.talk
        assert talk is not None
        request = question.request
        place = talk.place_of(request.call_id) if question.can_wait or not request.delegates else (1, 1)
        answer, rule = await self._channel.questions.ask(question, self._redact, place)
        if rule:
            await talk.keep_rule(rule)
        return answer

    async def confirm(self, title: str, choices: Sequence[tuple[str, str]], default: str) -> str | None:
        return await self.pick(title, [PickItem(key, words) for key, words in choices])

    async def pick(self, title: str, items: Sequence[PickItem], preview: PreviewFn | None = None) -> str | None:
        return await self._channel.questions.choose(title, items, self._redact)

    async def read_secret(self, title: str) -> str | None:
        return None  # secrets are not accepted from a browser

    async def edit(self, text: str) -> str | None:
        return None

    def bring_back(self, text: str, images: Sequence[str] = ()) -> None:
        self.give_back(text, images)

    def give_back(self, text: str, images: Sequence[str] = ()) -> None:
        self._channel.tell("draft", {"text": self._redact(text)})

    def copy(self, text: str) -> None:
        pass  # the browser copies

    def set_theme(self, name: str) -> None:
        pass  # the browser has its own

    def leave(self, code: int = 0) -> None:
        pass  # one reader does not end the server

    def _redact(self, text: str) -> str:
        return Redactor().redact(text) if self.talk is None else self.talk.redact(text)


class WebView:
    """The `View` of a session on the server: turns changes into events for every reader."""

    def __init__(self, channel: SessionChannel) -> None:
        self._channel = channel
        self._redactor = Redactor()
        self._is_shown = False
        self.on_turn: Callable[[], None] = lambda: None

    def adopt(self, redactor: Redactor, label: Callable[[], str]) -> None:
        self._redactor = redactor
        self._channel.use_redactor(redactor)

    def show(
        self, messages: Sequence[AgentMessage], words: Sequence[tuple[str, NoticeKind]] = (), *, is_first: bool = False
    ) -> None:
        if self._is_shown:
            self._channel.questions.close_offers()  # they are about the history before
            # The history was replaced. Readers load it again and miss what is told meanwhile, such as the text that
            # /rewind gives back, so this is told last.
            asyncio.get_running_loop().call_soon(lambda: self._channel.tell("reset", {}))
        self._is_shown = True
        for text, kind in words:
            if kind != "welcome":
                self.notice(text, kind)

    def show_prompt(self, text: str, images: Sequence[str], position: int) -> None:
        pass  # `AgentStart` contains it

    def show_injected(self, event: MessagesInjected, length: int, images: Mapping[int, Sequence[str]]) -> None:
        pass  # the event itself follows

    def hear(self, event: MessageUpdate | DelegateEvent) -> None:
        self._channel.on_event(event)

    def on_event(self, event: AgentEvent, record: RunRecord) -> None:
        self._channel.on_event(event)
        if type(event) is TurnStart:
            self.on_turn()

    def end_run(self) -> None:
        self.on_turn()

    def notice(self, text: str, kind: NoticeKind = "info") -> None:
        self._channel.tell("notice", {"text": self._redactor.redact(text), "kind": kind})

    def show_help(self, parts: Sequence[str]) -> None:
        self.notice("\n\n".join(parts))

    def offer(self, title: str, rows: Sequence[tuple[str, str, str]], choose: Callable[[int], None]) -> None:
        pass  # offers are for the first screen of a terminal

    def show_command(self, command: str) -> ShownCommand:
        raise AssertionError("a browser cannot run the user's own shell commands: `StandardTalk.command` refuses them")

    def clear(self) -> None:
        pass


class StandardTalk:
    """The `Talk` of a standard agent."""

    def __init__(self, channel: SessionChannel, conversation: Conversation, view: WebView) -> None:
        self._channel = channel
        self._talk = conversation
        self._view = view

    @classmethod
    async def open(
        cls, channel: SessionChannel, opening: Opening, *, stream_fn: StreamFn | None = None
    ) -> StandardTalk:
        """Opens the session and its agent. Raises `ApplicationError`."""
        wanted = WantedSession(id=channel.id)
        session: RunSession = await asyncio.to_thread(opening.session(wanted).__enter__)
        front, view = WebFront(channel), WebView(channel)
        conversation = Conversation(TalkOptions(opening=opening, session=session, stream_fn=stream_fn), front, view)
        front.talk = conversation
        try:
            await conversation.open_agent(
                None if channel.model is None else _spec(opening, channel.model, channel.thinking)
            )
        except BaseException:
            await asyncio.to_thread(session.close)
            raise
        talk = cls(channel, conversation, view)
        if channel.model is None and channel.thinking is not None:
            talk.agent.thinking_level = ThinkingLevel(channel.thinking)
        return talk

    @property
    def agent(self) -> Agent:
        assert self._talk.opened is not None
        return self._talk.opened.agent

    @property
    def is_running(self) -> bool:
        return self._talk.is_running

    @property
    def has_background(self) -> bool:
        return bool(self._talk.tasks)

    @property
    def figures(self) -> Figures:
        talk = self._talk
        outcome = "idle" if talk.state == "running" else talk.state
        usage = talk.usage
        is_plan = talk.mode == "Plan"
        return Figures(talk.queue, is_plan, usage.fill, usage.tokens, usage.dollars, outcome, talk.progress)

    @property
    def info(self) -> SessionInfo | None:
        return self._talk.opened.session.info if self._talk.opened is not None and self.holds_session else None

    @property
    def holds_session(self) -> bool:
        return self._talk.opened is not None and self._talk.opened.holds_session

    def redact(self, text: str) -> str:
        return self._talk.redact(text)

    async def prompt(self, text: str, files: Sequence[str], linked: Sequence[Image | Document] = ()) -> None:
        await self._rest()
        message = await self._talk.composed(text, files)
        if linked:
            refuse_unsendable(self.agent.model, linked, picture="leave it out", document="leave it out")
            message = structs.replace(message, content=(*message.content, *linked))
        await self._rest()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._view.on_turn = lambda: None if turn.done() else turn.set_result(None)
        self._talk.start(message, files)
        await turn  # the prompt is in the journal when the first turn begins, or the run has ended
        journal = self.agent.journal
        if journal is not None:
            await journal.durable()

    async def resume(self, answers: Mapping[str, Answer]) -> None:
        await self._rest()
        self._talk.resume(answers)

    async def _rest(self) -> None:
        """Waits for a command that replaces the agent or its history. Raises `Problem` if a run has begun meanwhile."""
        await self._talk.ready()
        if self.is_running:
            raise Problem(409, "running", "a run of this session is active: steer it, or queue a follow-up")

    async def add(self, kind: QueuedKind, text: str, files: Sequence[str]) -> None:
        message = await self._talk.composed(text, files)
        if not self._talk.is_running:
            raise Problem(409, "not_running", "the run has ended meanwhile: send it as a prompt")
        self._talk.enqueue(kind, message, files)

    async def stop(self) -> list[str]:
        returned = [self.redact(queued.text) for queued in self._talk.queue]
        self._talk.stop()
        await self._talk.ended(_STOPPING)
        return returned

    async def command(self, line: str) -> None:
        found = command_in(line)
        if found is None:
            what = "shell commands run only in a terminal" if line.startswith("!") else "a command begins with /"
            raise invalid(f"this is not a command: {what}")
        name = found[0]
        if why := _ELSEWHERE.get(name):
            raise invalid(f"{name} is not available in a browser: {why}")
        known = next((command for command in COMMANDS if command.name == name), None)
        if known is not None and known.is_for_rest and self.is_running:
            raise Problem(409, "running", f"{name} has to wait until the run has ended, or was stopped")
        self._talk.later(self._talk.submit(line))

    async def set_model(self, model: str | None, thinking: str | None) -> None:
        await self._rest()
        opening, agent = self._talk.opening, self.agent
        level = agent.thinking_level if thinking is None else ThinkingLevel(thinking)
        if model is not None:
            await self._talk.remake(model=structs.replace(_spec(opening, model, None), thinking_level=level))
        else:
            agent.thinking_level = level
        self._talk.front.changed()

    async def set_plan(self, is_on: bool) -> None:
        if is_on != (self._talk.mode == "Plan"):
            self._talk.modes.change_plan()

    async def rename(self, title: str) -> None:
        assert self._talk.opened is not None
        self._talk.opened.session.rename(title)
        await asyncio.to_thread(self._talk.opened.session.flush)

    async def let_go(self) -> None:
        if not self._talk.is_held or self._channel.questions.has_offers:  # a command that waits needs no session
            await self._talk.let_go()

    async def take_up(self, by: str | None) -> None:
        await self._talk.take_up()

    async def close(self) -> None:
        await self._talk.close()


def _spec(opening: Opening, model: str, thinking: str | None) -> ModelSpec:
    try:
        found = named_model(model, opening.settings.aliases())
    except UsageProblem as error:
        raise invalid(str(error)) from None
    return found if thinking is None else structs.replace(found, thinking_level=ThinkingLevel(thinking))
