"""Shows a conversation as a transcript, for the full screen and for `--inline`.

Owns the transcript and the narration of the current agent. `narration` turns events into blocks, and the blocks draw
themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from swink_agent.app.talk.front import NoticeKind
from swink_agent.core.events import AgentEvent, DelegateEvent, MessagesInjected, MessageUpdate
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage

from .narration import Narration, shown_history
from .transcript import NoticeBlock, ShellBlock, ToolBlock, Transcript, UserBlock
from .transcript.messages import ChoiceBlock, HelpBlock

if TYPE_CHECKING:
    from swink_agent.core.record import RunRecord

_FRAME = 0.03


def _within_a_frame(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(_FRAME, call)


class TerminalView:
    """The `View` of the terminal: blocks of a transcript."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.transcript = Transcript()
        self._clock = clock
        self._redactor = Redactor()
        self._narration = Narration(self.transcript, self._redactor, clock=clock)
        self._shells: list[ShellBlock] = []

    @property
    def running(self) -> list[ToolBlock]:
        """The calls and the user's own commands that are running."""
        self._shells = [block for block in self._shells if not block.is_finished]
        return [*self._narration.running, *self._shells]

    def seconds_of(self, block: ToolBlock) -> float:
        return self._narration.seconds_of(block)

    def adopt(self, redactor: Redactor, label: Callable[[], str]) -> None:
        self._redactor = redactor
        self._narration = Narration(self.transcript, redactor, label=label, clock=self._clock, later=_within_a_frame)

    def show(
        self, messages: Sequence[AgentMessage], words: Sequence[tuple[str, NoticeKind]] = (), *, is_first: bool = False
    ) -> None:
        early = tuple(self.transcript.blocks) if is_first else ()
        blocks = shown_history(messages, self._redactor)
        self.transcript.clear()
        notices = [NoticeBlock(self._redactor.redact(text), kind) for text, kind in words]
        self.transcript.extend([*blocks, *notices, *early])

    def show_prompt(self, text: str, images: Sequence[str], position: int) -> None:
        self.transcript.add(UserBlock(text, images=images, position=position))

    def show_injected(self, event: MessagesInjected, length: int, images: Mapping[int, Sequence[str]]) -> None:
        self._narration.show_injected(event, length, images)

    def hear(self, event: MessageUpdate | DelegateEvent) -> None:
        if type(event) is MessageUpdate:  # text that a delegate streams is not shown
            self._narration.hear(event)

    def on_event(self, event: AgentEvent, record: RunRecord) -> None:
        self._narration.on_event(event, record)

    def end_run(self) -> None:
        self._narration.leave_open_calls()

    def notice(self, text: str, kind: NoticeKind = "info") -> None:
        self._narration.notice(text, kind)

    def show_help(self, parts: Sequence[str]) -> None:
        self.transcript.add(HelpBlock(parts))

    def offer(self, title: str, rows: Sequence[tuple[str, str, str]], choose: Callable[[int], None]) -> None:
        self.transcript.add(ChoiceBlock(title, rows, choose))

    def show_command(self, command: str) -> ShellBlock:
        block = ShellBlock(f"shell-{len(self.transcript.blocks)}", "!", command)
        self._shells.append(block)
        self.transcript.add(block)
        return block

    def clear(self) -> None:
        self.transcript.clear()
