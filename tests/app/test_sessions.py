"""The session of one run: its state while it is being closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from swink_agent import Agent
from swink_agent.app.runs.sessions import RunSession, WantedSession, open_store
from swink_agent.app.settings.settings import Settings, load_settings
from swink_agent.memory import JsonlSessionStore, Session, SessionError
from swink_agent.testing import scripted, text


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    flags = {"sessions_folder": str(tmp_path / "sessions")}
    return load_settings(path=Path("/no/such"), environ={}, flags=flags)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.mark.parametrize("says", ["hello", None])
async def test_its_id_is_known_at_every_moment_also_while_it_is_being_closed(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch, says: str | None
) -> None:
    known: list[str | None] = []
    close = Session.close

    def asked_meanwhile(session: Session) -> None:
        known.append(kept.id)
        close(session)
        known.append(kept.id)

    monkeypatch.setattr(Session, "close", asked_meanwhile)
    with RunSession(settings, folder, WantedSession()) as kept:
        agent = Agent("test:model", stream_fn=scripted(text("hi")))
        kept.attach(agent)
        if says is not None:
            await agent.prompt(says)
        expected = kept.id
    assert (expected is None) == (says is None)  # one without a message is gone again, and is nobody's to go on with
    assert [*known, kept.id] == [expected] * 3


async def test_an_unwritten_session_has_no_id(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(session: Session) -> None:
        session.path.unlink()
        raise SessionError("the disk is gone", path="")

    monkeypatch.setattr(Session, "close", fails)
    with RunSession(settings, folder, WantedSession()) as kept:
        agent = Agent("test:model", stream_fn=scripted(text("hi")))
        kept.attach(agent)
        await agent.prompt("hello")
        assert kept.close() == "the disk is gone"
    assert kept.id is None


async def test_written_sessions_stay_if_their_folder_cannot_be_looked_at(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = Session.close

    def closes_badly(session: Session) -> None:
        close(session)
        raise SessionError("the disk does not answer", path="")

    def fails(*_: object) -> None:
        raise SessionError("the disk does not answer", path="")

    with RunSession(settings, folder, WantedSession()) as kept:
        agent = Agent("test:model", stream_fn=scripted(text("hi")))
        kept.attach(agent)
        await agent.prompt("hello")
        written = kept.id
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(Session, "close", closes_badly)
            meanwhile.setattr(JsonlSessionStore, "load", fails)
            assert kept.close() == "the disk does not answer"
    assert kept.id == written
    assert [info.id for info in open_store(settings).list()] == [written]
