"""The first run, keys that are stored and never shown, and a local model that has to be fetched."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from swink_agent.app.errors import NoModel
from swink_agent.app.talk.conversation import Conversation
from swink_agent.app.talk.first_run import short_folder
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted
from swink_agent.core.types import ModelSpec
from swink_agent.local.events import LocalModelEvent, LocalState
from swink_agent.testing import scripted, text
from swink_agent.tui.transcript import NoticeBlock

from .conftest import KEY, Talk, told

SECRET = "sk-proj-" + "Ab3" * 15


def everything(conversation: Conversation) -> str:
    return "\n".join([block.text for block in conversation.view.transcript.blocks])


def holding(folder: Path, secret: str) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setattr("swink_agent.app.agent.models.has_local_extra", lambda: True)
    monkeypatch.setattr("swink_agent.app.agent.models.choose_model.__kwdefaults__", {"has_local": lambda: True})


async def test_the_local_model_answers_at_first_and_a_notice_says_how_to_add_a_key(
    talk: Talk, nothing_set: None
) -> None:
    conversation = await talk.open(text("Hello."), model=None)
    welcome = conversation.view.transcript.blocks[0]
    assert isinstance(welcome, NoticeBlock)
    assert welcome.kind == "welcome"
    for words in ("No key is set", "the model on this machine answers", "Esc stops", "/key adds"):
        assert words in welcome.text
    assert conversation.model.startswith("local:")
    await conversation.submit("hi")
    await conversation.settled()
    assert conversation.answer == "Hello."
    await conversation.close()


def test_a_folder_is_written_from_the_home_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert short_folder(Path("/home/ada")) == "~"
    assert short_folder(Path("/home/ada/src/names")) == "~/src/names"
    assert short_folder(Path("/home/adam")) == "/home/adam"


async def test_the_welcome_names_model_and_folder(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(talk.folder.parent))
    conversation = await talk.open(text("Hello."))
    assert conversation.view.transcript.blocks[0].text.startswith(
        f"anthropic:claude-sonnet-4-6 in ~/{talk.folder.name}."
    )
    await conversation.close()


class Fetching:
    """A fetch that goes on until it is cancelled, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.began = threading.Event()
        self._error = error

    def __call__(self, cancel: CancellationToken) -> None:
        self.began.set()
        if self._error is not None:
            raise self._error
        while not cancel.is_cancelled:
            threading.Event().wait(0.005)
        raise Aborted


async def test_a_fetch_shows_as_progress_and_a_stop_ends_it(talk: Talk, promptly: Any) -> None:
    stream = scripted(text("Never."))
    conversation = await talk.open(stream)
    assert conversation.opened is not None
    fetching = Fetching()
    estimate = conversation.usage.estimate
    conversation.opened.made.prepare = fetching
    await conversation.submit("hi")
    await asyncio.to_thread(fetching.began.wait)
    event = LocalModelEvent(LocalState.FETCHING, "qwen", done=300_000_000, total=1_200_000_000)
    await asyncio.to_thread(conversation.around["on_local_state"], event)
    await asyncio.sleep(0)
    assert conversation.progress.startswith("fetching qwen [█████░")
    assert "25% of 1.2 GB" in conversation.progress
    assert conversation.state == "running"
    conversation.stop()
    await conversation.settled()
    assert (conversation.state, conversation.progress, stream.requests) == ("aborted", "", [])
    assert talk.front.given_back == ["hi"]
    assert told(conversation)[-1] == "the prompt was not sent; it is in the input line again"
    assert conversation.usage.estimate == estimate
    await conversation.close()


async def test_the_phase_of_progress_stays_while_only_the_figures_change(talk: Talk) -> None:
    conversation = await talk.open(text("Hello."))
    phases: list[str] = []
    for event in (
        LocalModelEvent(LocalState.FETCHING, "qwen", "asking the hub"),
        LocalModelEvent(LocalState.FETCHING, "qwen", done=300, total=1200),
        LocalModelEvent(LocalState.LOADING, "qwen"),
        LocalModelEvent(LocalState.READY, "qwen", done=512, total=2048),
        LocalModelEvent(LocalState.READY, "qwen", done=1024, total=2048),
    ):
        conversation.around["on_local_state"](event)
        await asyncio.sleep(0)
        phases.append(conversation.progress_phase)
    assert phases == ["fetching qwen", "fetching qwen", "loading qwen", "ready qwen", "ready qwen"]
    await conversation.close()


