"""What a conversation needs of whoever shows it: questions put, lists offered, text handed over.

Owns the protocol between a conversation and its front end, full-screen or by lines. Nothing here draws.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..composing.picking import PickItem

if TYPE_CHECKING:
    from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalQuestion

    from ..transcript.line import Line

__all__ = ["Front", "PickItem", "PreviewFn"]


PreviewFn: TypeAlias = "Callable[[str], Awaitable[Sequence[Line]]]"
"""What is shown of the item with that key before it is chosen."""


class Front(Protocol):
    """A front end, as its conversation knows it. All of it is called in the thread of the event loop."""

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """Its keys and what they do, for the help."""
        ...

    @property
    def theme(self) -> str:
        """The name of the colours that it draws in."""
        ...

    def changed(self) -> None:
        """Status, queue, mode or usage are not what they were: draw soon."""
        ...

    async def ask(self, question: ApprovalQuestion) -> ApprovalAnswer:
        """Puts a call to the person. It is cancelled when the run is stopped."""
        ...

    async def confirm(self, title: str, choices: Sequence[tuple[str, str]], default: str) -> str | None:
        """One of a few choices, each a key and its words; `None` for none of them."""
        ...

    async def pick(self, title: str, items: Sequence[PickItem], preview: PreviewFn | None = None) -> str | None:
        """The key of an item from a list that can be searched; `None` for none of them."""
        ...

    async def read_secret(self, title: str) -> str | None:
        """A line that is shown nowhere and kept nowhere; `None` if it was not given."""
        ...

    async def edit(self, text: str) -> str | None:
        """The text as the person's own editor left it; `None` where that was left empty, unchanged or in error."""
        ...

    def give_back(self, text: str, images: Sequence[str] = ()) -> None:
        """Puts text that was not sent back before the person, with the paths of its pictures."""
        ...

    def copy(self, text: str) -> None:
        """Puts text onto the clipboard."""
        ...

    def set_theme(self, name: str) -> None:
        """Draws in other colours from now on."""
        ...

    def leave(self, code: int = 0) -> None:
        """Ends the program soon."""
        ...
