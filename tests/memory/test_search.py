"""Search: every message of every session is found, for any query and any state of the index."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swink_agent import (
    AgentMessage,
    AssistantMessage,
    Base64Image,
    CustomMessage,
    Extension,
    FileImage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UrlImage,
    UserMessage,
)
from swink_agent.core.journal import MessageAdded
from swink_agent.memory import AsyncSessionStore, JsonlSessionStore, SearchHit, SessionIndex
from swink_agent.memory.errors import SessionDamaged, SessionError, SessionNotFound
from swink_agent.memory.search.index import INDEX_NAME
from swink_agent.memory.search.words import Term, parse_query, snippet_of, text_of, words_of
from swink_agent.memory.sessions.info import SessionInfo


class Loaded(NamedTuple):
    info: SessionInfo
    messages: Sequence[AgentMessage]


class Folder:
    """A folder of sessions whose contents are kept beside, in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        self.sessions: dict[str, Loaded] = {}
        self.reads: list[str] = []

    def put(self, session_id: str, *messages: str | AgentMessage, updated: int = 0) -> None:
        said = [UserMessage(message) if isinstance(message, str) else message for message in messages]
        self.sessions[session_id] = Loaded(SessionInfo(id=session_id, updated=updated, messages=len(said)), said)
        with open(self.path / f"{session_id}.jsonl", "ab") as file:
            file.write(b"{}\n")

    def delete(self, session_id: str) -> None:
        del self.sessions[session_id]
        (self.path / f"{session_id}.jsonl").unlink()

    def load(self, session_id: str) -> Loaded:
        self.reads.append(session_id)
        if session_id not in self.sessions:
            raise SessionNotFound(f"there is no {session_id}")
        return self.sessions[session_id]

    def hits(self, query: str, limit: int = 20, **options: Any) -> list[SearchHit]:
        return SessionIndex(self.path, **options).search(query, limit, self.load)

    def found(self, query: str, **options: Any) -> list[tuple[str, int]]:
        return [(hit.session.id, hit.position) for hit in self.hits(query, **options)]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "sessions")


# -- queries -------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("query", "finds"),
    [
        ("parser", True),
        ("PARSER fix", True),
        ("parser broken", False),
        ("pars", True),
        ("pars ", False),
        ("pars fix", False),
        ('"fix the parser"', True),
        ('"parser the"', False),
        ('"fix the pars"', False),
        ("cafe", True),
        ("CAFÉ", True),
        ("strasse", True),
        ("foo_bar.baz", True),
        ("foo_bar", True),
        ("bar.baz", True),
        ("foo.baz", False),
        ("日本", True),
        ("本語の", True),
        ("語", True),
        ("日語", False),
        ("カタカナ", True),
        ("ｶﾀｶﾅ", True),
        ("检索", True),
        ("안녕", True),
        ("🎉", True),
        ("🎊", False),
        ("->", True),
        ("=> foo_bar", False),
        ("-> foo_bar", True),
        ("NEAR", False),
        ("AND", False),
        ("fix AND parser", False),
        ("fix* (parser)", True),
        ("-parser", True),
        ("words:parser", False),
        ("42", True),
    ],
)
def test_a_query_finds_these_sessions(folder: Folder, query: str, finds: bool) -> None:
    folder.put(
        "one",
        "nothing here",
        "Please fix the Parser in the Café, Straße 42: foo_bar.baz -> x. 日本語のカタカナ 全文检索 안녕하세요 🎉",
    )
    assert folder.found(query) == ([("one", 1)] if finds else [])


@pytest.mark.parametrize("query", ["", " ", '"', '""', '"""', "\n\t", '" "'])
def test_a_query_with_nothing_in_it_finds_nothing_and_reads_nothing(folder: Folder, query: str) -> None:
    folder.put("one", 'a " b')
    assert folder.hits(query) == []
    assert folder.reads == []


def test_a_limit_of_none_at_all(folder: Folder) -> None:
    folder.put("one", *["word"] * 5)
    assert len(folder.hits("word", 3)) == 3
    assert folder.hits("word", 0) == folder.hits("word", -1) == []
    assert len(folder.hits("word", 10**12)) == 5


