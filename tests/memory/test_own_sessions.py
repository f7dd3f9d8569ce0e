"""Sessions with an application's own ids and metadata."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, Redactor
from swink_agent.memory import (
    AsyncSessionStore,
    JsonlSessionStore,
    SessionError,
    SessionExists,
    SessionInUse,
    SessionStore,
)
from swink_agent.testing import scripted

from .kinds import Kind


@pytest.fixture
def store(kind: Kind, tmp_path: Path) -> SessionStore:
    return kind.make(tmp_path / "sessions")


# -- ids -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["order-17", "a", "7", "A_b-9", "x" * 128, "3f2b8c1e-0000-4000-8000-123456789abc"])
def test_a_session_has_the_id_that_it_was_given(store: SessionStore, own: str) -> None:
    with store.create(id=own, title="Mine") as session:
        assert (session.id, session.info.id) == (own, own)
    assert [info.id for info in store.list()] == [own]
    assert store.load(own).records()[0].entry.id == own  # type: ignore[union-attr]
    with store.open(own) as again:
        assert again.info.title == "Mine"
    store.delete(own)
    store.create(id=own).close()  # a deleted session leaves its id


@pytest.mark.parametrize(
    "wrong",
    ["", "-a", "_a", ".a", "a.b", "a/b", "../a", "a b", "a\n", "ä", "a\0", "x" * 129, "a:b", "a@b"],
)
def test_an_id_that_no_session_can_have_is_refused_before_anything_happens(
    store: SessionStore, tmp_path: Path, wrong: str
) -> None:
    with pytest.raises(ValueError, match="cannot be the id of a session: an id has 1 to 128 letters, digits"):
        store.create(id=wrong)
    with pytest.raises(TypeError, match="the id of a session must be a string, not int"):
        store.create(id=17)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_an_id_that_exists_is_a_clear_error_and_the_session_stays(store: SessionStore) -> None:
    with store.create(id="order-17", title="The first") as session:
        with pytest.raises(SessionExists, match=r"there is a session 'order-17' in .* already: open it, or choose"):
            store.create(id="order-17", title="The second")
        session.note("still open")
        with pytest.raises(SessionInUse):
            store.open("order-17")
    with pytest.raises(SessionError):
        store.create(id="order-17")
    assert [info.title for info in store.list()] == ["The first"]
    assert len(store.load("order-17").notes) == 1


def test_an_id_is_found_before_those_that_begin_with_it(store: SessionStore) -> None:
    for own in ("order-1", "order-17", "order-170"):
        store.create(id=own).close()
    assert store.load("order-1").id == "order-1"
    assert store.load("order-17").id == "order-17"
    assert store.load("order-170").id == "order-170"


def test_of_many_threads_one_creates_the_session(store: SessionStore) -> None:
    ready = threading.Barrier(8)
    outcomes: list[str] = []

    def create() -> None:
        ready.wait(30)
        try:
            store.create(id="order-17").close()
            outcomes.append("created")
        except SessionExists:
            outcomes.append("exists")

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == ["created", *["exists"] * 7]
    assert [info.problems for info in store.list()] == [()]


def test_a_file_that_a_kill_left_empty_does_not_take_the_id(tmp_path: Path) -> None:
    (tmp_path / "order-17.jsonl").write_bytes(b"")
    store = JsonlSessionStore(tmp_path)
    with store.create(id="order-17") as session:
        session.note("here")
    assert len(store.load("order-17").notes) == 1
    (tmp_path / "theirs.jsonl").write_bytes(b"not ours\n")
    with pytest.raises(SessionExists):
        store.create(id="theirs")
    assert (tmp_path / "theirs.jsonl").read_bytes() == b"not ours\n"


def test_a_fork_has_an_id_of_its_own_and_the_metadata(store: SessionStore) -> None:
    store.create(id="order-17", metadata={"user": "ann"}).close()
    with store.fork("order-17") as fork:
        assert fork.id != "order-17"
        assert fork.info.parent == "order-17"
    assert {info.id for info in store.list(metadata={"user": "ann"})} == {"order-17", fork.id}


# -- metadata ------------------------------------------------------------------------------------------------


def ids(store: SessionStore, **options: Any) -> list[str]:
    return [info.id for info in store.list(**options)]


def test_a_list_can_be_of_sessions_with_some_metadata(store: SessionStore) -> None:
    for own, metadata in (
        ("a", {"user": "ann", "level": 1, "tags": ["x", {"y": None}]}),
        ("b", {"user": "ann", "level": True}),
        ("c", {"user": "bob", "level": 1}),
        ("d", {}),
    ):
        with store.create(id=own, metadata=metadata) as session:
            session.note("used")
    assert sorted(ids(store, metadata={"user": "ann"})) == ["a", "b"]
    assert ids(store, metadata={"user": "ann", "level": 1}) == ["a"]
    assert ids(store, metadata={"level": True}) == ["b"], "one and true are not the same"
    assert ids(store, metadata={"tags": ["x", {"y": None}]}) == ["a"]
    assert ids(store, metadata={"tags": ["x"]}) == []
    assert ids(store, metadata={"missing": None}) == []
    assert len(ids(store, metadata={})) == 4
    assert len(ids(store, metadata={"user": "ann"}, limit=1)) == 1
    latest = store.latest(metadata={"user": "bob"})
    assert latest is not None
    assert latest.id == "c"
    assert latest.metadata == {"user": "bob", "level": 1}
    assert store.latest(metadata={"user": "eve"}) is None


def test_a_list_by_metadata_and_folder_has_what_fits_both(store: SessionStore, tmp_path: Path) -> None:
    for own, cwd, user in (("a", "x", "ann"), ("b", "y", "ann"), ("c", "x", "bob")):
        store.create(tmp_path / cwd, id=own, metadata={"user": user}).close()
    assert ids(store, cwd=tmp_path / "x", metadata={"user": "ann"}) == ["a"]


def test_invalid_metadata_is_refused(store: SessionStore) -> None:
    with pytest.raises(TypeError, match="must be a mapping, not list"):
        store.list(metadata=["user"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="metadata of a session must be JSON"):
        store.list(metadata={"user": object()})


def test_metadata_that_was_masked_is_not_found_by_the_secret(kind: Kind, store: SessionStore, tmp_path: Path) -> None:
    secret = "correct-horse-battery-staple-99"
    with store.create(metadata={"key": secret, "user": "ann"}) as session:
        agent = Agent("test:model", stream_fn=scripted("ok"), redactor=Redactor([secret], environment={}))
        session.attach(agent)
        agent.prompt_sync("hello")
    assert ids(store, metadata={"key": secret}) == []
    assert ids(store, metadata={"user": "ann"}) == [session.id]
    assert secret.encode() not in kind.everything(tmp_path)


async def test_the_same_as_coroutines(store: SessionStore) -> None:
    coroutines = AsyncSessionStore(store)
    async with await coroutines.create(id="order-17", metadata={"user": "ann"}) as session:
        assert session.id == "order-17"
    with pytest.raises(SessionExists):
        await coroutines.create(id="order-17")
    assert [info.id for info in await coroutines.list(metadata={"user": "ann"})] == ["order-17"]
    latest = await coroutines.latest(metadata={"user": "bob"})
    assert latest is None
