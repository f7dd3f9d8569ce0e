"""A session of an editor: the conversation of the terminal UI, with a front and a view that speak the protocol.

Owns the front, the view, and how a prompt of the editor becomes a run or a command. `app.talk` does the work, as in a
terminal.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acp import RequestError, schema
from acp.helpers import update_agent_thought_text, update_available_commands, update_current_mode
from msgspec import structs

from swink_agent.app.agent.models import named_model
from swink_agent.app.agent.opening import Opening
from swink_agent.app.errors import ApplicationError, UsageProblem
from swink_agent.app.runs.input_files import refuse_unsendable
from swink_agent.app.shown.changes import LIMITS, Change, Changes, Notice
from swink_agent.app.talk.commands import command_in
from swink_agent.app.talk.conversation import Conversation
from swink_agent.app.talk.front import NoticeKind, PickItem, PreviewFn, ShownCommand
from swink_agent.app.talk.options import TalkOptions
from swink_agent.app.talk.runner import RunEnd
from swink_agent.app.talk.waiting import WaitingCalls
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.core.errors import ErrorKind
from swink_agent.core.events import AgentEvent, DelegateEvent, MessageEnd, MessagesInjected, MessageUpdate
from swink_agent.core.secrets.redaction import EventRedactor, Redactor
from swink_agent.core.stream import StreamFn
from swink_agent.core.types import (
    AgentMessage,
    Document,
    Image,
    StopReason,
    Text,
    ThinkingLevel,
    UserBlock,
    UserMessage,
    is_blank,
)

from .options import ELSEWHERE, MODES, PLAN, commands_of, config_options, is_skill, mode_state, usable_models
from .outbox import Outbox
from .prompts import alone, blocks_of
from .questions import answer_to, chosen_in, form, permission
from .updates import SessionUpdates, replayed, said

if TYPE_CHECKING:
    from swink_agent.core.record import RunRecord

_LEAVE_OUT = "leave it out"
_MASKED = "text that looks like a secret was masked before the prompt was stored or sent; `swink keys` stores keys"
_CANNOT_CHOOSE = "this editor cannot ask you to choose: give the choice with the command"
_MOST_LISTED = 40
AUTH_REQUIRED = -32000


class EditorSession:
    """One session: `Front` and `View` of its conversation. `editor` is the connection.

    `has_forms` is whether the editor can ask its user with a form.
    """

    keys: Sequence[tuple[str, str]] = ()
    lacks = frozenset(ELSEWHERE)
    theme = ""

    def __init__(self, editor: Any, opening: Opening, *, has_forms: bool) -> None:
        self.id = ""
        self.folder = str(opening.folder)
        self._prompts = 0
        """The number of prompts that have not ended: more than one if the editor has steered a run."""
        self._editor = editor
        self._has_forms = has_forms
        self._outbox = Outbox(self._send)
        self._updates = SessionUpdates(self.folder)
        self._changes = Changes()
        self._redactor = Redactor()
        self._masked: EventRedactor = self._redactor.events()
        self._questions: set[asyncio.Task[Any]] = set()
        self._errors: list[str] = []
        self._was_cancelled = False
        self._told: tuple[str, str, str] | None = None
        """The model, the level of thinking and the mode that the editor knows."""
        self._title = ""
        self._phase = ""
        self._mode_note = ""
        self._models: Sequence[PickItem] = ()
        self._conversation: Conversation | None = None

    @classmethod
    async def open(
        cls, editor: Any, opening: Opening, *, has_forms: bool, stream_fn: StreamFn | None = None
    ) -> EditorSession:
        """Opens the session that the options of `opening` want, and its agent. Raises `ApplicationError`."""
        made = cls(editor, opening, has_forms=has_forms)
        recorded = await asyncio.to_thread(opening.session().__enter__)
        options = TalkOptions(opening=opening, session=recorded, stream_fn=stream_fn)
        conversation = Conversation(options, made, made)
        made._conversation = conversation
        try:
            await conversation.open_agent()
        except BaseException:
            await asyncio.to_thread(recorded.close)
            raise
        assert conversation.opened is not None
        made.id = recorded.coming_id or secrets.token_hex(12)
        made._mode_note = conversation.opened.made.approval_mode.advice
        made._models = await asyncio.to_thread(usable_models, opening)
        made._told = made._choices
        info = recorded.info
        made._title = "" if info is None else info.title
        return made

    @property
    def is_busy(self) -> bool:
        """Whether a prompt has not ended."""
        return self._prompts > 0

    @property
    def takes_prompts(self) -> bool:
        """Whether a prompt can come now: nothing goes on, or a run that it would steer."""
        return not self.is_busy or self.conversation.state == "running"

    @property
    def conversation(self) -> Conversation:
        assert self._conversation is not None
        return self._conversation

    @property
    def mode(self) -> str:
        conversation = self.conversation
        assert conversation.opened is not None
        return PLAN if conversation.mode == "Plan" else conversation.opened.made.approvals.mode

    @property
    def _choices(self) -> tuple[str, str, str]:
        assert self.conversation.opened is not None
        agent = self.conversation.opened.agent
        return str(agent.model), agent.thinking_level.value, self.mode

    @property
    def modes(self) -> schema.SessionModeState:
        return mode_state(self.mode)

    @property
    def config(self) -> list[Any]:
        return config_options(self._models, *self._choices)

    # -- what the editor asks for ----------------------------------------------------------------------------------

    async def introduce(self) -> None:
        """Sends what waits, and the commands. The editor knows the id of the session now."""
        opened = self.conversation.opened
        assert opened is not None
        if opened.agent.pending:
            self.notice((await asyncio.to_thread(WaitingCalls, opened)).named(opened.agent.pending), "warning")
        self._outbox.open()
        self._outbox.add(update_available_commands(await asyncio.to_thread(commands_of, opened.opening)))

    async def replay(self) -> None:
        """Sends the history."""
        opened = self.conversation.opened
        assert opened is not None
        masked = [self._redactor.redact_message(message) for message in opened.agent.messages]
        self._outbox.open()
        for update in replayed(masked, self.folder):
            self._outbox.add(update)
        await self._outbox.sent()

    async def prompt(self, parts: Sequence[Any]) -> Any:
        """Handles a prompt to its end, and returns the reason of its end. Raises `RequestError`.

        During a run, a message steers the run, as in a terminal, and ends with it.
        """
        if not self.is_busy:
            self._was_cancelled = False
            self._errors.clear()
        self._prompts += 1
        conversation, before = self.conversation, self.conversation.last_end
        try:
            await conversation.ready()
            command = None if (text := alone(parts)) is None else command_in(text)
            if text is not None and command is not None:
                await self._command(text, *command)
            else:
                message = await self._message(parts)
                await conversation.ready()
                if self._was_cancelled:
                    pass
                elif conversation.state == "running":
                    conversation.enqueue("steer", message)
                else:
                    conversation.start(message)
            await conversation.settled()
            self._tell_title()
            return self._reason(None if conversation.last_end is before else conversation.last_end)
        finally:
            await self._outbox.sent()
            self._prompts -= 1

    def cancel(self) -> None:
        """Ends the run or the command, and the questions that are open."""
        self._was_cancelled = True
        self.conversation.stop()
        for question in self._questions:
            question.cancel()

    async def set_option(self, option: str, value: str) -> None:
        """Sets a configuration option. Raises `ApplicationError`."""
        self._told = None  # the answer to the editor has the new values
        try:
            await self._set_option(option, value)
        finally:
            self._told = self._choices

    async def _set_option(self, option: str, value: str) -> None:
        conversation = self.conversation
        assert conversation.opened is not None
        agent = conversation.opened.agent
        if option == "mode":
            self._set_mode(value)
        elif option not in ("model", "thinking"):
            raise UsageProblem(f"no option is called {option[:40]!r}: there are model, thinking and mode")
        elif conversation.is_running or self.is_busy:
            raise UsageProblem(f"the option {option} can only change between runs: cancel the prompt first")
        elif option == "model":
            model = named_model(value, conversation.opening.settings.aliases())
            await conversation.remake(model=structs.replace(model, thinking_level=agent.thinking_level))
        elif value in [level.value for level in ThinkingLevel]:
            agent.thinking_level = ThinkingLevel(value)
        else:
            raise UsageProblem(
                f"{value[:40]!r} is not a level: use {', '.join(level.value for level in ThinkingLevel)}"
            )

    def _set_mode(self, mode: str) -> None:
        conversation, modes = self.conversation, self.conversation.modes
        assert conversation.opened is not None
        if mode not in MODES:
            raise UsageProblem(f"no mode is called {mode[:40]!r}: there are {', '.join(MODES)}")
        if (mode == PLAN) != (conversation.mode == "Plan"):
            if conversation.is_running:
                raise UsageProblem("plan mode can only change between runs: cancel the prompt first")
            agent = conversation.opened.agent
            if mode == PLAN:
                modes.plan.enter(agent)
            else:
                modes.plan.leave(agent)
            conversation.usage.set_agent(agent, conversation.opening.settings)
        if mode != PLAN:
            modes.set_approve(mode)  # pyright: ignore[reportArgumentType]

    async def flush(self) -> None:
        """Writes the session to disk, so that it can be read."""
        if (opened := self.conversation.opened) is not None:
            await asyncio.to_thread(opened.session.flush)

    async def close(self) -> None:
        """Ends the session, its run, its hooks and MCP servers, and the processes that its tools started."""
        self.cancel()
        await self.conversation.close()

    # -- a prompt --------------------------------------------------------------------------------------------------

    async def _command(self, text: str, name: str, rest: str) -> None:
        if (why := ELSEWHERE.get(name)) is not None:
            self.notice(f"{name} is not available in an editor: {why}", "error")
            return
        means_skill = await asyncio.to_thread(is_skill, name, self.conversation.opening)
        await self.conversation.submit(f"/skill {name[1:]} {rest}" if means_skill else text)

    async def _message(self, parts: Sequence[Any]) -> UserMessage:
        opened = self.conversation.opened
        assert opened is not None
        try:
            blocks = await asyncio.to_thread(blocks_of, parts)
            attached = [block for block in blocks if isinstance(block, (Image, Document))]
            refuse_unsendable(opened.agent.model, attached, picture=_LEAVE_OUT, document=_LEAVE_OUT)
        except (ValueError, ApplicationError) as error:
            raise RequestError(-32602, str(error)) from error
        masked = [self._without_secrets(block) for block in blocks]
        if masked != blocks:
            self.notice(_MASKED, "warning")
        message = UserMessage(masked)
        if is_blank((message,)):
            raise RequestError(-32602, "the prompt has no content")
        return message

    def _without_secrets(self, block: UserBlock) -> UserBlock:
        if not isinstance(block, Text):
            return block
        if (command_in(block.text.strip()) or ("",))[0] == "/key":
            raise RequestError(-32602, "nothing was sent: a line that begins with /key never goes to a model")
        return structs.replace(block, text=self._redactor.redact(block.text))

    def _reason(self, ended: RunEnd | None) -> Any:
        if self._was_cancelled:
            return "cancelled"
        result = None if ended is None else ended.result
        kind = None if ended is None else ended.error_kind
        errors = self._redactor.redact("\n".join(self._errors))
        if kind is ErrorKind.CONTENT_FILTERED:
            self._tell(Notice("error", errors))
            return "refusal"
        if errors:
            code = AUTH_REQUIRED if kind is ErrorKind.AUTH else -32603
            raise RequestError(code, errors)
        if ended is not None and ended.reason == "timeout":
            return "max_turn_requests"
        if result is None:
            return "end_turn"
        if result.stopped_by is not None and result.stopped_by.policy in LIMITS:
            return "max_turn_requests"
        if result.stop_reason is StopReason.ABORTED:
            return "cancelled"
        return "max_tokens" if result.stop_reason is StopReason.LENGTH else "end_turn"

    # -- notifications ---------------------------------------------------------------------------------------------

    async def _send(self, update: Any) -> None:
        await self._editor.session_update(session_id=self.id, update=update)

    def _tell(self, change: Change) -> None:
        for update in self._updates.of(change):
            self._outbox.add(update)

    def _tell_title(self) -> None:
        opened = self.conversation.opened
        info = None if opened is None else opened.session.info
        if info is not None and info.title and info.title != self._title:
            self._title = info.title
            title = self._redactor.redact(info.title)
            self._outbox.add(schema.SessionInfoUpdate(session_update="session_info_update", title=title))

    def _tell_usage(self) -> None:
        usage = self.conversation.usage
        used, size = usage.estimate
        dollars = usage.dollars
        cost = None if dollars is None else schema.Cost(amount=dollars, currency="USD")
        self._outbox.add(schema.UsageUpdate(session_update="usage_update", used=used, size=size, cost=cost))

    # -- the view --------------------------------------------------------------------------------------------------

    def adopt(self, redactor: Redactor, label: Callable[[], str]) -> None:
        self._redactor = redactor
        self._masked = redactor.events()

    def show(
        self, messages: Sequence[AgentMessage], words: Sequence[tuple[str, NoticeKind]] = (), *, is_first: bool = False
    ) -> None:
        if self.id:  # an editor cannot take back what it shows
            self.notice(f"the conversation goes on after {len(messages)} messages; what came after them is gone")
        for text, kind in words:
            if kind != "welcome":
                self.notice(text, kind)

    def show_prompt(self, text: str, images: Sequence[str], position: int) -> None:
        pass  # the editor shows what it sends

    def show_injected(self, event: MessagesInjected, length: int, images: Mapping[int, Sequence[str]]) -> None:
        for message in event.messages if event.source != "policy" else ():
            if isinstance(message, UserMessage) and id(message) not in images:  # the editor shows what it sends
                for update in said(self._redactor.redact_message(message), secrets.token_hex(8)):  # type: ignore[arg-type]
                    self._outbox.add(update)

    def hear(self, event: MessageUpdate | DelegateEvent) -> None:
        self._hear(event)

    def on_event(self, event: AgentEvent, record: RunRecord) -> None:
        self._hear(event)
        if type(event) is MessageEnd:
            self._tell_usage()

    def _hear(self, event: AgentEvent) -> None:
        for shown in self._masked.feed(event):
            for change in self._changes.of(shown):
                self._tell(change)

    def end_run(self) -> None:
        for shown in self._masked.finish():
            for change in self._changes.of(shown):
                self._tell(change)

    def notice(self, text: str, kind: NoticeKind = "info") -> None:
        if kind == "error" and self._conversation is not None and self._conversation.is_running:
            self._errors.append(text)  # the answer to the prompt
        else:
            self._tell(Notice("info" if kind == "welcome" else kind, self._redactor.redact(text)))

    def show_help(self, parts: Sequence[str]) -> None:
        self.notice("\n\n".join(parts))

    def offer(self, title: str, rows: Sequence[tuple[str, str, str]], choose: Callable[[int], None]) -> None:
        self.notice("\n".join([title, *[f"{label} {detail}".rstrip() for _, label, detail in rows]]))

    def show_command(self, command: str) -> ShownCommand:
        raise AssertionError("an editor does not run the user's own shell commands: `prompt` sends them to the model")

    def clear(self) -> None:
        pass

    # -- the front -------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Tells the editor what something else has changed: a command, or a fallback of the settings."""
        conversation = self._conversation
        if conversation is None or conversation.opened is None or self._told is None:
            return
        if conversation.progress_phase != self._phase:
            self._phase = conversation.progress_phase
            if conversation.progress:
                self._outbox.add(update_agent_thought_text(f"{conversation.progress}\n"))
        told, self._told = self._told, self._choices
        if told != self._told:
            update = schema.ConfigOptionUpdate(session_update="config_option_update", config_options=self.config)
            self._outbox.add(update)
            if told[2] != self._told[2]:
                self._outbox.add(update_current_mode(self._told[2]))

    async def ask(self, question: ApprovalQuestion) -> ApprovalAnswer:
        """Asks the editor. Anything but a yes counts as no, also if the editor fails or the prompt is cancelled."""
        if note := self._mode_note:
            self._mode_note = ""
            self.notice(note)
        call, options = await asyncio.to_thread(permission, question, self.folder, self._redactor)
        request = self._editor.request_permission(session_id=self.id, tool_call=call, options=options)
        response = await self._answer(request)
        if response is None:
            return ApprovalAnswer(ApprovalChoice.NO, "the question was not answered")
        return answer_to(question, response.outcome)

    async def confirm(self, title: str, choices: Sequence[tuple[str, str]], default: str) -> str | None:
        return await self.pick(title, [PickItem(key, words) for key, words in choices])

    async def pick(self, title: str, items: Sequence[PickItem], preview: PreviewFn | None = None) -> str | None:
        if not self._has_forms:
            named = [item.label if item.label == item.key else f"{item.key}  {item.label}" for item in items]
            rows = [f"{name}  {item.detail}".rstrip() for name, item in zip(named, items[:_MOST_LISTED], strict=False)]
            more = [f"and {len(items) - _MOST_LISTED} more"] if len(items) > _MOST_LISTED else []
            self.notice("\n".join([title, *rows, *more, _CANNOT_CHOOSE]))
            return None
        title = self._redactor.redact(title)
        items = [
            PickItem(item.key, self._redactor.redact(item.label), self._redactor.redact(item.detail)) for item in items
        ]
        request = self._editor.create_elicitation(message=title, mode=form(self.id, title, items))
        return chosen_in(await self._answer(request), items)

    async def _answer(self, request: Awaitable[Any]) -> Any:
        """The editor's answer to a request; `None` if it fails, or the prompt is cancelled."""
        await self._outbox.sent()
        asking = asyncio.ensure_future(request)
        self._questions.add(asking)
        if self._was_cancelled:
            asking.cancel()
        try:
            return await asking
        except (asyncio.CancelledError, Exception):
            asking.cancel()
            return None
        finally:
            self._questions.discard(asking)

    async def read_secret(self, title: str) -> str | None:
        return None  # a form must not ask for secrets

    async def edit(self, text: str) -> str | None:
        return None

    def bring_back(self, text: str, images: Sequence[str] = ()) -> None:
        pass  # the editor has the prompt

    def give_back(self, text: str, images: Sequence[str] = ()) -> None:
        self.notice(f"this was not sent: {text}", "warning")

    def copy(self, text: str) -> None:
        pass  # the editor copies

    def set_theme(self, name: str) -> None:
        pass  # the editor has its own

    def leave(self, code: int = 0) -> None:
        pass  # the editor ends the program