def test_everything_that_was_said_and_done_is_found(folder: Folder) -> None:
    class Notice(CustomMessage, tag="notice"):
        words: str
        importance: int = 41
        tags: dict[str, str] = {}

    folder.put(
        "one",
        AssistantMessage(
            [
                Thinking("pondering"),
                Text("spoken"),
                ToolCall("c", "write_file", {"path": "notes.md", "lines": ["first\nsecond", {"deep": 7}]}),
                ToolCall("d", "bash", {}, '{"command": "unfinis'),
                Extension("novelty", {"inside": "extended"}),
            ],
            error_message="overloaded",
        ),
        ToolResultMessage(
            "c", [Text("written"), Image(UrlImage("https://example.org/cat.png"))], tool_name="write_file"
        ),
        UserMessage([Image(FileImage("pictures/dog.png")), Image(Base64Image("image/png", "aGVsbG8="))]),
        Notice("announced", tags={"audience": "everybody"}),
    )
    for word in ("pondering", "spoken", "write_file", "notes.md", "first", "second", "deep", "7", "unfinis"):
        assert folder.found(word)[-1] == ("one", 0), word
    for word in ("extended", "overloaded"):
        assert folder.found(word) == [("one", 0)]
    assert folder.found("written") == folder.found("cat.png") == [("one", 1)]
    assert folder.found("dog.png") == [("one", 2)]
    assert folder.found("announced") == folder.found("everybody") == [("one", 3)]
    for name in ("notice", "words", "importance", "41", "audience"):  # how it is made, which nobody said
        assert folder.found(name) == [], name
    assert folder.found("aGVsbG8") == []


def test_the_best_come_first_and_then_the_newest(folder: Folder) -> None:
    folder.put("old", "the cache", updated=1)
    folder.put("new", "the cache", updated=2)
    folder.put("long", "the cache is one of very many words that are said here " * 5, updated=3)
    folder.put("often", "cache cache", updated=0)
    assert [session for session, _ in folder.found("cache")] == ["often", "new", "old", "long"]


# -- snippets ------------------------------------------------------------------------------------------------


def test_a_snippet_is_one_plain_line_around_the_hit(folder: Folder) -> None:
    text = "word " * 100 + "\x1b[31mthe\r\n\tNeedle\x00\u202eis here\u2028" + " tail" * 100
    folder.put("one", text)
    (hit,) = folder.hits("needle")
    assert "the Needle" in hit.snippet
    assert hit.snippet.startswith("…word")
    assert hit.snippet.endswith("…")
    assert len(hit.snippet) < 220
    assert hit.snippet.isprintable()


@given(st.text(max_size=400), st.text(max_size=20))
@settings(max_examples=200)
def test_a_snippet_can_be_made_of_anything(text: str, query: str) -> None:
    snippet = snippet_of(text, parse_query(query))
    assert "\n" not in snippet
    assert not any(character < " " or character == "\x7f" for character in snippet)


def test_a_snippet_shows_what_was_found_by_another_spelling() -> None:
    text = "x" * 300 + " ein Straßenfest " + "y" * 300
    assert "Straßenfest" in snippet_of(text, parse_query("STRASSENFEST"))


# -- any text, any query ---------------------------------------------------------------------------------------

_TEXTS = st.text(max_size=80) | st.text("abAB_.-\"'()*:^ \n日本語ßéİ🎉", max_size=40)


@given(_TEXTS)
@settings(max_examples=150)
@example("-\0-")
@example("ﬃ İstanbul ǅ ½ ①")
@example("क्षत्रिय ไทย")
def test_any_text_is_found_by_its_words(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = Folder(tmp_path_factory.mktemp("any") / "sessions")
    folder.put("one", "nothing", text)
    for part in text.replace('"', " ").replace("\0", " ").split()[:5]:
        assert ("one", 1) in folder.found(part), part
        assert ("one", 1) in folder.found(f'"{part}"'), part
    if words_of(text):
        assert ("one", 1) in folder.found(" ".join(text.replace('"', " ").split())[:200])


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = Folder(tmp_path_factory.mktemp("some") / "sessions")
    folder.put("one", "some words to be found", 'a NEAR(b, 2) OR c* AND NOT {words}: "d"')
    folder.hits("words")
    return folder


@given(st.text(max_size=60) | st.text("ab \"'()*:^+-{}ANDORNEARwords,\0日🎉\ud800", max_size=40))
@settings(max_examples=300)
@example("NEAR(some words, 2)")
@example("words : some")
@example('"')
@example("* OR *")
@example(" ".join(f"w{n}" for n in range(2000)))
@example("x" * 100_000)
@example('"' + "y " * 5000 + '"')
def test_no_query_is_an_error(some: Folder, query: str) -> None:
    assert {session for session, _ in some.found(query)} <= {"one"}


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("two cafés", "cafe\u0301"),  # as some keyboards write é
        ("deja\u0300 vus", "déjà"),
        ("שָׁלוֹם", "שלום"),
        ("שלום", "שָׁלוֹם"),
        ("مُحَمَّد", "محمد"),
    ],
)
def test_accents_count_for_nothing_however_they_are_written(folder: Folder, text: str, query: str) -> None:
    folder.put("one", text)
    assert folder.found(query) == [("one", 0)]


