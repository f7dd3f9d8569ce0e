"""What a session is called at the head of a document. Owns that one decision for all exports."""

from __future__ import annotations

from swink_agent.memory.sessions.info import SessionInfo
from swink_agent.rendering.characters import one_line


def title_of(info: SessionInfo) -> str:
    return one_line(info.title, 160) or f"Session {one_line(info.id)}"