async def test_a_model_that_cannot_be_fetched_is_told_and_the_next_prompt_tries_again(talk: Talk) -> None:
    conversation = await talk.open(text("Here."))
    assert conversation.opened is not None
    conversation.opened.made.prepare = Fetching(NoModel("the hub cannot be reached: look at the network"))
    await conversation.submit("hi")
    await conversation.settled()
    assert conversation.state == "error"
    assert told(conversation, "error") == ["the hub cannot be reached: look at the network"]
    conversation.opened.made.prepare = None
    await conversation.submit("hi")
    await conversation.settled()
    assert (conversation.state, conversation.answer) == ("idle", "Here.")
    await conversation.close()


async def test_the_slow_first_reading_shows_as_progress_until_the_first_word(talk: Talk) -> None:
    seen: list[str] = []

    def answer(request: Any) -> Any:
        conversation.around["on_local_state"](LocalModelEvent(LocalState.READY, "qwen", done=512, total=2048))
        return text("Hello.")

    talk.front.changed = lambda: seen.append(conversation.progress)
    conversation = talk.make(scripted(answer, suspend=True))
    await conversation.open()
    await conversation.submit("hi")
    await conversation.settled()
    assert "reading the prompt: 512 of 2,048 tokens" in seen
    assert conversation.progress == ""
    await conversation.close()


# -- keys ----------------------------------------------------------------------------------------------------


async def test_the_wizard_picks_a_provider_reads_the_key_and_shows_its_model(talk: Talk, tmp_path: Path) -> None:
    conversation = await talk.open(text("x"))
    talk.front.picks = ["openai"]
    talk.front.secrets = [SECRET]
    await conversation.submit("/key")
    assert [item.key for item in talk.front.picked[0][1]][:2] == ["anthropic", "openai"]
    assert talk.front.confirmed == []  # what is typed now is a prompt
    assert conversation.model == "anthropic:claude-sonnet-4-6"
    offer = conversation.view.transcript.blocks[-1]
    assert [row.strip() for row in offer.text.splitlines()] == [
        "anthropic:claude-sonnet-4-6 is still used. To change that, type or click:",
        "/model openai:gpt-5.6-terra",
    ]
    offer.toggle(1)
    await conversation.settled()
    assert conversation.model == "openai:gpt-5.6-terra"
    assert f"the key of openai is in {tmp_path / 'config' / 'keys.json'}" in told(conversation)
    await conversation.submit("/keys")
    assert "openai" in told(conversation)[-1]
    assert KEY not in everything(conversation)
    await conversation.close()
    assert SECRET not in everything(conversation)
    assert holding(tmp_path, SECRET) == ["keys.json"]


@pytest.mark.parametrize("line", [f"/key openai {SECRET}", f"/key {SECRET}", f"/KEY openai {SECRET}"])
async def test_a_key_on_the_line_is_taken_and_seen_nowhere(talk: Talk, tmp_path: Path, line: str) -> None:
    stream = scripted(text("ok"))
    conversation = await talk.open(stream)
    talk.front.picks = ["openai"]
    talk.front.confirmations = ["no"]
    await conversation.submit(line)
    await conversation.submit(f"is {SECRET} my key?")
    await conversation.settled()
    await conversation.close()
    assert SECRET not in everything(conversation)
    assert SECRET not in str([message.content for message in stream.requests[0].messages])
    assert holding(tmp_path, SECRET) == ["keys.json"]


@pytest.mark.parametrize("line", [f"/key opnai {SECRET}", f"/key bedrock {SECRET}", f"/key openai {SECRET} and more"])
async def test_a_key_line_that_is_wrong_says_so_without_the_key(talk: Talk, tmp_path: Path, line: str) -> None:
    conversation = await talk.open(text("x"))
    await conversation.submit(line)
    assert len(told(conversation, "error")) == 1
    await conversation.close()
    assert SECRET not in everything(conversation)
    assert holding(tmp_path, SECRET) == []


async def test_a_first_key_opens_what_could_not_be_opened(talk: Talk, monkeypatch: Any) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setattr("swink_agent.app.agent.models.choose_model.__kwdefaults__", {"has_local": lambda: False})
    conversation = talk.make(model=None)
    await conversation.open()
    assert conversation.state == "error"
    talk.front.secrets = [SECRET]
    await conversation.submit("/key openai")
    assert (conversation.state, conversation.model) == ("idle", "openai:gpt-5.6-terra")
    assert conversation.opened is not None
    assert conversation.opened.agent.model == ModelSpec("openai", "gpt-5.6-terra")
    await conversation.close()
