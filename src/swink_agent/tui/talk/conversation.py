"""A conversation: one agent after another in one session after another, as a person sees it.

Owns what goes on between a front end and the agent: what becomes of a line that was sent, the one run that there can
be, the queue, the mode, and the state that is shown. What is told of a run is in `narration`, what a command does in
`commands`, and nothing here draws.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

from swink_agent.app.errors import ApplicationError
from swink_agent.core.agent_parts.subscriptions import Subscription
from swink_agent.core.events import AgentEvent, MessagesInjected, MessageUpdate
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage, Cost, Usage, UserMessage, extract_text

from ..transcript import ToolBlock, Transcript, UserBlock
from .agent_run import AgentRun
from .beside import Beside
from .commands import command_in, run_command
from .earlier import shown_history
from .farewell import Farewell, resuming
from .first_run import LocalProgress, first_words, short_folder
from .front import Front
from .gate import SendGate
from .narration import Narration
from .open_agent import OpenAgent, SharedAgentOptions
from .options import TalkOptions
from .plan import ENTERED, LEFT, OFFER, Mode, PlanMode, carrying_out
from .queue import MessageQueue, Queued, QueuedKind
from .running import Runner, State, Work
from .sending import KEY_LINE, MASKED, user_message
from .shell import Shells
from .tally import UsageTotals
from .warnings import LibraryWarnings

if TYPE_CHECKING:
    from swink_agent.app.opening import Opening
    from swink_agent.app.sessions import WantedSession
    from swink_agent.approvals.approvals import ApprovalsMode
    from swink_agent.core.types import ModelSpec

__all__ = ["Conversation"]

_WORDS: dict[str, str] = {"smart": "smart", "ask": "on", "all": "off", "none": "none"}
_AT_ONCE = frozenset({"/quit", "/q", "#help"})
"""Commands that need no agent, also while one is still being made."""
_CLOSING = 3.0
"""Seconds that a run has to end when the conversation is closed."""


class Conversation:
    """What a front end shows and drives. All of it belongs to the thread of one event loop."""

    def __init__(self, options: TalkOptions, front: Front, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self.front = front
        self.transcript = Transcript()
        self.tally = UsageTotals()
        self.plan = PlanMode()
        self.opening: Opening = options.opening
        self.opened: OpenAgent | None = None
        self._clock = clock
        self._queue = MessageQueue()
        self._narration = Narration(self.transcript, Redactor(), label=lambda: self.plan.label, clock=clock)
        self._subscription: Subscription | None = None
        self._gate = SendGate()
        self._runner = Runner(on_error=lambda text: self.notice(text, "error"), on_end=self._on_end, clock=clock)
        self._shells = Shells(self.transcript)
        self._first_images = options.images
        self._beside = Beside(self._failed)
        self._local = LocalProgress(clock, on_change=front.changed)
        self._warnings = LibraryWarnings(lambda text: self.notice(text, "warning"))
        self._farewell: Farewell | None = None
        self._opening: asyncio.Future[OpenAgent] | None = None
        self.around = SharedAgentOptions(ask=front.ask, on_local_state=self._local.hear, stream_fn=options.stream_fn)

    # -- what is shown -----------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._runner.state

    @property
    def is_running(self) -> bool:
        return self._runner.is_running

    @property
    def mode(self) -> Mode:
        return self.plan.mode

    @property
    def model(self) -> str:
        return "" if self.opened is None else str(self.opened.agent.model)

    @property
    def tokens(self) -> int:
        return self.tally.tokens

    @property
    def cost(self) -> float | None:
        return self.tally.dollars

    @property
    def fill(self) -> float:
        return self.tally.fill

    @property
    def elapsed(self) -> float:
        """Seconds of the run that goes on, else of the last one."""
        return self._runner.elapsed

    @property
    def folder(self) -> str:
        return short_folder(self.opening.folder)

    @property
    def approve(self) -> str:
        """`smart`, `on` or `off`; `none` where the settings allow nothing that needs approval."""
        mode = self.opening.settings.value("approve") if self.opened is None else self.opened.made.approvals.mode
        return _WORDS[mode]

    @property
    def progress(self) -> str:
        """What a model on this machine is about before it answers: its fetching, loading, and slow first reading."""
        return self._local.text if self.is_running else ""

    @property
    def queue(self) -> tuple[Queued, ...]:
        return self._queue.waiting

    @property
    def running_tools(self) -> list[ToolBlock]:
        return [*self._narration.running, *self._shells.running]

    @property
    def answer(self) -> str:
        """What the model said last, masked."""
        return self._narration.answer

    def seconds_of(self, block: ToolBlock) -> float:
        """How long a call that runs has been running."""
        return self._narration.seconds_of(block)

    def notice(self, text: str, kind: Literal["info", "warning", "error", "welcome"] = "info") -> None:
        """A word of the program's own in the transcript; it is masked."""
        self._narration.notice(text, kind)

    # -- opening -----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Makes the agent beside the event loop, tells what should be known or went wrong, and sends a first prompt."""
        self._warnings.open()
        self._local.open()
        try:
            await self._open()
        finally:
            self._gate.open()
        if self.options.prompt and self.opened is not None:
            await self.submit(self.options.prompt)

    async def _open(self) -> None:
        try:
            given = (self.opening, self.around, None, self.options.session)
            self._opening = asyncio.get_running_loop().run_in_executor(None, OpenAgent.open, *given)
            opened = await asyncio.shield(self._opening)
        except ApplicationError as error:
            self._runner.state = "error"
            self.notice(str(error), "error")
            self.front.changed()
            return
        self.adopt(opened)
        for text, kind in first_words(opened):
            self.notice(text, kind)

    def adopt(self, opened: OpenAgent, *, is_same_session: bool = False) -> None:
        """Goes on with this agent, and if it is another session, with what was said in that."""
        if self._subscription is not None:
            self._subscription.unsubscribe()
        answer = self._narration.answer
        self.opened, self.opening = opened, opened.opening
        self._runner.state = "idle"
        agent = opened.agent
        self._narration = Narration(self.transcript, opened.redactor, label=lambda: self.plan.label, clock=self._clock)
        self._subscription = agent.subscribe(self._on_event)
        self.plan.adopt(agent)
        if is_same_session:
            self._narration.answer = answer
            self._queue.move(agent)
            self.tally.set_agent(agent, opened.opening.settings)
        else:
            self._begin(opened)
        self.front.changed()

    def _begin(self, opened: OpenAgent) -> None:
        info, agent = opened.session.info, opened.agent
        self._shells.forget()
        self.plan.plan = ""
        usage, cost = (Usage(), Cost()) if info is None else (info.usage, info.cost)
        messages = tuple(agent.messages)
        sent = opened.session.context or messages
        self.tally.begin(agent, opened.opening.settings, sent=sent, usage=usage, cost=cost)
        self.show(messages)

    def show(self, messages: Sequence[AgentMessage]) -> None:
        """Shows a history that was there before, in place of all that is shown."""
        assert self.opened is not None
        blocks, self._narration.answer = shown_history(messages, self.opened.redactor)
        self.transcript.clear()
        self.transcript.extend(blocks)

    async def switch(self, wanted: WantedSession, *, model: ModelSpec | None = None) -> None:
        """Goes on in another session, in which nothing is trusted yet. Raises `ApplicationError`, and then all is as it
        was."""
        before = self.opened
        with self.holding():
            opened = await asyncio.to_thread(OpenAgent.open, self.opening, self.around, wanted, model=model)
            if before is not None:
                opened.made.approvals.mode = before.made.approvals.mode
            self.adopt(opened)
        if before is not None and (problem := await asyncio.to_thread(before.close)):
            self.notice(problem, "warning")
        for text, kind in first_words(opened, is_first=False):
            self.notice(text, kind)

    async def remake(self, opening: Opening | None = None, model: ModelSpec | None = None) -> None:
        """Goes on in this session with another agent: another model, or other settings. Raises `ApplicationError`."""
        opening = self.opening if opening is None else opening
        with self.holding():
            await self._remake(opening, model)

    async def _remake(self, opening: Opening, model: ModelSpec | None) -> None:
        if self.opened is None:
            opened = await asyncio.to_thread(OpenAgent.open, opening, self.around, model=model)
            self.adopt(opened)
            for text, kind in first_words(opened):
                self.notice(text, kind)
            return
        if model is None:
            model = self.opened.agent.model
        # Tools and prompt as they were made: what plan mode takes away is taken from the new one.
        self.adopt(await asyncio.to_thread(self.opened.with_agent, opening, self.around, model), is_same_session=True)

    def holding(self) -> AbstractContextManager[None]:
        """Lets nothing that is sent pass until something is done that another run must not come into."""
        return self._gate.shut()

    # -- what is sent ------------------------------------------------------------------------------------------

    async def submit(self, text: str, images: Sequence[str] = ()) -> None:
        """Takes what a person sent: a prompt, which runs on its own, or a `/`, `#` or `!` command, which is waited for.

        During a run a prompt steers it.
        """
        found = command_in(text)
        if found is not None:
            if found[0].lower() not in _AT_ONCE:
                await self._gate.passed()
            await run_command(self, *found)
            return
        if text.startswith("!") and text[1:].strip():
            await self._gate.passed()
            await self._run_shell(text[1:].strip())
            return
        await self.prompt(text, images)

    async def prompt(self, text: str, images: Sequence[str] = ()) -> None:
        """Sends a text to the model whatever it begins with. During a run it steers that."""
        await self._send(text, images, "steer")

    async def follow_up(self, text: str, images: Sequence[str] = ()) -> None:
        """Has the agent go on with this when it would stop; at once if it does nothing."""
        await self._send(text, images, "follow_up")

    def queue_follow_up(self, text: str, images: Sequence[str] = ()) -> None:
        """As `follow_up`, beside what goes on; a command is done at once."""
        is_command = command_in(text) is not None or text.startswith("!")
        self.later(self.submit(text, images) if is_command else self.follow_up(text, images))

    async def _send(self, text: str, images: Sequence[str], kind: QueuedKind) -> None:
        await self._gate.passed()
        if not text.strip() and not images:
            return
        if (command_in(text.strip()) or ("",))[0].lower() == "#key":  # also from an editor, or behind a space
            self.notice(KEY_LINE, "error")
            return
        if self.opened is None:
            self.notice("there is no model to ask yet: #key adds a key, /model chooses a model", "error")
            self.front.give_back(text, images)
            return
        try:
            message, was_masked = await user_message(
                text,
                (*self._first_images, *images),
                redactor=self.opened.redactor,
                model=self.opened.agent.model,
            )
        except ApplicationError as error:
            self.notice(str(error), "error")
            self.front.give_back(text, images)
            return
        if was_masked:
            self.notice(MASKED, "warning")
        self._first_images = ()
        while not self._gate.is_open or (self.is_running and self.state != "running"):
            await self._gate.passed()
            await self._runner.wait()  # one that was stopped may be at its end
        if self.state == "running":
            shown = extract_text(message.content)
            self._queue.add(self.opened.agent, Queued(kind, shown, message, tuple(images)))
            self.front.changed()
            return
        self.start(message, images)

    def start(self, message: UserMessage | None, images: Sequence[str] = ()) -> None:
        """Begins a run with a message, or goes on with what is queued."""
        assert self.opened is not None
        agent = self.opened.agent
        prompts: list[AgentMessage] | None = None
        if message is not None:
            prompts = [*self._shells.take(), message]
            position = len(agent.messages) + len(prompts) - 1
            self.transcript.add(UserBlock(extract_text(message.content), images=tuple(images), position=position))
            self.tally.said(prompts)
        self.begin(self._run(AgentRun(self.opened, prompts, notice=self.notice, stop=self.stop), images))

    def begin(self, work: Work) -> None:
        """Does work that takes the place of a run, such as a compaction: it can be stopped as one."""
        self._runner.begin(work)
        self.front.changed()

    def _on_end(self) -> None:
        self._local.clear()
        self._narration.leave_open_calls()
        if self.mode == "Plan" and self.state == "idle":
            self.plan.plan = self._narration.answer
        if len(self._queue) and self.opened is not None:
            if self.state == "idle":  # it came when the run had looked for the last time
                self.start(None)
                return
            self._give_back_queue()
        self.front.changed()

    async def _run(self, run: AgentRun, images: Sequence[str]) -> State:
        self.tally.run_began()
        try:
            return await run.run(self._runner.waiting, self.tally.run_ended)
        finally:
            if not run.has_begun:
                self._take_back_prompt(run.prompts, images)

    def _take_back_prompt(self, prompts: Sequence[AgentMessage], images: Sequence[str]) -> None:
        """A run ended so soon that nobody was told anything: a model could not be fetched, or was not waited for."""
        if not prompts:
            return
        self._shells.put_back(prompts[:-1])
        self.tally.unsaid(prompts)
        self.notice("the model was not told that; it is in the line again")
        assert isinstance(prompts[-1], UserMessage)
        self.front.give_back(extract_text(prompts[-1].content), images)

    def _on_event(self, event: AgentEvent) -> None:
        if type(event) is MessageUpdate:  # most of them, and nothing but the transcript changes
            self._local.clear()
            self._narration.on_event(event)
            return
        if isinstance(event, MessagesInjected):
            self._show_injected(event)
        self.tally.on_event(event)
        self._narration.on_event(event)
        self.front.changed()

    def _show_injected(self, event: MessagesInjected) -> None:
        assert self.opened is not None
        images = {id(queued.message): queued.images for queued in self._queue.entered(event.messages)}
        self._narration.show_injected(event, len(self.opened.agent.messages), images)

    # -- while it runs -----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends the run, or the person's own command; what was queued goes back to the person."""
        self._shells.stop()
        if not self.is_running:
            return
        self._runner.stop()
        if self.opened is not None:
            self.opened.agent.abort()
            self._give_back_queue()
        self.front.changed()

    def take_back(self) -> Queued | None:
        """The newest message that waits, which then is not sent."""
        taken = None if self.opened is None else self._queue.take_back(self.opened.agent)
        self.front.changed()
        return taken

    def _give_back_queue(self) -> None:
        assert self.opened is not None
        if taken := self._queue.take_all(self.opened.agent):
            images = [path for queued in taken for path in queued.images]
            self.front.give_back("\n\n".join([queued.text for queued in taken]), images)

    async def settled(self) -> None:
        """Returns when no run, command or question goes on."""
        while self.is_running or self._beside:
            await self._runner.wait()
            await self._beside.wait()
            await asyncio.sleep(0)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something beside what goes on now, for as long as the conversation is open."""
        self._beside.begin(work)

    def _failed(self, told: str) -> None:
        self.notice(told, "error")
        self.front.changed()

    async def _run_shell(self, command: str) -> None:
        redactor = None if self.opened is None else self.opened.redactor
        work = self._shells.run(command, self.opening.folder, redactor)
        self.front.changed()
        try:
            await work
        finally:
            self.front.changed()

    # -- modes -------------------------------------------------------------------------------------------------

    def set_approve(self, mode: ApprovalsMode) -> None:
        """Which calls are asked about from now on."""
        if self.opened is not None:
            self.opened.made.approvals.mode = mode
        self.front.changed()

    def toggle_plan(self) -> None:
        """Plans instead of acting, or the other way round; leaving a plan offers to carry it out."""
        if not self._gate.is_open:
            self.later(self._toggle_plan_once_open())
            return
        self.change_mode()

    def change_mode(self) -> None:
        """As `toggle_plan`, at once."""
        if self.opened is None:
            self.notice("there is no model to plan with yet: #key adds a key, /model chooses a model", "error")
            return
        if self.is_running:
            self.notice("the mode changes between runs: Esc stops this one")
            return
        agent = self.opened.agent
        if self.mode == "Execute":
            self.plan.enter(agent)
            self.notice(ENTERED)
        elif plan := self.plan.leave(agent):
            self.later(self._offer_plan(plan))
        else:
            self.notice(LEFT)
        self.tally.set_agent(agent, self.opening.settings)
        self.front.changed()

    async def _toggle_plan_once_open(self) -> None:
        await self._gate.passed()
        self.toggle_plan()

    async def _offer_plan(self, plan: str) -> None:
        if await self.front.confirm("Carry out this plan?", OFFER, "yes") != "yes":
            self.notice(f"{LEFT}; the plan was not sent")
        else:
            await self.prompt(carrying_out(plan))

    # -- the end -----------------------------------------------------------------------------------------------

    async def close(self) -> Farewell:
        """Ends what goes on, lets go of the session, and says what is to be left on the normal screen. Safe to call
        again, and at any moment."""
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
        if opened is None and self._opening is not None:  # it was left before it had opened
            found, _ = await asyncio.wait([self._opening], timeout=_CLOSING)
            opened = self._opening.result() if found and self._opening.exception() is None else None
        problem = resume = ""
        if opened is not None:
            problem = await asyncio.to_thread(opened.close)
            session_id = opened.session.short_id
            resume = resuming(session_id, self.opening.options.cwd) if session_id else ""
        self._farewell = Farewell(self.answer, resume, problem)
        return self._farewell
