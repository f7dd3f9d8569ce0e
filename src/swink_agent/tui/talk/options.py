"""What a conversation is opened with.

Owns the value alone. Folder, settings and session were found before there is a screen, so that what is wrong with them
is told on the normal one.
"""

from __future__ import annotations

from swink_agent.app.opening import Opening
from swink_agent.app.sessions import RunSession
from swink_agent.core.stream import StreamFn
from swink_agent.core.values.value import Value

__all__ = ["TalkOptions"]


class TalkOptions(Value, frozen=True, kw_only=True):
    """The opening that all of it begins with, and what is to be said first."""

    opening: Opening
    session: RunSession | None = None
    """The one to go on with, open already; a new one is made with the agent."""
    prompt: str = ""
    """Sent as soon as there is an agent."""
    images: tuple[str, ...] = ()
    """Pictures that go with the first prompt, whoever writes it."""
    stream_fn: StreamFn | None = None
    """In place of the model's own: for tests."""

    @property
    def theme(self) -> str:
        """The theme that the settings name; `auto` leaves it to the front end."""
        return self.opening.settings.value("theme")

    @property
    def has_motion(self) -> bool:
        """Whether anything may move that need not."""
        return self.opening.settings.value("motion")
