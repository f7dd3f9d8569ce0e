"""Defines what a conversation needs from its front end: questions, lists, text input.

Owns the protocol that both front ends implement, the full screen and the one that prints lines. Does not draw.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..composing.matching import PickItem

if TYPE_CHECKING:
    from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalQuestion
    from swink_agent.core.approval import Defer

    from ..transcript.line import Line

PreviewFn: TypeAlias = "Callable[[str], Awaitable[Sequence[Line]]]"
"""Returns the preview of the item with this key."""


class Front(Protocol):
    """A front end. The conversation calls it in the event loop's thread."""

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """The keys of the front end and what they do, for `#help`."""
        ...

    @property
    def theme(self) -> str:
        """The name of the current colour theme."""
        ...

    def changed(self) -> None:
        """Draws again soon, because the status, queue, mode or usage changed."""
        ...

    async def ask(self, question: ApprovalQuestion) -> ApprovalAnswer | Defer:
        """Asks the user to approve a call; `Defer` only if the call can wait. Cancelled when the run is stopped."""
        ...

    async def confirm(self, title: str, choices: Sequence[tuple[str, str]], default: str) -> str | None:
        """Returns the key of the choice that the user takes, from pairs of key and text; `None` for none of them."""
        ...

    async def pick(self, title: str, items: Sequence[PickItem], preview: PreviewFn | None = None) -> str | None:
        """Returns the key of the item that the user picks from a searchable list; `None` for none of them."""
        ...

    async def read_secret(self, title: str) -> str | None:
        """Reads a line without showing or storing it; `None` if the user cancels or enters nothing."""
        ...

    async def edit(self, text: str) -> str | None:
        """Opens the text in the user's editor and returns the result; `None` if it is empty or the editor failed."""
        ...

    def bring_back(self, text: str, images: Sequence[str] = ()) -> None:
        """Puts a prompt whose request failed back into the input, if the front end has an input and it is empty."""
        ...

    def give_back(self, text: str, images: Sequence[str] = ()) -> None:
        """Puts unsent text back into the input, with the paths of its pictures."""
        ...

    def copy(self, text: str) -> None:
        """Puts text onto the clipboard."""
        ...

    def set_theme(self, name: str) -> None:
        """Changes the colour theme."""
        ...

    def leave(self, code: int = 0) -> None:
        """Ends the program soon."""
        ...
