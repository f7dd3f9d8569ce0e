"""The options of a conversation.

The caller opens folder, settings and session before the screen starts, so that errors appear on the normal screen.
"""

from __future__ import annotations

from swink_agent.app.agent.opening import Opening
from swink_agent.app.runs.sessions import RunSession
from swink_agent.core.stream import StreamFn
from swink_agent.core.values.value import Value


class TalkOptions(Value, frozen=True, kw_only=True):
    """What a conversation starts with: folder and settings, session, and first prompt."""

    opening: Opening
    session: RunSession | None = None
    """An open session to resume; `None` starts a new one."""
    prompt: str = ""
    """Sent as soon as the agent is ready."""
    images: tuple[str, ...] = ()
    """Paths of pictures for the first prompt, whether it is `prompt` or typed by the user."""
    answers: tuple[str, ...] = ()
    """Answers to calls of the session that wait, as `--answer` takes them. They are checked."""
    stream_fn: StreamFn | None = None
    """Replaces the model's own stream function, for tests."""

    @property
    def theme(self) -> str:
        """The theme in the settings; with `auto` the front end chooses."""
        return self.opening.settings.value("theme")

    @property
    def has_motion(self) -> bool:
        """Whether animations are allowed."""
        return self.opening.settings.value("motion")
