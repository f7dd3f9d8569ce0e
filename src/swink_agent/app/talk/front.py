"""Defines what a conversation needs from its front end: questions, lists, text input, and showing what happens.

`Front` asks the user, and `View` shows the conversation. Every front end implements both: the full screen, the one that
prints lines, and the one that serves browsers. A front end may have one reader or many.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalQuestion
    from swink_agent.core.approval import Defer
    from swink_agent.core.events import AgentEvent, DelegateEvent, MessagesInjected, MessageUpdate
    from swink_agent.core.record import RunRecord
    from swink_agent.core.secrets.redaction import Redactor
    from swink_agent.core.types import AgentMessage, ToolOutcome

NoticeKind: TypeAlias = Literal["info", "warning", "error", "welcome"]
"""The kind of a message from the program."""


class PickItem(NamedTuple):
    """An item to pick: its key, its label, and a few words about it."""

    key: str
    label: str
    detail: str = ""


class PreviewLine(NamedTuple):
    """A line of the preview of an item, safe to show."""

    text: str
    is_dim: bool = False


PreviewFn: TypeAlias = "Callable[[str], Awaitable[Sequence[PreviewLine]]]"
"""Returns the preview of the item with this key."""


class Front(Protocol):
    """A front end. The conversation calls it in the event loop's thread."""

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """The keys of the front end and what they do, for `/help`."""
        ...

    @property
    def lacks(self) -> Collection[str]:
        """The commands that the front end does not have, for `/help`."""
        ...

    @property
    def theme(self) -> str:
        """The name of the current colour theme."""
        ...

    def changed(self) -> None:
        """Draws again soon, because the status, queue, mode or usage changed."""

    async def ask(self, question: ApprovalQuestion) -> ApprovalAnswer | Defer:
        """Asks the user to approve a call; `Defer` only if the call can wait. Cancelled when the run is stopped."""
        ...

    async def confirm(self, title: str, choices: Sequence[tuple[str, str]], default: str) -> str | None:
        """Returns the key of the user's choice, from pairs of key and text; `None` for none of them."""

    async def pick(self, title: str, items: Sequence[PickItem], preview: PreviewFn | None = None) -> str | None:
        """Returns the key of the item that the user picks from a searchable list; `None` for none of them."""

    async def read_secret(self, title: str) -> str | None:
        """Reads a line without showing or storing it; `None` if the user cancels or enters nothing."""

    async def edit(self, text: str) -> str | None:
        """Opens the text in the user's editor and returns the result; `None` if it is empty or the editor failed."""

    def bring_back(self, text: str, images: Sequence[str] = ()) -> None:
        """Puts a prompt whose request failed back into the input, if the front end has an input and it is empty."""

    def give_back(self, text: str, images: Sequence[str] = ()) -> None:
        """Puts unsent text back into the input, with the paths of its pictures."""

    def copy(self, text: str) -> None:
        """Puts text onto the clipboard."""

    def set_theme(self, name: str) -> None:
        """Changes the colour theme."""

    def leave(self, code: int = 0) -> None:
        """Ends the program soon."""


class ShownCommand(Protocol):
    """A shell command that the user runs, as a view shows it."""

    def begin(self) -> None:
        """Shows that the command runs now."""

    def hear(self, text: str) -> None:
        """Adds output, masked."""

    def finish(
        self,
        outcome: ToolOutcome,
        text: str,
        *,
        is_error: bool,
        details: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> None:
        """Shows how the command ended, with its whole output, masked."""


class View(Protocol):
    """Shows a conversation as it happens. The conversation calls it in the event loop's thread, in order."""

    def adopt(self, redactor: Redactor, label: Callable[[], str]) -> None:
        """From now on shows another agent, masked by this redactor. `label` returns the label of new replies."""

    def show(
        self, messages: Sequence[AgentMessage], words: Sequence[tuple[str, NoticeKind]] = (), *, is_first: bool = False
    ) -> None:
        """Replaces everything with this history and these notices; with `is_first`, puts them at the top."""

    def show_prompt(self, text: str, images: Sequence[str], position: int) -> None:
        """Adds a prompt of the user, masked, that has this position in the history."""

    def show_injected(self, event: MessagesInjected, length: int, images: Mapping[int, Sequence[str]]) -> None:
        """Adds the queued messages that entered the history, which now has `length` messages.

        `images` maps `id(message)` to the names of its pictures.
        """

    def hear(self, event: MessageUpdate | DelegateEvent) -> None:
        """Adds a piece of a reply, or of a delegate's stream. Pieces are frequent."""

    def on_event(self, event: AgentEvent, record: RunRecord) -> None:
        """Shows any other event, after the run's `record` was fed it."""

    def end_run(self) -> None:
        """Closes what a run left open, because the run has ended."""

    def notice(self, text: str, kind: NoticeKind = "info") -> None:
        """Adds a message from the program, and masks it."""

    def show_help(self, parts: Sequence[str]) -> None:
        """Adds the parts of a help text."""

    def offer(self, title: str, rows: Sequence[tuple[str, str, str]], choose: Callable[[int], None]) -> None:
        """Adds choices, each with key, label and detail; `choose` is called with the number of the chosen one."""

    def show_command(self, command: str) -> ShownCommand:
        """Adds a shell command that the user runs, masked."""
        ...

    def clear(self) -> None:
        """Removes everything that is shown. The conversation stays."""
