"""A conversation with a scripted model in its own folder, and a front end that records what it gets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from swink_agent.app.agent.opening import Opening, OpeningOptions
from swink_agent.app.runs.sessions import WantedSession
from swink_agent.app.talk.conversation import Conversation
from swink_agent.app.talk.front import PickItem, PreviewFn
from swink_agent.app.talk.options import TalkOptions
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.testing import scripted
from swink_agent.tui.terminal_view import TerminalView

MODEL = "anthropic:claude-sonnet-4-6"
KEY = "key-of-a-test-0123456789"


class RecordingFront:
    """Gives prepared answers, and records the questions."""

    def __init__(self) -> None:
        self.changes = 0
        self.theme = "dark"
        self.keys = (("Enter", "send"), ("Shift+Tab", "plan"))
        self.lacks: tuple[str, ...] = ()
        self.questions: list[ApprovalQuestion] = []
        self.answer: ApprovalAnswer | ApprovalChoice | None = ApprovalChoice.ONCE
        self.confirmed: list[str] = []
        self.confirmations: list[str | None] = []
        self.picked: list[tuple[str, list[PickItem]]] = []
        self.picks: list[str | None] = []
        self.previews: list[PreviewFn | None] = []
        self.secrets: list[str | None] = []
        self.edits: list[str | None] = []
        self.given_back: list[str] = []
        self.pictures_back: list[str] = []
        self.brought_back: list[str] = []
        self.copied: list[str] = []
        self.themes: list[str] = []
        self.left: list[int] = []
        self.asked = asyncio.Event()

    def changed(self) -> None:
        self.changes += 1

    async def ask(self, question: ApprovalQuestion) -> ApprovalAnswer:
        self.questions.append(question)
        self.asked.set()
        if self.answer is None:
            await asyncio.Event().wait()
        answer = self.answer
        return answer if isinstance(answer, ApprovalAnswer) else ApprovalAnswer(ApprovalChoice(str(answer)))

    async def confirm(self, title: str, choices: Sequence[tuple[str, str]], default: str) -> str | None:
        self.confirmed.append(title)
        return self.confirmations.pop(0) if self.confirmations else default

    async def pick(self, title: str, items: Sequence[PickItem], preview: PreviewFn | None = None) -> str | None:
        self.picked.append((title, list(items)))
        self.previews.append(preview)
        return self.picks.pop(0) if self.picks else None

    async def read_secret(self, title: str) -> str | None:
        return self.secrets.pop(0) if self.secrets else None

    async def edit(self, text: str) -> str | None:
        return self.edits.pop(0) if self.edits else None

    def bring_back(self, text: str, images: Sequence[str] = ()) -> None:
        self.brought_back.append(text)

    def give_back(self, text: str, images: Sequence[str] = ()) -> None:
        self.given_back.append(text)
        self.pictures_back.extend(images)

    def copy(self, text: str) -> None:
        self.copied.append(text)

    def set_theme(self, name: str) -> None:
        self.themes.append(name)

    def leave(self, code: int = 0) -> None:
        self.left.append(code)


class Talk:
    """Makes conversations in one folder. Each has to be closed before the test ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.front = RecordingFront()

    def make(self, *replies: Any, resume: str | None = None, newest: bool = False, **chosen: Any) -> Conversation:
        stream = replies[0] if len(replies) == 1 and hasattr(replies[0], "requests") else scripted(*replies)
        prompt = chosen.pop("prompt", "")
        images = chosen.pop("images", ())
        kept = chosen.pop("is_kept", True)
        wanted = WantedSession(is_kept=kept, newest=newest, id=resume)
        flags = {"model": MODEL, **chosen} if resume is None and not newest else chosen
        opening = Opening(OpeningOptions(flags=flags, cwd=str(self.folder), session=wanted))
        options = TalkOptions(opening=opening, prompt=prompt, images=images, stream_fn=stream if replies else None)
        return Conversation(options, self.front, TerminalView())

    async def open(self, *replies: Any, **chosen: Any) -> Conversation:
        conversation = self.make(*replies, **chosen)
        await conversation.open()
        return conversation


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "XAI_API_KEY", "MISTRAL_API_KEY", "SWINK_MODEL", "SWINK_APPROVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("swink_agent.app.keys.credentials.usable_keyring", lambda: None)
    return Talk(folder)


def told(conversation: Conversation, kind: str | None = None) -> list[str]:
    """The notices, oldest first, without the welcome."""
    from swink_agent.tui.transcript import NoticeBlock

    blocks = [block for block in conversation.view.transcript.blocks if isinstance(block, NoticeBlock)]
    return [block.text for block in blocks if block.kind != "welcome" and kind in (None, block.kind)]