def test_all_words_of_a_long_query_must_occur(folder: Folder) -> None:
    words = [f"w{number}" for number in range(300)]
    folder.put("one", " ".join(words))
    for query in (" ".join(words), f'"{" ".join(words)}"'):
        assert folder.found(query) == [("one", 0)]
    for query in (" ".join([*words, "another "]), f'"{" ".join([*words, "another"])}"'):
        assert folder.found(query) == []


_PIECES = st.lists(st.sampled_from(["ab", "abc", "é", "e\u0301a", "日", "本", "🎉", "->", ".", "_", "ß", "12", "*"]))
_SPACED = st.lists(_PIECES.map("".join), max_size=4)


def _stands_in(term: Term, text: str) -> bool:
    """What the documentation says of a term, in plain words."""
    if not term.words:
        return term.literal.lower() in text.lower()
    words, size = words_of(text), len(term.words)
    for at in range(len(words) - size + 1):
        *first, last = words[at : at + size]
        is_last = last.startswith(term.words[-1]) if term.is_prefix else last == term.words[-1]
        if is_last and tuple(first) == term.words[:-1]:
            return True
    return False


@given(st.lists(_SPACED.map(" ".join), min_size=1, max_size=3), _SPACED, st.booleans(), st.booleans())
@settings(max_examples=150)
def test_found_is_what_a_reader_finds(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], wanted: list[str], quoted: bool, ends: bool
) -> None:
    folder = Folder(tmp_path_factory.mktemp("any") / "sessions")
    folder.put("one", *texts)
    query = (f'"{" ".join(wanted)}"' if quoted else " ".join(wanted)) + " " * ends
    terms = parse_query(query).terms
    expected = {at for at, text in enumerate(texts) if terms and all(_stands_in(term, text) for term in terms)}
    assert {hit.position for hit in folder.hits(query)} == expected


def test_text_of_survives_what_is_deep() -> None:
    deep: Any = "bottom"
    for _ in range(5000):
        deep = [deep]
    assert "bottom" in text_of(UserMessage([Extension("deep", deep)]))


# -- staying up to date ----------------------------------------------------------------------------------------


def test_only_what_has_changed_is_read_again(folder: Folder) -> None:
    for number in range(5):
        folder.put(f"s{number}", f"common word{number}")
    assert len(folder.hits("common")) == 5
    assert sorted(folder.reads) == [f"s{number}" for number in range(5)]
    folder.reads.clear()
    assert len(folder.hits("common")) == 5
    assert folder.reads == []
    folder.put("s2", "other text")
    folder.put("s9", "common and new")
    folder.delete("s0")
    assert sorted(folder.found("common")) == [("s1", 0), ("s3", 0), ("s4", 0), ("s9", 0)]
    assert folder.found("other") == [("s2", 0)]
    assert sorted(folder.reads) == ["s2", "s9"]


def test_a_file_that_was_replaced_by_one_of_the_same_size_and_time(folder: Folder) -> None:
    folder.put("one", "before")
    folder.hits("before")
    path = folder.path / "one.jsonl"
    status = path.stat()
    copy = path.with_suffix(".new")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    folder.sessions["one"] = Loaded(SessionInfo(id="one"), [UserMessage("after")])
    os.replace(copy, path)
    assert folder.found("after") == [("one", 0)]
    assert folder.found("before") == []


def test_a_file_that_was_changed_in_the_middle_and_given_its_old_time_again(folder: Folder) -> None:
    """As by a copy of a backup over it, which keeps times."""
    folder.put("one", "before")
    folder.hits("before")
    path = folder.path / "one.jsonl"
    status = path.stat()
    wait_for_the_clock_of_files(path)
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    folder.sessions["one"] = Loaded(SessionInfo(id="one"), [UserMessage("after")])
    assert folder.found("after") == [("one", 0)]
    assert folder.found("before") == []


