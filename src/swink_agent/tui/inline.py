"""`swink --inline`: the same conversation in lines, for screen readers, logs and simple terminals.

Runs the program from start to end, and asks questions as text. Output is append-only: no second screen, no cursor
movement, no animation. `app.talk` holds the conversation, `transcript` lays it out.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from base64 import b64encode
from collections.abc import Coroutine, Mapping, Sequence
from types import FrameType
from typing import Any

from swink_agent.app.runs.telling import seconds
from swink_agent.app.talk.commands import is_command
from swink_agent.app.talk.conversation import Conversation
from swink_agent.app.talk.front import PickItem, PreviewFn
from swink_agent.app.talk.options import TalkOptions
from swink_agent.app.talk.questions import AskedQuestion
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalQuestion
from swink_agent.core.approval import Defer
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.cells import wrap
from swink_agent.rendering.escaping import safe_display, safe_line, safe_text

from .composing.matching import matching
from .composing.pasting import folded_label
from .inline_input import LineReader
from .inline_output import LineWriter, TranscriptPrinter, is_dumb
from .own_status import OwnStatus, own_status, status_facts
from .status_rows import approve_word, beside_parts
from .terminal_view import TerminalView
from .themes import THEMES, theme_for
from .transcript import Block

_TWICE = 2.0
"""Seconds within which a second Ctrl+C leaves."""
_DRAW = 0.1
_PROGRESS = 10.0
_GRACE = 0.3
"""Seconds after a question appears in which no input answers it."""
_MOST_LISTED = 30
_PROMPT = "> "
_KEYS = (
    ("Enter", "send; during a run: steer it"),
    ("/queue text", "during a run: queue a follow-up, sent when the run would stop"),
    ("Ctrl+C", "stop; queued messages are shown again"),
    ("Ctrl+C twice, Ctrl+D", "leave"),
    ("Ctrl+Z", "go to the shell; fg comes back"),
    ("!command", "run a command yourself; the model sees it with your next prompt"),
    ("lines pasted together", "are one prompt"),
)


def run_inline(options: TalkOptions, *, environ: Mapping[str, str] = os.environ) -> int:
    return asyncio.run(InlineFront(options, environ).run())


class InlineFront:
    def __init__(self, options: TalkOptions, environ: Mapping[str, str]) -> None:
        name = options.theme if options.theme in THEMES else "plain"  # `auto` leaves colours to the terminal
        self._environ = environ
        self._is_dumb = is_dumb(environ)
        self._writer = LineWriter(sys.stdout.fileno(), theme_for(name, environ), is_plain=self._is_dumb)
        self._reader = LineReader(sys.stdin.fileno())
        self._view = TerminalView()
        self.talk = Conversation(options, self, self._view)
        self._own = own_status(options, self.talk, lambda: None, environ)
        self._printer = TranscriptPrinter(self._view.transcript, self._writer, on_write=self._leave_prompt)
        self._code: int | None = None
        self._left = asyncio.Event()
        self._is_prompted = False
        self._is_lent = False
        self._was_running = False
        self._due: asyncio.TimerHandle | None = None
        self._progress = ("", 0.0)
        self._interrupted = -_TWICE
        self._asking = asyncio.Lock()
        self._answer: asyncio.Future[str | None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Reads, sends and writes until the user leaves."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)

        def end(number: int, frame: FrameType | None) -> None:
            self._writer.end_soon()  # the writer may be blocking the event loop
            self._code = 128 + number if self._code is None else self._code
            loop.call_soon_threadsafe(self.leave, 128 + number)

        before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
        self._view.transcript.on_change(self._on_change)
        self._reader.open()
        reading = asyncio.ensure_future(self._read())
        try:
            await self.talk.open()
            self.talk.modes.offer_work()
            self._printer.skip_earlier()
            self._draw()
            self._offer_prompt()
            await self._left.wait()
        finally:
            reading.cancel()
            self._reader.close()
            for task in (reading, *self._tasks):
                task.cancel()
            await asyncio.gather(reading, *self._tasks, return_exceptions=True)
            if self._own is not None:
                self._own.close()
            farewell = await self.talk.close()
            self._draw()
            loop.remove_signal_handler(signal.SIGINT)
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._leave_prompt()
        if farewell.problem:
            self._say(f"warning: {farewell.problem}", "warning")
        if farewell.resume:
            self._say(f"To continue this session: {farewell.resume}", "text")
        return self._code or 0

    # -- input -------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while (text := await self._reader.text()) is not None:
            self._is_prompted = False  # the terminal has ended the row
            if self._answer is not None:
                if not self._answer.done():
                    self._answer.set_result(text)
                continue
            if text.strip():
                self._printer.expect(text)
                self._begin(self._submit(text))
            else:
                self._offer_prompt()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
        self.leave(0)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _submit(self, text: str) -> None:
        waiting = self.talk.queue
        if folded_label(text) is None:
            await self.talk.submit(text)
        else:  # a long paste is never a command, whatever it begins with
            if is_command(text):
                self._say(f"(sent to the model: a text this long is not a command, though it begins with {text[0]})")
            await self.talk.prompt(text)
        self._draw()
        if self.talk.is_running and len(self.talk.queue) > len(waiting):
            is_later = self.talk.queue[-1].kind == "follow_up"
            waits = "until the run would stop" if is_later else "for the run to take it up"
            self._say(f"(waits {waits}; Ctrl+C stops the run)")
        self._offer_prompt()

    def _interrupt(self) -> None:
        if self._is_lent:
            return  # the editor gets it
        now = time.monotonic()
        is_second = now - self._interrupted < _TWICE
        self._interrupted = now
        if self._answer is not None and not self._answer.done() and not self.talk.is_running:
            self._answer.set_result(None)
        elif (self.talk.is_running or self._view.running) and not is_second:
            self._say("stopping; Ctrl+C once more leaves")
            self.talk.stop()
        elif is_second:
            self.leave(130 if self.talk.is_running else 0)
        else:
            self._say("Ctrl+C once more leaves; /quit does too")
            self._offer_prompt()

    async def _line(self) -> str | None:
        """Waits for the line that answers a question; `None` at the end of the input."""
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._answer = None

    # -- output ------------------------------------------------------------------------------------------------

    def _on_change(self, block: Block | None) -> None:
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(_DRAW, self._draw)

    def _draw(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._answer is None:  # print nothing between a question and its answer
            self._printer.draw()
        if self._writer.is_lost:
            self.leave(1)

    def _leave_prompt(self) -> None:
        if self._is_prompted:
            self._is_prompted = False
            self._writer.write("\n")

    def _offer_prompt(self) -> None:
        if not self._is_prompted and self._answer is None and not self.talk.is_running and not self._left.is_set():
            self._is_prompted = True
            self._writer.write(_PROMPT)

    def _say(self, text: str, role: str = "dim") -> None:
        self._leave_prompt()
        for line in safe_text(text).split("\n"):
            for row in wrap(line, self._writer.width, at_words=True):
                self._writer.line(row, role)

    # -- the front of a conversation -----------------------------------------------------------------------------

    lacks = ()

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        return _KEYS

    @property
    def theme(self) -> str:
        return self._writer.theme.name

    def changed(self) -> None:
        self._tell_progress()
        is_running = self.talk.is_running
        if self._was_running and not is_running:
            self._draw()
            if self._own is None:
                self._say(self._standing())
                self._offer_prompt()
            else:
                self._begin(self._own_standing(self._own))
        self._was_running = is_running

    async def _own_standing(self, own: OwnStatus) -> None:
        own.tell(status_facts(self.talk, self._writer.width))
        text = await own.settled()
        self._say(f"[{self.talk.mode} · {self.talk.state} · {text}]" if text else self._standing())
        self._offer_prompt()

    def _standing(self) -> str:
        talk = self.talk
        cost = "" if talk.usage.dollars is None else f" · {dollars(talk.usage.dollars)}"
        beside = "".join([f" · {part}" for part in beside_parts(talk.branch, len(talk.hosts), len(talk.tasks))])
        return (
            f"[{talk.mode} · {talk.state} · {approve_word(talk.approve)} · {safe_line(talk.model)}"
            f" · {talk.usage.fill:.0%} of the window · {talk.usage.tokens:,} tokens{cost}"
            f" · {seconds(round(talk.elapsed, 1))} · {safe_line(talk.folder)}{beside}]"
        )

    def _tell_progress(self) -> None:
        """Reports the progress of a local model: each new phase, and every ten seconds."""
        text, phase = self.talk.progress, self.talk.progress_phase
        told, told_at = self._progress
        now = time.monotonic()
        if text and (phase != told or now - told_at >= _PROGRESS):
            self._progress = (phase, now)
            self._say(text)

    async def ask(self, question: ApprovalQuestion) -> ApprovalAnswer | Defer:
        async with self._asking:
            self._draw()
            if not self._is_dumb and self.talk.opening.settings.value("notify") != "off":
                self._writer.write("\x07")
            asked = await asyncio.to_thread(AskedQuestion, question, self.talk.redact)
            self._show_question(asked)
            try:
                return await self._decided(asked)
            finally:
                self._draw()

    def _show_question(self, asked: AskedQuestion) -> None:
        question, view, width = asked.question, asked.view, self._writer.width
        self._leave_prompt()
        self._printer.asked_about(question.request.call_id)
        number, total = self.talk.place_of(question.request.call_id)
        if question.can_wait and total > 1:
            self._say(f"Call {number} of {total}", "text")
        # As on the screen, every row of the model's text begins with a mark, also where a line is wrapped.
        for row in (*view.title_rows(width, 20), *view.content_rows(width)):
            self._writer.line(row.text, "text")
        for row in view.told_rows(width):
            self._writer.line(row.text, "warning" if "red" in row.styles else "dim")
        for row in answer_rows(asked):
            self._say(row, "text")

    async def _decided(self, asked: AskedQuestion) -> ApprovalAnswer | Defer:
        await asyncio.sleep(_GRACE)
        self._reader.drop()
        while True:
            self._writer.write("Run it? ")
            line = await self._line()
            if line is None:
                return asked.given_up()
            word, _, rest = line.strip().partition(" ")
            key = word.lower().rstrip(":,")
            if key in ("no", "because"):
                key = "b" if rest.strip() else "n"
            chosen = asked.named({"yes": "y", "later": "l"}.get(key, key))
            # In lines, a change is accepted as a whole. Words after a yes may mean anything but a yes.
            if chosen and chosen.means != "hunks" and (chosen.means in ("later", "because") or not rest.strip()):
                if chosen.means == "keep":
                    await self.talk.keep_rule(asked.rule)
                return asked.answer(chosen.means, rest)
            self._say("answer with one of the numbers or letters above")

    async def confirm(self, title: str, choices: Sequence[tuple[str, str]], default: str) -> str | None:
        async with self._asking:
            self._draw()
            self._say(title, "text")
            for number, (key, words) in enumerate(choices, 1):
                self._say(f"  {number}: {words}{' (Enter)' if key == default else ''}", "text")
            self._reader.drop()
            while True:
                self._writer.write("Which? ")
                line = await self._line()
                if line is None:
                    return None
                found = _chosen(line.strip().lower(), choices, default)
                if found:
                    return found
                self._say("answer with a number; Ctrl+C for none of them")

    async def pick(self, title: str, items: Sequence[PickItem], preview: PreviewFn | None = None) -> str | None:
        async with self._asking:
            self._draw()
            wanted = ""
            while True:
                shown = matching(items, wanted)
                self._say(title, "text")
                for number, item in enumerate(shown[:_MOST_LISTED], 1):
                    detail = f"  ({item.detail})" if item.detail else ""
                    self._say(f"  {number}: {safe_line(item.label + detail)}", "text")
                if len(shown) > _MOST_LISTED:
                    self._say(f"  … and {len(shown) - _MOST_LISTED} more")
                self._writer.write("A number, words to search for, or Enter for none: ")
                line = await self._line()
                if line is None or not line.strip():
                    return None
                text = line.strip()
                if text.isdecimal() and 1 <= int(text) <= min(len(shown), _MOST_LISTED):
                    return shown[int(text) - 1].key
                wanted = text

    async def read_secret(self, title: str) -> str | None:
        async with self._asking:
            self._draw()
            with self._reader.silent():
                self._writer.write(f"{safe_line(title)} (does not show, Enter alone for none): ")
                line = await self._line()
            self._writer.write("\n")
            return line.strip() if line and line.strip() else None

    async def edit(self, text: str) -> str | None:
        from .composing.editor import EditorError, edited

        async with self._asking:
            self._draw()
            self._is_lent = True
            try:
                with self._reader.lent(), self._writer.held():
                    return await edited(text, self._environ, self.talk.opening.writable)
            except EditorError as error:
                self.talk.notice(str(error), "error")
                return None
            finally:
                self._is_lent = False

    def bring_back(self, text: str, images: Sequence[str] = ()) -> None:
        pass  # the prompt is above; written lines cannot be edited

    def give_back(self, text: str, images: Sequence[str] = ()) -> None:
        self._say("not sent:")
        self._say(text, "text")

    def copy(self, text: str) -> None:
        if self._is_dumb:
            self._say("this terminal has no clipboard; the answer is above")
            return
        self._leave_prompt()
        self._writer.write(f"\x1b]52;c;{b64encode(text.encode()).decode()}\x07")

    def set_theme(self, name: str) -> None:
        self._writer.set_theme(theme_for(name, self._environ))

    def leave(self, code: int = 0) -> None:
        if self._code is None:
            self._code = code
        self._left.set()


def answer_rows(asked: AskedQuestion) -> list[str]:
    """Returns the offered answers, a row each."""
    rows: list[str] = []
    for each in asked.answers:
        behind = "(write the reason after it)" if each.means == "because" else safe_display(each.foreign, 200)
        if each.means != "hunks":
            rows.append(f"  {each.number} or {each.key}: {each.label} {behind}".rstrip())
    return rows


def _chosen(text: str, choices: Sequence[tuple[str, str]], default: str) -> str:
    """Returns the key that was chosen by number, name or first letter; Enter chooses the default."""
    if not text:
        return default
    if text.isdecimal():
        return choices[int(text) - 1][0] if 1 <= int(text) <= len(choices) else ""
    return next((key for key, _ in choices if key.startswith(text)), "")
