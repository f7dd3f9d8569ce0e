"""The conversation of a user with one agent after another, in one session after another.

`Conversation` connects a front end with the agent. It handles the user's input, runs one thing at a time, and holds
the queue and the state that the front end shows. A `View` shows events, and a `Front` asks questions. `commands`
implements the commands, and `approving` has the modes. This module does not draw.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from swink_agent.app.errors import ApplicationError, NoModel, UsageProblem
from swink_agent.app.runs.telling import number_of
from swink_agent.app.trust.folder_rules import FolderRules
from swink_agent.core import events
from swink_agent.core.events import AgentEvent, DelegateEvent, MessagesInjected, MessageUpdate, TaskEnded
from swink_agent.core.output import Subscription
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage, AssistantMessage, Cost, Usage, UserMessage, extract_text
from swink_agent.rendering.checklist import TodoItem, masked_items, todo_items, todo_of

from ..agent.open_agent import OpenAgent
from .approving import Modes
from .commands import command_in, is_command, run_command
from .delegates import is_streamed
from .first_run import LibraryWarnings, LocalProgress, branch_of, first_words, short_folder
from .front import Front, NoticeKind, View
from .options import Farewell, TalkOptions, resuming
from .plan import Mode
from .prompts import mentioned_in, user_message
from .queue import MessageQueue, Queued, QueuedKind
from .runner import AgentRun, RunEnd, Runner, State, Work
from .shell import Shells
from .tasks import Beside, SendGate
from .usage import UsageTotals

if TYPE_CHECKING:
    from swink_agent.app.agent.opening import GivenToAgent, Opening
    from swink_agent.app.runs.answers import Answers
    from swink_agent.app.runs.sessions import WantedSession
    from swink_agent.core.run.pending import Answer
    from swink_agent.core.types import ModelSpec
    from swink_agent.tools.commands.tasks import BackgroundTask

_AT_ONCE = frozenset({"/quit", "/q", "/help"})
"""Commands that work before the agent is ready."""
_KEY_LINE = "nothing was sent: a line that begins with /key never goes to a model; give the command alone"
_MASKED = "text that looks like a secret was masked before the prompt was stored or sent; /key stores a key"
_CLOSING = 3.0
"""Seconds that a run has to end when the conversation closes."""


class _KeyLine(UsageProblem):
    """A text that contains a key. It is not even put back into the input."""


class Conversation:
    """The state and actions of a conversation. Use it in the thread of one event loop only."""

    def __init__(
        self, options: TalkOptions, front: Front, view: View, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = options
        self.front = front
        self.view = view
        self.usage = UsageTotals()
        self.opening: Opening = options.opening
        self.opened: OpenAgent | None = None
        self._queue = MessageQueue()
        self._redactor = Redactor(enabled=options.opening.settings.value("masking"))
        self.last_end: RunEnd | None = None
        """How the last run ended; `None` before the first one has."""
        self._answer = ""
        self._subscription: Subscription | None = None
        self._gate = SendGate()
        self.modes = Modes(self, self._gate)
        self._runner = Runner(on_error=lambda text: self.notice(text, "error"), on_end=self._on_end, clock=clock)
        self._shells = Shells(view)
        self._asked_about: list[str] = []
        """The ids of those calls of the last reply whose tools need approval."""
        self._first_images = options.images
        self._beside = Beside(self._failed)
        self._local = LocalProgress(clock, on_change=front.changed)
        self._warnings = LibraryWarnings(lambda text: self.notice(text, "warning"))
        self._recent: list[str] = []
        self._farewell: Farewell | None = None
        self._opening: asyncio.Future[OpenAgent] | None = None
        self.folder = short_folder(self.opening.folder)
        """The working folder, with `~` for the home folder."""
        self.branch = ""
        """The Git branch of the folder, as it was when the last run ended."""
        self.todo: tuple[TodoItem, ...] = ()
        """The model's to-do list, masked."""
        self.around: GivenToAgent = {
            "ask": front.ask,
            "is_attended": True,
            "on_local_state": self._local.hear,
            "stream_fn": options.stream_fn,
        }
        """The arguments for every agent of the conversation."""

    # -- shown state -------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._runner.state

    @property
    def is_running(self) -> bool:
        return self._runner.is_running

    @property
    def mode(self) -> Mode:
        return self.modes.plan.mode

    @property
    def model(self) -> str:
        return "" if self.opened is None else str(self.opened.agent.model)

    @property
    def elapsed(self) -> float:
        """Seconds of the current run, or of the last one."""
        return self._runner.elapsed

    @property
    def approve(self) -> str:
        """The current mode of approvals."""
        return self.modes.approve

    @property
    def progress(self) -> str:
        """The progress of a local model before it answers: download, load, or read the prompt."""
        return self._local.text if self.is_running else ""

    @property
    def progress_phase(self) -> str:
        """The phase that the progress is in. It stays the same while only the figures change."""
        return self._local.phase

    @property
    def queue(self) -> tuple[Queued, ...]:
        return self._queue.waiting

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that commands may reach: always, or in this session without another question."""
        if self.opened is None:
            return ()
        sandbox = self.opened.made.sandbox
        always = () if sandbox is None or sandbox.backend == "off" else sandbox.profile.proxied_hosts
        return tuple(dict.fromkeys([*always, *self.opened.made.approvals.trust.hosts]))

    @property
    def tasks(self) -> Sequence[BackgroundTask]:
        tasks = None if self.opened is None else self.opened.made.tasks
        return () if tasks is None else tasks.running

    @property
    def answer(self) -> str:
        """The text of the last reply that has text, masked."""
        return self.redact(self._answer)

    def redact(self, text: str) -> str:
        """Masks the secrets that are known now. May be called in any thread."""
        return self._redactor.redact(text)

    def place_of(self, call_id: str) -> tuple[int, int]:
        """Returns the number of a call among the reply's calls that need approval, and their count."""
        ids = self._asked_about
        return (ids.index(call_id) + 1, len(ids)) if call_id in ids else (1, 1)

    def notice(self, text: str, kind: NoticeKind = "info") -> None:
        """Shows a message from the program, masked."""
        self.view.notice(text, kind)

    # -- opening -----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Creates the agent in a thread, shows notices or errors, and sends the first prompt."""
        self._warnings.open()
        try:
            await self.open_agent()
        except ApplicationError as error:
            self._runner.state = "error"
            self.notice(str(error), "error")
            self.front.changed()
        await self._look_at_branch()
        if self.options.prompt and self.opened is not None:
            await self.prompt(self.options.prompt)  # never run as a command: it may come from a file
        else:
            self.ask_waiting(self.options.answers)

    async def open_agent(self, model: ModelSpec | None = None) -> None:
        """Creates the agent in a thread, and shows its notices. Raises `ApplicationError`."""
        self._local.open()
        try:
            open_agent = partial(OpenAgent.open, self.opening, self.around, None, self.options.session, model=model)
            self._opening = asyncio.get_running_loop().run_in_executor(None, open_agent)
            opened = await asyncio.shield(self._opening)
            if opened.made.servers is not None:
                opened.made.servers.begin()  # while the user writes the first prompt
            self.adopt(opened, is_first=True)
        finally:
            self._gate.open()

    async def _look_at_branch(self) -> None:
        self.branch = await asyncio.to_thread(branch_of, self.opening.folder)
        self.front.changed()

    async def offer_sessions(self, keys: Sequence[str]) -> None:
        """Offers the last sessions of the folder, to resume by key or click, if this one is still empty."""
        from .commands.session_commands import recent_sessions

        recent = await recent_sessions(self, len(keys))
        if not recent or not self._is_empty:
            return
        self._recent = [session_id for session_id, _, _ in recent]
        rows = [(key, title, detail) for key, (_, title, detail) in zip(keys, recent, strict=False)]
        self.view.offer("The last sessions here:", rows, self.resume_recent)

    def resume_recent(self, number: int) -> None:
        """Resumes one of the offered sessions, if this one is still empty."""
        if number < len(self._recent) and self._is_empty:
            self.later(self.submit(f"/resume {self._recent[number]}"))

    @property
    def _is_empty(self) -> bool:
        return self.opened is not None and not self.is_running and not len(self.opened.agent.messages)

    def adopt(self, opened: OpenAgent, *, is_same_session: bool = False, is_first: bool = False) -> None:
        """Continues with this agent; if its session is another one, shows that session's history.

        With `is_first`, the history is put above what is already shown, such as `/help`.
        """
        if self._subscription is not None:
            self._subscription.unsubscribe()
        self.opened, self.opening = opened, opened.opening
        self._runner.state = "idle"
        agent = opened.agent
        self._redactor = opened.redactor
        self.view.adopt(opened.redactor, lambda: self.modes.plan.label)
        self._subscription = agent.subscribe(self._on_event)
        self.modes.plan.adopt(agent)
        if is_same_session:
            self._queue.move(agent)
            self.usage.set_agent(agent, opened.opening.settings)
        else:
            self._begin(opened, is_first=is_first)
        self.front.changed()

    def _begin(self, opened: OpenAgent, *, is_first: bool) -> None:
        info, agent = opened.session.info, opened.agent
        self._shells.forget()
        self.modes.plan.plan = ""
        usage, cost = (Usage(), Cost()) if info is None else (info.usage, info.cost)
        messages = tuple(agent.messages)
        sent = opened.session.context or messages
        self.usage.begin(agent, opened.opening.settings, sent=sent, usage=usage, cost=cost)
        self._take_over(messages)
        self.view.show(messages, first_words(opened) if is_first else (), is_first=is_first)

    def rewind(self, messages: Sequence[AgentMessage]) -> None:
        """Shows this earlier history. The model does not get the shell commands that are no longer shown."""
        self._shells.forget()
        self.show(messages)

    def show(self, messages: Sequence[AgentMessage]) -> None:
        """Shows this history alone."""
        self._take_over(messages)
        self.view.show(messages)

    def _take_over(self, messages: Sequence[AgentMessage]) -> None:
        said = (message.text.strip() for message in reversed(messages) if isinstance(message, AssistantMessage))
        self._answer = next((text for text in said if text), "")
        self.todo = masked_items(todo_items(messages), self.redact)

    async def switch(self, wanted: WantedSession, *, model: ModelSpec | None = None) -> None:
        """Continues in another session, without trusted calls. Raises `ApplicationError`; nothing is changed then."""
        before, left = self.opened, len(self.tasks)
        servers = None if before is None else before.made.servers
        with self.holding():
            opened = await asyncio.to_thread(
                OpenAgent.open, self.opening, self.around, wanted, model=model, servers=servers
            )
            if before is not None:
                opened.made.approvals.mode = before.made.approvals.mode
                before.made.servers = None  # the new agent has them
                opened.made.take_over_hooks(before.made)
            self.adopt(opened)
        if left:
            self.notice(f"{number_of(left, 'background command')} of the other session ended with it")
        if before is not None and (problem := await asyncio.to_thread(before.close)):
            self.notice(problem, "warning")
        for text, kind in first_words(opened, is_first=False):
            self.notice(text, kind)
        self.ask_waiting()

    def ask_waiting(self, given: Sequence[str] = ()) -> None:
        """Asks about the waiting calls of the session, and continues with the answers.

        `given` are answers in the form of `--answer`. Their calls are not asked about.
        """
        if self.opened is not None and self.opened.agent.pending and not self.is_running:
            self.begin(self._answer_waiting(self.opened, given))

    async def _answer_waiting(self, opened: OpenAgent, given: Sequence[str]) -> State:
        from swink_agent.app.runs.answers import answers_for, check_approved

        from .waiting import WaitingCalls

        pending = opened.agent.pending
        waiting = await asyncio.to_thread(WaitingCalls, opened)
        answers: Answers = {}
        try:
            if given:
                answers = answers_for(given, pending)
                for warning in await asyncio.to_thread(check_approved, answers, pending, opened.made):
                    self.notice(warning, "warning")
            calls = [call for call in waiting.askable if call.call_id not in answers]
            self._asked_about = [call.call_id for call in calls]
            answers |= await waiting.ask_in_turn(calls, self._runner.waiting)
            state: State = "idle"
            if answers:
                state = await self._run(opened, None, (), answers)
        finally:
            if left := opened.agent.pending:
                self.notice(waiting.named(left))
        return state

    async def remake(self, opening: Opening | None = None, model: ModelSpec | None = None) -> None:
        """Continues this session with another model or other settings. Raises `ApplicationError`."""
        opening = self.opening if opening is None else opening
        with self.holding():
            if self.opened is None:
                opened = await asyncio.to_thread(OpenAgent.open, opening, self.around, model=model)
                self.adopt(opened)
                for text, kind in first_words(opened):
                    self.notice(text, kind)
                return
            model = self.opened.agent.model if model is None else model
            opened = await asyncio.to_thread(self.opened.with_agent, opening, self.around, model)
            # The new agent has all tools and the full prompt; in plan mode `adopt` restricts it.
            self.adopt(opened, is_same_session=True)

    async def let_go(self) -> None:
        """Closes the session between runs, so that other programs can use it. `take_up` opens it again."""
        if self.opened is not None and not self.is_running:
            with self.holding():
                if problem := await asyncio.to_thread(self.opened.let_go):
                    self.notice(problem, "warning")

    async def take_up(self) -> None:
        """Opens the session again, with the messages added to it meanwhile. Raises `ApplicationError`."""
        opened = self.opened
        if opened is None or opened.holds_session:
            return
        with self.holding():
            if await asyncio.to_thread(opened.take_up):
                messages = tuple(opened.agent.messages)
                self.usage.cut(opened.session.context or messages)
                self.show(messages)
                self.front.changed()

    @property
    def is_held(self) -> bool:
        """Whether a command or a change of the agent delays the user's input."""
        return not self._gate.is_open

    def holding(self) -> AbstractContextManager[None]:
        """Returns a context manager that delays the user's input, so that no run begins inside it."""
        return self._gate.shut()

    # -- sending -----------------------------------------------------------------------------------------------

    async def submit(self, text: str, images: Sequence[str] = ()) -> None:
        """Handles the user's input. Starts a prompt in the background; awaits a `/` or `!` command.

        During a run, a prompt steers the run.
        """
        found = command_in(text)
        if found is not None:
            if found[0] not in _AT_ONCE:
                await self._gate.passed()
            await run_command(self, *found, text, images)
            return
        if text.startswith("!") and text[1:].strip():
            await self._gate.passed()
            await self._run_shell(text[1:].strip())
            return
        await self.prompt(text, images)

    async def prompt(self, text: str, images: Sequence[str] = ()) -> None:
        """Sends a text to the model, even if it looks like a command. During a run it steers the run."""
        await self._send(text, images, "steer")

    async def follow_up(self, text: str, images: Sequence[str] = ()) -> None:
        """Queues a prompt, which is sent when the run would stop; without a run, sends it at once."""
        await self._send(text, images, "follow_up")

    def queue_follow_up(self, text: str, images: Sequence[str] = (), *, may_be_command: bool = True) -> None:
        """Does the same as `follow_up`, in the background; a command is run at once instead."""
        is_done_at_once = may_be_command and is_command(text)
        self.later(self.submit(text, images) if is_done_at_once else self.follow_up(text, images))

    async def _send(self, text: str, images: Sequence[str], kind: QueuedKind) -> None:
        await self._gate.passed()
        if not text.strip() and not images:
            return
        sent = (*self._first_images, *images)
        try:
            message = await self.composed(text, sent)
        except _KeyLine as error:
            self.notice(str(error), "error")
            return
        except ApplicationError as error:
            self.notice(str(error), "error")
            self.front.give_back(text, images)
            return
        self._first_images = ()
        await self.ready()
        if self.state == "running":
            self.enqueue(kind, message, sent)
            return
        self.start(message, sent)

    async def ready(self) -> None:
        """Returns when a message can be sent: when no command holds the user's input and no stopped run is ending."""
        while not self._gate.is_open or (self.is_running and self.state != "running"):
            await self._gate.passed()
            await self._runner.wait()

    async def composed(self, text: str, images: Sequence[str] = ()) -> UserMessage:
        """Returns the masked message with a text and the files at these paths. Raises `ApplicationError`."""
        if (command_in(text.strip()) or ("",))[0] == "/key":  # also from an editor, or after a space
            raise _KeyLine(_KEY_LINE)
        if self.opened is None:
            raise NoModel("there is no model to use yet: /key adds a key, /model chooses a model")
        redactor, model = self.opened.redactor, self.opened.agent.model
        message, was_masked = await user_message(
            text, images, folder=self.opening.folder, redactor=redactor, model=model
        )
        if was_masked:
            self.notice(_MASKED, "warning")
        return message

    def enqueue(self, kind: QueuedKind, message: UserMessage, images: Sequence[str] = ()) -> None:
        """Queues a message for the active run."""
        assert self.opened is not None
        self._queue.add(self.opened.agent, Queued(kind, extract_text(message.content), message, tuple(images)))
        self.front.changed()

    def start(self, message: UserMessage | None, images: Sequence[str] = ()) -> None:
        """Starts a run with a message, or with the queued messages for `None`."""
        assert self.opened is not None
        agent = self.opened.agent
        prompts: list[AgentMessage] | None = None
        if waiting := len(agent.pending):
            from .waiting import given_up

            self.notice(given_up(waiting), "warning")
        if message is not None:
            prompts = [*self._shells.take(), message]
            position = len(agent.messages) + len(prompts) - 1
            shown = (*images, *mentioned_in(message, images))
            self.view.show_prompt(extract_text(message.content), shown, position)
            self.usage.said(prompts)
        self.begin(self._run(self.opened, prompts, images))

    def resume(self, answers: Mapping[str, Answer]) -> None:
        assert self.opened is not None
        self.begin(self._run(self.opened, None, (), answers))

    def begin(self, work: Work) -> None:
        """Runs other work, such as a compaction, like a run: the user can stop it in the same way."""
        self._runner.begin(work)
        self.front.changed()

    def _on_end(self) -> None:
        self._local.clear()
        self.view.end_run()
        self.later(self._look_at_branch())
        if self.mode == "Plan" and self.state == "idle":
            self.modes.plan.plan = self.answer
        if len(self._queue) and self.opened is not None:
            if self.state == "idle":  # sent after the run had read the queue for the last time
                self.start(None)
                return
            self._give_back_queue()
        self.front.changed()

    async def _run(
        self,
        opened: OpenAgent,
        prompts: Sequence[AgentMessage] | None,
        images: Sequence[str],
        answers: Mapping[str, Answer] | None = None,
    ) -> State:
        self.usage.begin_run()
        run = AgentRun(opened, prompts, answers=answers, notice=self.notice, waiting=self._runner.waiting)
        try:
            state = await run.run()
        finally:
            self.last_end = run.end
            if not run.has_begun:
                self._take_back_prompt(run.prompts, images)
        if run.has_no_reply and run.prompts and isinstance(message := run.prompts[-1], UserMessage):
            self.front.bring_back(extract_text(message.content), images)
        return state

    def _take_back_prompt(self, prompts: Sequence[AgentMessage], images: Sequence[str]) -> None:
        """Returns the prompt to the input if the run ended before the model got it, for example during a download."""
        if not prompts:
            return
        self._shells.put_back(prompts[:-1])
        self.usage.unsaid(prompts)
        self.notice("the prompt was not sent; it is in the input line again")
        assert isinstance(prompts[-1], UserMessage)
        self.front.give_back(extract_text(prompts[-1].content), images)

    def _on_event(self, event: AgentEvent) -> None:
        if type(event) is MessageUpdate:  # the most frequent event, which changes only the transcript
            self._local.clear()
            self.view.hear(event)
            return
        if type(event) is DelegateEvent and is_streamed(event):
            self.view.hear(event)
            return
        if isinstance(event, MessagesInjected):
            assert self.opened is not None
            images = {id(queued.message): queued.images for queued in self._queue.entered(event.messages)}
            self.view.show_injected(event, len(self.opened.agent.messages), images)
        elif isinstance(event, TaskEnded):
            self._tell_end(event)
        elif isinstance(event, events.MessageEnd) and self.opened is not None:
            guarded = {tool.name for tool in self.opened.agent.tools if tool.requires_approval}
            self._asked_about = [call.id for call in event.message.tool_calls if call.name in guarded]
        elif isinstance(event, events.ToolExecutionEnd) and not event.is_error:
            items = todo_of(event.name, event.result.details)
            self.todo = self.todo if items is None else items  # the run has masked it
        if isinstance(event, (events.MessageEnd, events.TurnEnd)) and event.message is not None:
            self._answer = event.message.text.strip() or self._answer  # a policy may have replaced the reply
        self.usage.on_event(event)
        self.view.on_event(event, self.usage.record)
        self.front.changed()

    def _tell_end(self, event: TaskEnded) -> None:
        from .commands.background import told_end

        tasks = None if self.opened is None else self.opened.made.tasks
        self.notice(*told_end(event, () if tasks is None else tasks.all))

    # -- during a run ------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stops the run and the user's shell commands, and returns queued messages to the input."""
        self._shells.stop()
        if not self.is_running:
            return
        self._runner.stop()
        if self.opened is not None:
            self.opened.agent.abort()
            self._give_back_queue()
        self.front.changed()

    def take_back(self) -> Queued | None:
        """Removes the newest queued message and returns it; `None` if nothing is queued."""
        taken = None if self.opened is None else self._queue.take_back(self.opened.agent)
        self.front.changed()
        return taken

    def _give_back_queue(self) -> None:
        assert self.opened is not None
        if taken := self._queue.take_all(self.opened.agent):
            images = [path for queued in taken for path in queued.images]
            self.front.give_back("\n\n".join([queued.text for queued in taken]), images)

    async def ended(self, seconds: float) -> bool:
        """Waits for the end of the run; returns whether it ended in time."""
        return await self._runner.wait(seconds)

    async def settled(self) -> None:
        """Returns when no run, command or question is active."""
        while self.is_running or self._beside:
            await self._runner.wait()
            await self._beside.wait()
            await asyncio.sleep(0)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work in the background; `close` cancels it."""
        self._beside.begin(work)

    def _failed(self, message: str) -> None:
        self.notice(message, "error")
        self.front.changed()

    async def _run_shell(self, command: str) -> None:
        redactor = None if self.opened is None else self.opened.redactor
        work = self._shells.run(command, self.opening.folder, redactor)
        self.front.changed()
        try:
            await work
        finally:
            self.front.changed()

    async def keep_rule(self, rule: str) -> None:
        """Stores an approval rule for this project in the user's own configuration, and shows a notice."""
        told, is_stored = await asyncio.to_thread(FolderRules().keep, self.opening.folder, rule)
        self.notice(told, "info" if is_stored else "warning")

    # -- closing -----------------------------------------------------------------------------------------------

    async def close(self) -> Farewell:
        """Stops everything, closes the session, and returns the text for the normal screen.

        May be called at any time, and more than once.
        """
        if self._farewell is not None:
            return self._farewell
        self._farewell = Farewell()
        self._warnings.close()
        self.stop()
        self._shells.kill()
        await self._beside.end(_CLOSING)
        if not await self._runner.wait(_CLOSING):
            await self._runner.give_up()
        opened = self.opened
        if opened is None and self._opening is not None:  # the user left before the agent was ready
            found, _ = await asyncio.wait([self._opening], timeout=_CLOSING)
            opened = self._opening.result() if found and self._opening.exception() is None else None
        problem = resume = ""
        if opened is not None:
            await opened.made.finish(_CLOSING)
            problem = await asyncio.to_thread(opened.close)
            session_id = opened.session.short_id
            resume = resuming(session_id, self.opening.options.cwd) if session_id else ""
        self._farewell = Farewell(self.answer, resume, problem)
        return self._farewell