def wait_for_the_clock_of_files(path: Path) -> None:
    """Until the time of a change can be told from that of the file's last one: it goes in steps."""
    other = path.with_suffix(".clock")
    for _ in range(1000):
        other.write_bytes(b"")
        if other.stat().st_ctime_ns > path.stat().st_ctime_ns:
            break
        time.sleep(0.001)
    other.unlink()


def test_a_session_that_cannot_be_read_breaks_nothing(folder: Folder) -> None:
    folder.put("good", "the word")
    for name, error in (
        ("a", OSError(5, "I/O")),
        ("b", SessionError("no")),
        ("c", RuntimeError()),
        ("d", MemoryError()),
    ):
        folder.put(name, "the word")
        folder.sessions[name] = error  # type: ignore[assignment]
    (folder.path / "folder.jsonl").mkdir()
    (folder.path / "not a session.jsonl").write_text("x")
    (folder.path / "good.damaged-1").write_text("x")
    os.mkfifo(folder.path / "pipe.jsonl")

    def load(session_id: str) -> Loaded:
        found: Any = folder.load(session_id)
        if isinstance(found, Exception):
            raise found
        return found

    hits = SessionIndex(folder.path).search("word", 20, load)
    assert [hit.session.id for hit in hits] == ["good"]
    assert sorted(folder.reads) == ["a", "b", "c", "d", "good"]


def test_a_session_deleted_during_a_search_is_not_found_and_not_warned_about(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.put("good", "the word")
    folder.put("gone", "the word")
    assert len(folder.hits("word")) == 2
    folder.put("gone", "the word again")

    def load(session_id: str) -> Loaded:
        folder.delete(session_id)  # somebody was faster
        return folder.load(session_id)

    hits = SessionIndex(folder.path).search("word", 20, load)
    assert [hit.session.id for hit in hits] == ["good"]
    assert caplog.records == []


def test_a_session_of_which_nothing_can_be_read_is_not_read_again_and_again(folder: Folder) -> None:
    folder.put("bad", "word")
    reads: list[str] = []

    def load(session_id: str) -> Loaded:
        reads.append(session_id)
        raise SessionDamaged("nothing can be read of it")

    for _ in range(3):
        assert SessionIndex(folder.path).search("word", 20, load) == []
    assert reads == ["bad"]


def test_a_session_can_be_forgotten_at_once(folder: Folder) -> None:
    SessionIndex(folder.path).forget("one")
    assert not (folder.path / INDEX_NAME).exists()
    folder.put("one", "confidential matters")
    folder.put("two", "other matters")
    folder.hits("matters")
    SessionIndex(folder.path).forget("one")
    with sqlite3.connect(folder.path / INDEX_NAME) as database:
        assert [row for (row,) in database.execute("SELECT text FROM messages")] == ["other matters"]
    database.close()


# -- the index file --------------------------------------------------------------------------------------------


def test_the_index_is_private_and_no_session(folder: Folder) -> None:
    folder.put("one", "word")
    index = folder.path / INDEX_NAME
    index.touch(mode=0o644)
    os.chmod(index, 0o644)
    folder.hits("word")
    for path in folder.path.glob(f"{INDEX_NAME}*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.suffix != ".jsonl"


def _text(path: Path) -> None:
    path.write_text("this is no database, but it is long enough to be one " * 100)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _scrambled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(bytes(data))


def _foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE messages (other TEXT)")
    database.close()


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE sessions")
        database.execute("PRAGMA user_version = 99")
    database.close()


def _nonsense(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE sessions SET info = 'x'")
    database.close()


def _blobs(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE messages_content SET c1 = x'ff00ff'")
    database.close()


def _hollow(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE messages")
    database.close()


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    "damage", [_text, _empty, _cut, _scrambled, _foreign, _newer, _nonsense, _blobs, _hollow, Path.unlink]
)
def test_a_bad_index_is_made_anew(folder: Folder, damage: Any) -> None:
    for number in range(30):
        folder.put(f"s{number}", f"common word{number} " * 50)
    folder.hits("common")
    damage(folder.path / INDEX_NAME)
    assert len(folder.hits("common", 100)) == 30
    assert folder.found("word7") == [("s7", 0)]
    folder.reads.clear()
    assert len(folder.hits("common", 100)) == 30
    assert folder.reads == []


def test_damage_at_any_place_of_the_index_breaks_no_search(folder: Folder) -> None:
    for number in range(5):
        folder.put(f"s{number}", f"common word{number} " * 30)
    folder.hits("common")
    index = folder.path / INDEX_NAME
    good = index.read_bytes()
    for place in range(0, len(good), 1499):
        index.write_bytes(
            good[:place] + bytes([good[place] ^ 0xFF]) * min(700, len(good) - place) + good[place + 700 :]
        )
        assert {session for session, _ in folder.found("common")} <= {f"s{number}" for number in range(5)}


def test_where_no_index_can_be_written_there_is_one_in_memory(folder: Folder) -> None:
    folder.put("one", "word")
    (folder.path / INDEX_NAME).mkdir()
    assert folder.found("word") == [("one", 0)]
    assert (folder.path / INDEX_NAME).is_dir()


@pytest.mark.parametrize("error", ["SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_CANTOPEN"])
def test_an_index_that_is_no_longer_writable_is_used_as_far_as_it_goes(folder: Folder, error: str) -> None:
    folder.put("one", "word one")
    folder.put("two", "word two")
    folder.hits("word")
    folder.reads.clear()
    folder.put("two", "word three")

    class Refusing(sqlite3.Connection):
        def execute(self, statement: str, *given: Any) -> Any:
            if statement.startswith(("BEGIN IMMEDIATE", "INSERT")):
                refusal = sqlite3.OperationalError("no")
                refusal.sqlite_errorname = error  # type: ignore[misc]
                raise refusal
            return super().execute(statement, *given)

    def connect(name: str, **options: Any) -> sqlite3.Connection:
        return sqlite3.connect(name, factory=Refusing, **options)

    assert sorted(folder.found("word", connect=connect)) == [("one", 0), ("two", 0)]
    assert folder.found("three", connect=connect) == [("two", 0)]
    assert set(folder.reads) == {"two"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_can_only_be_read(folder: Folder) -> None:
    folder.put("one", "word")
    folder.path.chmod(0o500)
    try:
        assert folder.found("word") == [("one", 0)]
    finally:
        folder.path.chmod(0o700)


def test_an_index_that_somebody_else_holds_is_not_waited_for_long(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swink_agent.memory.search.index._PATIENCE", 0.05)
    folder.put("one", "word")
    folder.hits("word")
    folder.put("two", "word")
    other = sqlite3.connect(folder.path / INDEX_NAME, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        assert sorted(folder.found("word")) == [("one", 0), ("two", 0)]
    finally:
        other.close()
    folder.reads.clear()
    assert sorted(folder.found("word")) == [("one", 0), ("two", 0)]
    assert folder.reads == ["two"]


def test_many_can_search_at_once(folder: Folder) -> None:
    for number in range(40):
        folder.put(f"s{number}", f"common word{number}")
    results: list[int] = []
    failures: list[BaseException] = []

    def search() -> None:
        try:
            results.extend(len(folder.hits("common", 100)) for _ in range(3))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert results == [40] * 18


def test_an_sqlite_without_full_text_search_is_said_so(folder: Folder) -> None:
    folder.put("one", "word")

    class Poor(sqlite3.Connection):
        def execute(self, statement: str, *given: Any) -> Any:
            if "fts5" in statement:
                raise sqlite3.OperationalError("no such module: fts5")
            return super().execute(statement, *given)

    with pytest.raises(SessionError, match="FTS5"):
        folder.hits("word", connect=lambda name, **options: sqlite3.connect(name, factory=Poor, **options))


def test_a_python_without_sqlite_is_said_so(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.memory.search.index.sqlite3", None)
    folder.put("one", "word")
    with pytest.raises(SessionError, match="sqlite3 module"):
        folder.hits("word")


def test_a_missing_folder_and_a_file_instead_of_one_are_handled(tmp_path: Path) -> None:
    def load(session_id: str) -> Any:
        raise AssertionError

    assert SessionIndex(tmp_path / "nowhere").search("word", 20, load) == []
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(SessionError, match="file cannot be read: Not a directory"):
        SessionIndex(tmp_path / "file").search("word", 20, load)


def test_a_search_tells_how_far_it_has_read(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path, sync=False)
    for number in range(3):
        with store.create() as session:
            session.log.record(MessageAdded(UserMessage(f"words {number}"), "prompt"))
    told: list[tuple[int, int]] = []
    assert len(store.search("words", on_progress=lambda done, total: told.append((done, total)))) == 3
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    told.clear()
    assert len(store.search("words", on_progress=lambda done, total: told.append((done, total)))) == 3
    assert told == [], "nothing has changed since"
    again = asyncio.run(AsyncSessionStore(store).search("words", on_progress=lambda done, total: None))
    assert len(again) == 3
