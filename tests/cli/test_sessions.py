"""`swink sessions`: its lists and views at any width, and the commands that change a session."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, CustomMessage, Text, UserMessage, tool
from swink_agent.app.errors import UsageProblem
from swink_agent.app.runs.sessions import age_of, newest_and_unknown, session_ids, short_ids
from swink_agent.cli.process.entry import run
from swink_agent.cli.screen.session_pages import age
from swink_agent.memory import JsonlSessionStore
from swink_agent.memory.sessions.opening import created_from, new_id
from swink_agent.testing import FakeProvider, FakeReply, call, scripted, text

SAYINGS = "\x1b[2J\x1b]0;title\x07 \u202e evil\n[2] user\n  │ yes\rerror: no"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JsonlSessionStore:
    """An empty store of sessions, in a home of its own; the current folder is `work`."""
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("SWINK_SESSIONS_FOLDER", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return JsonlSessionStore(tmp_path / "data" / "sessions")


@tool
def look(path: str) -> str:
    """Looks."""
    return f"seen {path}"


def talk(store: JsonlSessionStore, prompt: str, *, cwd: str = "", answer: str = "Fine.") -> str:
    """A session of four messages."""
    agent = Agent("scripted:model", tools=[look], stream_fn=scripted(call("look", path="a.txt"), text(answer)))
    with store.create(cwd or os.getcwd()) as session:
        session.attach(agent)
        agent.prompt_sync(prompt)
    return session.id


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str]) -> Any:
    def invoke(*arguments: str) -> tuple[int, str, str]:
        code = run(["sessions", *arguments])
        return code, *capfd.readouterr()

    return invoke


# -- looking -------------------------------------------------------------------------------------------------


def test_sessions_of_this_folder_are_listed_newest_first_and_all_on_demand(
    store: JsonlSessionStore, program: Any, tmp_path: Path
) -> None:
    code, out, err = program()
    assert (code, out) == (0, "")
    assert err == f"There is no session of {Path.cwd()}; --all lists those of other folders.\n"
    ids = [talk(store, "first"), talk(store, "second"), talk(store, "elsewhere", cwd=str(tmp_path))]
    code, out, err = program()
    assert (code, err) == (0, "")
    head, *rows = [line.split() for line in out.splitlines()]
    assert head == ["ID", "AGE", "MESSAGES", "COST", "MODEL", "TITLE"]
    assert rows == [
        [ids[1], "now", "4", "-", "scripted:model", "second"],
        [ids[0], "now", "4", "-", "scripted:model", "first"],
    ]
    everywhere = json.loads(program("list", "--all", "--json")[1])
    assert [item["id"] for item in everywhere] == ids[::-1]
    assert {name: everywhere[0][name] for name in ("title", "messages", "model", "cwd")} == {
        "title": "elsewhere",
        "messages": 4,
        "model": "scripted:model",
        "cwd": str(tmp_path),
    }
    assert json.loads(program("--all", "--json")[1]) == everywhere
    assert [item["id"] for item in json.loads(program("list", "-C", "..", "--json")[1])] == [ids[2]]
    assert "FOLDER" in program("--all")[1]
    assert program("--all", "show", "2")[0] == 2


async def test_a_search_that_reads_many_sessions_says_so_at_a_terminal(terminal: Any, swink: Any) -> None:
    store = JsonlSessionStore(swink.home / ".local/share/swink-agent/sessions", sync=False)
    for number in range(120):
        store.create("/srv/shop", title=f"{number}").close()
    await terminal.start("sessions", "search", "nothing")
    assert await terminal.finish() == 0
    assert "reading sessions: 50 of 120" in terminal.shown
    assert [row for row in terminal.window.rows if row] == ["No session contains these words."], "and takes it back"


async def test_a_list_of_all_folders_names_them_in_a_narrow_window_too(terminal: Any, swink: Any) -> None:
    store = JsonlSessionStore(swink.home / ".local/share/swink-agent/sessions")
    store.create("/srv/shop", title="A rather long title that says what all of this is about").close()
    terminal.resize(24, 60)
    await terminal.start("sessions", "list", "--all")
    assert await terminal.finish() == 0
    head, row = [row for row in terminal.window.rows if row]
    assert head.split() == ["ID", "AGE", "FOLDER", "TITLE"]
    assert "/srv/shop" in row
    assert terminal.window.wrapped == []


def test_a_session_is_shown_with_numbers_that_fork_understands(store: JsonlSessionStore, program: Any) -> None:
    session = talk(store, "What is it?", answer="One.\nTwo.\n" + "More.\n" * 50)
    code, out, _ = program("show", session)
    assert code == 0
    facts, *messages = out.split("\n\n")
    assert facts.splitlines()[:4] == [
        f"session      {session}",
        "title        What is it?",
        f"folder       {Path.cwd()}",
        "model        scripted:model",
    ]
    assert messages[:3] == [
        "[1] user\n  │ What is it?",
        "[2] assistant scripted:model\n  ▸ look a.txt",
        "[3] result of look, done\n  │ seen a.txt",
    ]
    assert messages[3].startswith("[4] assistant scripted:model\n  │ One.\n  │ Two.\n")
    assert "  │ … [32 more]\n" in messages[3]
    assert program("show", session, "--full")[1].count("  │ More.\n") == 50
    code, out, _ = program("fork", session, "--at", "3")
    assert code == 0
    fork = store.load(out.strip())
    assert (len(fork.messages), fork.info.parent) == (3, session)
    assert len(store.load(program("fork", session)[1].strip()).messages) == 4
    code, out, err = program("fork", session, "--at", "5")
    assert (code, out) == (2, "")
    assert err == f"error: session {session} has 4 messages: it cannot be forked at 5 (--at)\n"


@pytest.mark.sweep
def test_a_line_that_never_ends_is_shown_whole_only_on_demand(store: JsonlSessionStore, program: Any) -> None:
    session = talk(store, f"begin {'x' * 1_000_000} end")
    shown = program("show", session)[1]
    assert len(shown) < 10_000
    assert "  │ begin xxx" in shown
    assert "xxx … [996,010 characters more] … xxx" in shown
    assert "xxx end\n" in shown
    assert "x" * 1_000_000 in program("show", session, "--full")[1]


async def test_texts_of_a_session_forge_no_row_and_cut_no_id(terminal: Any, swink: Any) -> None:
    store = JsonlSessionStore(swink.home / ".local/share/swink-agent/sessions")
    agent = Agent("scripted:a-model-with-a-rather-long-name", stream_fn=scripted(text(SAYINGS)))
    with store.create(swink.folder, title=SAYINGS) as session:
        session.attach(agent)
        await agent.prompt(SAYINGS)
    for columns, environ in ((100, {"NO_COLOR": "1"}), (24, {"TERM": "dumb"})):
        for arguments in (("sessions", "--all"), ("sessions", "show", session.id)):
            terminal = type(terminal)(swink)
            terminal.resize(24, columns)
            await terminal.start(*arguments, environ=environ)
            assert await terminal.finish() == 0
            window = terminal.window
            assert window.wrapped == []
            assert "\x1b" not in terminal.shown
            rows = [row for row in window.rows if row]
            if arguments[1] == "--all":
                assert len(rows) == 2
                assert rows[1].startswith(f"{session.id[:15]} ")
            else:
                numbered = [row for row in rows if row.startswith("[")]
                assert [row[:3] for row in numbered] == ["[1]", "[2]"]
                assert not any(row.startswith("error:") for row in rows)


def test_a_damaged_session_says_so_and_looking_changes_nothing(store: JsonlSessionStore, program: Any) -> None:
    session = talk(store, "x")
    path = store.folder / f"{session}.jsonl"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"seen a.txt"', b'"seen b.txt"'))
    before = {file.name: file.read_bytes() for file in store.folder.glob("*.jsonl*")}
    code, listed, err = program("list")
    assert (code, listed.splitlines()[1].split()[-2:]) == (0, ["!", "x"])
    assert err == "! damaged: 1 of them; `swink sessions show ID` shows how.\n"
    code, shown, _ = program("show", session)
    assert code == 0
    assert "\nproblem      " in shown
    for command in ("show", "export", "fork", "rename", "replay"):
        code, out, err = program(command, "nope", *(["title"] if command == "rename" else []))
        assert (code, out) == (2, "")
        assert err.startswith("error: there is no session 'nope' in ")
    assert {file.name: file.read_bytes() for file in store.folder.glob("*.jsonl*")} == before


def without_its_first_line(store: JsonlSessionStore, session: str, old: bytes, new: bytes) -> bytes:
    """Changes the first line of a session's file, so that it is no record any more; returns the other lines."""
    path = store.folder / f"{session}.jsonl"
    first, _, rest = path.read_bytes().partition(b"\n")
    assert old in first
    path.write_bytes(first.replace(old, new) + b"\n" + rest)
    return rest


def test_a_session_with_a_damaged_first_line_still_belongs_to_its_folder(
    store: JsonlSessionStore, program: Any, tmp_path: Path
) -> None:
    session = talk(store, "what I said")
    talk(store, "elsewhere", cwd=str(tmp_path))
    rest = without_its_first_line(store, session, b'"version":1', b'"vers\0on":1')

    code, out, err = program()
    assert (code, len(out.splitlines())) == (0, 2)
    assert out.splitlines()[1].endswith("! what I said")
    assert err == "! damaged: 1 of them; `swink sessions show ID` shows how.\n"
    assert newest_and_unknown(store, Path.cwd())[0].id == session

    store.rename(session, "mended")
    mended = store.load(session)
    assert (mended.info.cwd, mended.info.damage) == (os.getcwd(), ())
    assert (store.folder / f"{session}.jsonl").read_bytes().partition(b"\n")[2].startswith(rest)


@pytest.mark.parametrize("new", [b'"cwd\0:"', b'"cwd":"relative', b'"cwd":"/\xff'])
def test_a_session_of_no_known_folder_is_mentioned_in_every_folder(
    store: JsonlSessionStore, program: Any, new: bytes
) -> None:
    session = talk(store, "what I said")
    rest = without_its_first_line(store, session, b'"cwd":"', new)
    said = "! 1 session is without a folder: `swink sessions list --all` lists it.\n"

    code, out, err = program()
    assert (code, out) == (0, "")
    assert err == f"There is no session of {Path.cwd()}; --all lists those of other folders.\n{said}"
    with pytest.raises(
        UsageProblem, match=f"no session of .* to continue, but 1 of unknown folders, the newest {session}:"
    ):
        newest_and_unknown(store, Path.cwd())
    assert json.loads(program("--json")[1]) == []

    talk(store, "another")
    code, out, err = program()
    assert (code, err) == (0, said)
    assert "another" in out
    assert "what I said" not in out
    assert program("list", "--all")[2] == "! damaged: 1 of them; `swink sessions show ID` shows how.\n"
    assert (store.folder / f"{session}.jsonl").read_bytes().endswith(rest), "looking changes nothing"


def test_a_session_of_which_nothing_is_left_is_mentioned_in_every_folder(
    store: JsonlSessionStore, program: Any
) -> None:
    session, emptied = talk(store, "what I said"), talk(store, "nothing")
    (store.folder / f"{session}.jsonl").write_bytes(bytes(500))
    (store.folder / f"{emptied}.jsonl").write_bytes(b"")
    (store.folder / "events.jsonl").write_bytes(b"of somebody else")
    said = f"! The content of 1 file cannot be read: {session}. `swink sessions show ID` shows why.\n"
    assert program()[2] == f"There is no session of {Path.cwd()}; --all lists those of other folders.\n{said}"
    assert program("list", "--all") == (0, "", f"There is no session in {store.folder}.\n{said}")
    assert program("list", "--all", "--json") == (0, "[]\n", "")
    assert (store.folder / f"{session}.jsonl").read_bytes() == bytes(500), "looking changes nothing"


class Memo(CustomMessage, tag="memo"):
    says: str = ""
    tags: list[str] = []


def test_an_applications_messages_and_notes_are_shown_and_are_not_damage(
    store: JsonlSessionStore, program: Any
) -> None:
    agent = Agent("scripted:model", stream_fn=scripted(text("Fine."), text("Well.")))
    with store.create(os.getcwd()) as session:
        session.note("opened", {"by": "me"})
        session.attach(agent)
        agent.prompt_sync([Memo(says=f"One.\n{SAYINGS}", tags=["a"]), UserMessage([Text("Hello")])])
        session.note("rated", SAYINGS)
        session.note("seen")
    code, listed, err = program("list")
    assert (code, err) == (0, "")
    assert "!" not in listed
    code, shown, _ = program("show", session.id)
    assert code == 0
    assert "problem" not in shown
    assert "\x1b" not in shown
    facts, memo, _, answer = shown.split("\n\n")
    assert facts.endswith('\n  * opened: {"by":"me"}')
    assert memo.startswith("[1] memo, a message of an application\n  │ says: One.\n  │ ")
    assert memo.endswith('\n  │ tags: ["a"]')
    said, _, seen = answer.partition("\n  * rated: ")
    assert said == "[3] assistant scripted:model\n  │ Fine."
    assert seen.endswith("\n  * seen\n")
    assert all(row.startswith(("  ┆ ", "  * ")) for row in seen.splitlines()[1:])


def test_the_help_describes_every_command(program: Any) -> None:
    code, out, _ = program("--help")
    commands = out.partition("\nCommands:\n")[2].partition("\n\n")[0]
    assert (code, len(commands.splitlines())) == (0, 10)
    assert all(line.endswith(".") and not line.endswith("...") for line in commands.splitlines()), commands


# -- changing ------------------------------------------------------------------------------------------------


def test_a_title_can_be_given_and_taken_away(store: JsonlSessionStore, program: Any) -> None:
    session = talk(store, "What is it?")
    assert program("rename", session[:20], "A name") == (0, "", "")
    assert store.load(session).info.title == "A name"
    assert program("rename", session, "")[0] == 0
    assert store.load(session).info.title == "What is it?"
    assert program("rename", session, "x" * 10_001)[0] == 2
    assert program("rename", session, "  Blanks around it \n") == (0, "", "")
    assert store.load(session).info.title == "Blanks around it"
    assert program("rename", session, " \t\n") == (0, "", "")
    assert store.load(session).info.title == "What is it?", "blanks alone are none"


def test_rm_does_not_ask_and_removes_nothing_if_one_is_unknown(store: JsonlSessionStore, program: Any) -> None:
    ids = [talk(store, str(number)) for number in range(3)]
    code, out, err = program("rm", ids[0], "nope")
    assert (code, out) == (2, "")
    assert err.startswith("error: there is no session 'nope' in ")
    code, out, err = program("rm", "20")
    assert (code, out) == (2, "")
    assert err.startswith("error: '20' is the beginning of 3 sessions: ")
    assert err.endswith("; write more of the id\n")
    assert program("rm", "")[0] == 2
    assert sorted(session_ids(store.folder)) == sorted(ids)
    assert program("rm", ids[0], ids[1], ids[0]) == (0, "", "2 sessions deleted.\n")
    assert session_ids(store.folder) == [ids[2]]


def test_delete_removes_remains_of_sessions_and_leaves_other_files(store: JsonlSessionStore, program: Any) -> None:
    session, other = talk(store, "x"), talk(store, "y")
    file = store.folder / f"{session}.jsonl"
    others = {"events": b'{"time": 1}\n{"time": 2}\n', "empty": b"", "copy": file.read_bytes()[:-20]}
    for name, data in others.items():
        (store.folder / f"{name}.jsonl").write_bytes(data)
    for name, what in (("events", "nothing in its 24 bytes is a record"), ("empty", "it is empty")):
        path = store.folder / f"{name}.jsonl"
        code, out, err = program("rm", name)
        assert (code, out) == (1, "")
        assert (
            err == f"error: {path} is not a session: {what}. It stays; delete it yourself if no one needs it: "
            f"rm {path}\n"
        )
        assert path.read_bytes() == others[name]
    assert program("rm", "copy") == (0, "", "1 session deleted.\n"), "it is damaged, and a session all the same"
    file.write_bytes(bytes(500))
    (store.folder / f"{other}.jsonl").write_bytes(b"")
    assert program("rm", session, other) == (0, "", "2 sessions deleted.\n"), "their names are of those that we give"
    assert session_ids(store.folder) == ["events", "empty"]


def test_prune_says_what_it_removes_and_asks(store: JsonlSessionStore, program: Any) -> None:
    old, new = talk(store, "old"), talk(store, "new")
    path = store.folder / f"{old}.jsonl"
    aged = _shifted(path.read_bytes(), -40 * 86_400_000)
    path.write_bytes(aged)
    (store.folder / "no-session.jsonl").write_text("hello\n")
    assert program("prune", "--older-than", "50d") == (0, "", "No session is older than 50d.\n")
    code, out, err = program("prune", "--older-than", "30d")
    assert code == 2
    assert old in out
    assert new not in out
    assert "stdin is not a terminal, so you cannot be asked: add --yes to delete the 1 session" in err
    assert program("prune", "--older-than", "30d", "--dry-run")[0] == 0
    assert old in session_ids(store.folder)
    code, out, err = program("prune", "--older-than", "30d", "--yes")
    assert (code, err) == (0, "1 session deleted.\n")
    assert session_ids(store.folder) == ["no-session", new]


def test_one_in_use_is_spared_by_prune_and_is_an_error_for_who_names_it(store: JsonlSessionStore, program: Any) -> None:
    free = talk(store, "free")
    with store.open(talk(store, "used")) as used:
        code, _, err = program("prune", "--older-than", "0h", "--dry-run")
        assert (code, err) == (0, "Nothing is deleted. Sessions in use would stay.\n")
        code, _, err = program("prune", "--older-than", "0h", "--yes")
        assert (code, err) == (0, "1 session deleted.\n1 session in use stays.\n")
        assert session_ids(store.folder) == [used.id]
        for command in (("rm", used.id), ("rename", used.id, "title")):
            code, out, err = program(*command)
            assert (code, out) == (1, "")
            assert err == f"error: session {used.id} is in use, here or by another process: close it there first\n"
    assert free not in session_ids(store.folder)
    assert program("rm", used.id)[0] == 0


@pytest.mark.parametrize(
    ("answer", "is_gone"), [("y", True), ("n", False), pytest.param("", False, marks=pytest.mark.sweep)]
)
async def test_prune_asks_at_a_terminal(terminal: Any, swink: Any, answer: str, is_gone: bool) -> None:
    folder = swink.home / ".local/share/swink-agent/sessions"
    old = JsonlSessionStore(folder).create(swink.folder)
    old.close()
    await terminal.start("sessions", "prune", "--older-than", "0h")
    await terminal.expect("Delete 1 session? [y/N]:")
    terminal.type(f"{answer}\n")
    assert (await terminal.finish() == 0) == is_gone
    assert (session_ids(folder) == []) == is_gone


async def test_prune_asks_again_after_an_unclear_answer(terminal: Any, swink: Any) -> None:
    folder = swink.home / ".local/share/swink-agent/sessions"
    JsonlSessionStore(folder).create(swink.folder).close()
    await terminal.start("sessions", "prune", "--older-than", "0h")
    await terminal.expect("Delete 1 session? [y/N]:")
    terminal.type("perhaps\n")
    await terminal.expect("Answer y or n.")
    terminal.type("y\n")
    assert await terminal.finish() == 0
    assert session_ids(folder) == []


@pytest.mark.parametrize("key", ["\x03", pytest.param("\x04", marks=pytest.mark.sweep)])
async def test_leaving_a_question_starts_a_new_row(terminal: Any, swink: Any, key: str) -> None:
    folder = swink.home / ".local/share/swink-agent/sessions"
    JsonlSessionStore(folder).create(swink.folder).close()
    await terminal.start("sessions", "prune", "--older-than", "0h")
    await terminal.expect("Delete 1 session? [y/N]: ")
    terminal.type(key)
    for _ in range(10):  # Python misses a signal just before it begins to read: a person presses again
        with suppress(TimeoutError):
            await asyncio.wait_for(terminal.process.wait(), 4)
            break
        terminal.type(key)
    assert await terminal.finish() == 130
    assert terminal.shown.endswith("\n")
    assert len(session_ids(folder)) == 1


def _shifted(data: bytes, milliseconds: int) -> bytes:
    """The same session at another time."""
    import re
    import zlib

    lines: list[bytes] = []
    for line in data.splitlines():
        body = re.sub(
            rb'"(at|created|updated|timestamp)":(\d{13})',
            lambda match: b'"%s":%d' % (match[1], int(match[2]) + milliseconds),
            line[: -len(b',"crc":"00000000"}')],
        )
        lines.append(body + b',"crc":"%08x"}\n' % zlib.crc32(body))
    return b"".join(lines)


def as_if_the_clock_ran_ahead(store: JsonlSessionStore, session: str, seconds: int) -> str:
    """Has a session's file, its name and its times say that all of it happened so much later; returns its new id."""

    def later(found: re.Match[bytes]) -> bytes:
        return b'"%s":%d' % (found[1], int(found[2]) + 1000 * seconds)

    path = store.folder / f"{session}.jsonl"
    created = created_from(session)
    assert created is not None
    new_name = new_id(created + 1000 * seconds)
    lines: list[bytes] = []
    for line in path.read_bytes().splitlines():
        body = re.sub(rb'"(at|created|updated|timestamp)":(\d+)', later, line.rpartition(b',"crc":')[0])
        body = body.replace(session.encode(), new_name.encode())
        lines.append(body + b',"crc":"%08x"}\n' % zlib.crc32(body))
    path.unlink()
    path = store.folder / f"{new_name}.jsonl"
    path.write_bytes(b"".join(lines))
    moment = time.time() + seconds
    os.utime(path, (moment, moment))
    return new_name


def test_a_clock_that_once_ran_ahead_does_not_decide_for_ever_what_is_newest(
    store: JsonlSessionStore, program: Any
) -> None:
    ahead = 400 * 86_400
    before = talk(store, "before")
    future = as_if_the_clock_ran_ahead(store, talk(store, "when the clock was wrong"), ahead)
    assert [info.id for info in store.list()] == [before, future]
    after = talk(store, "after")

    assert [info.id for info in store.list()] == [after, before, future]
    latest = store.latest(Path.cwd())
    assert latest is not None
    assert (latest.id, newest_and_unknown(store, Path.cwd())[0].id) == (after, after)
    info = store.load(future).info
    assert (info.problems, info.updated > 1000 * time.time()) == ((), True), "what is on record is told as it is"
    row = next(row for row in program()[1].splitlines() if future in row)
    assert datetime.fromtimestamp(info.updated / 1000).strftime("%Y-%m-%d") in row.split()

    store.rename(future, "used now")
    assert newest_and_unknown(store, Path.cwd())[0].id == future, "it was used last, as its file tells"
    others = [as_if_the_clock_ran_ahead(store, session, ahead) for session in (before, after)]
    assert [info.id for info in store.list()] == [future, *others[::-1]], (
        "of those that lie there, their clock's newest"
    )


def test_clocks_may_differ_a_little(store: JsonlSessionStore, program: Any) -> None:
    talk(store, "before")
    last = as_if_the_clock_ran_ahead(store, talk(store, "on another machine"), 60)
    assert newest_and_unknown(store, Path.cwd())[0].id == last
    assert "now" in next(row for row in program()[1].splitlines() if last in row).split()


ODD = ["9999999999999999", "-9999999999999999", "-1", str(10**30), "1e300", "1e400", "0.5", "true", "null", '"x"', "{}"]
FIRST_LINE = ["created", "version", "id", "cwd", "title", "parent", "metadata"]


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("value", [*ODD[:2], *[pytest.param(value, marks=pytest.mark.sweep) for value in ODD[2:]]])
@pytest.mark.parametrize("field", [*FIRST_LINE, "at", "timestamp", "messages", "updated"])
def test_an_odd_value_in_one_session_takes_no_command_away(
    store: JsonlSessionStore, program: Any, field: str, value: str
) -> None:
    odd, other = talk(store, "odd words"), talk(store, "other words")
    path = store.folder / f"{odd}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for position, line in enumerate(lines):
        if position == 0 or field not in FIRST_LINE:
            new = re.sub(rb'("%s":)(?:-?\d+|"[^"]*"|null|\{[^}]*\})' % field.encode(), rb"\g<1>" + value.encode(), line)
            body = new[: new.index(b',"crc":')]
            lines[position] = body + b',"crc":"%08x"}\n' % zlib.crc32(body)
    path.write_bytes(b"".join(lines))
    for arguments in (["list"], ["list", "--all"], ["list", "--all", "--json"], ["search", "words"]):
        code, out, err = program(*arguments)
        assert (code, other in out or other[-6:] in out, "Traceback" in err) == (0, True, False), (arguments, out, err)
    for arguments in (["show"], *[["export", "--format", kind] for kind in ("html", "markdown", "json")]):
        code, out, err = program(arguments[0], odd, *arguments[1:])
        # Where every record has lost its time, or is no JSON, nothing is left to show; and that is said.
        is_lost = field == "at" or value == "1e400"
        assert (code, "odd words" in out) == (0, True) or is_lost, (arguments, out, err)
        assert "Traceback" not in err


def test_ages_and_short_ids_are_what_people_read() -> None:
    now = 1_800_000_000_000
    minute, hour, day = 60_000, 3_600_000, 86_400_000
    ages = [age(now - passed, now) for passed in (0, 59_999, minute, 59 * minute, hour, 47 * hour, 2 * day, 99 * day)]
    assert ages == ["now", "now", "1 min", "59 min", "1 h", "47 h", "2 d", "99 d"]
    assert age(now - 200 * day, now).startswith("20")
    assert age(0) == "-"
    assert (age_of("12h"), age_of("30d"), age_of("2w")) == (12 * hour, 30 * day, 14 * day)
    with pytest.raises(UsageProblem):
        age_of("30 days")
    ids = ["20260101-101010-001-aaaaaa", "20260101-101010-002-bbbbbb", "20260101-101011-001-cccccc"]
    assert short_ids(ids[:1], ids) == {ids[0]: "20260101-101010-001"}
    assert short_ids(ids[2:], ids) == {ids[2]: "20260101-101011"}
    assert short_ids([ids[0]], []) == {ids[0]: "20260101-101010"}


# -- what others make of a session ---------------------------------------------------------------------------


def test_words_are_found_and_shown_where_they_stand(store: JsonlSessionStore, program: Any) -> None:
    session = talk(store, "Where is the heron?", answer=f"The heron stands in the pond. {SAYINGS}")
    talk(store, "something else")
    code, out, err = program("search", "heron", "pond")
    assert (code, err) == (0, "")
    first, *rows = out.splitlines()
    assert first.split() == [session, "[4]", "now", "Where", "is", "the", "heron?"]
    assert rows
    assert all(row.startswith("  │ ") for row in rows)
    assert "\x1b" not in out
    [hit] = json.loads(program("search", "--json", "pond")[1])
    assert (hit["session"]["id"], hit["position"]) == (session, 3)
    assert program("search", "crane") == (0, "", "No session contains these words.\n")
    assert program("search")[0] == 2


def test_removed_sessions_are_removed_from_the_index_too(store: JsonlSessionStore, program: Any) -> None:
    talk(store, "something else")
    session = talk(store, "Where is the heron?", answer="The heron stands in the pond. " * 400)
    assert program("search", "heron")[0] == 0
    said = b"The heron stands in the pond."
    assert any(said in path.read_bytes() for path in store.folder.iterdir() if path.suffix != ".jsonl")
    assert program("rm", session)[0] == 0
    assert [path.name for path in store.folder.iterdir() if said in path.read_bytes()] == []


def test_a_session_is_exported_to_stdout_or_a_file(store: JsonlSessionStore, program: Any) -> None:
    session = talk(store, "What is it?")
    assert "What is it?" in program("export", session)[1]
    assert json.loads(program("export", session, "--format", "json")[1])["messages"]
    page = program("export", session, "--format", "html")[1]
    assert page.startswith("<!DOCTYPE html>")
    assert program("export", session, "-o", "talk.html") == (0, "", "")
    assert Path("talk.html").read_text() == page
    assert Path("talk.html").stat().st_mode & 0o777 == 0o600
    code, out, err = program("export", session, "--format", "markdown", "-o", "talk.html")
    assert (code, out, "--force" in err) == (2, "", True)
    assert Path("talk.html").read_text() == page
    assert program("export", session, "--format", "markdown", "-o", "talk.html", "--force") == (0, "", "")
    assert not Path("talk.html").read_text().startswith("<!DOCTYPE")
    for wrong in ("not/there.html", "."):
        code, out, err = program("export", session, "-o", wrong)
        assert (code, out, err.count("\n")) == (2, "", 1)
    assert program("export", "nope")[0] == 2
    assert program("export", session, "--format", "pdf")[0] == 2


def test_an_export_writes_into_a_pipe_or_device_without_replacing_it(store: JsonlSessionStore, program: Any) -> None:
    """As `-o >(gzip)` and `-o /dev/null` mean it; tried with pipes alone, since a test may be somebody who may replace
    a device."""
    session = talk(store, "What is it?")
    page = program("export", session)[1]
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with ThreadPoolExecutor() as pool:
            read = pool.submit(Path("pipe").read_text)
            assert program("export", session, "-o", name) == (0, "", "")
            assert read.result(30) == page
        assert Path("pipe").is_fifo()
    reading, writing = os.pipe()
    with ThreadPoolExecutor() as pool, open(reading) as end:
        read = pool.submit(end.read)
        assert program("export", session, "-o", f"/dev/fd/{writing}") == (0, "", "")
        os.close(writing)
        assert read.result(30) == page


async def test_a_replay_tells_whether_the_agent_of_today_would_do_the_same(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("hello\n")
    replies = [
        FakeReply(calls=[("read_file", {"path": "a.txt"})]),
        FakeReply(calls=[("bash", {"command": "echo hi >> log.txt"})]),
    ]
    async with FakeProvider("anthropic", [*replies, "Done.", *replies, "I could not."]) as provider:
        swink.use(provider)
        await swink("-p", "go", "--approve", "all", "--output", "json")
        rejected = await swink("-p", "go", "--output", "json")
    assert json.loads(rejected.stdout)["rejected"]
    listed = json.loads((await swink("sessions", "--json")).stdout)
    for item in listed:
        done = await swink("sessions", "replay", item["id"])
        assert (done.code, done.stderr) == (0, ""), done
        assert done.stdout == "There is no difference: all 6 messages of 1 run came out alike.\n"
    assert (swink.folder / "log.txt").read_text() == "hi\n", "nothing runs in a replay"
    other = await swink("sessions", "replay", listed[1]["id"], environ={"SWINK_DENY": "bash: echo *"})
    assert other.code == 1
    assert other.stdout.startswith("The first difference is at [5]: ")
    assert "denies it" in other.stdout


@pytest.mark.sweep
async def test_a_replay_says_that_a_limit_had_ended_the_run(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("hello\n")
    read = FakeReply(calls=[("read_file", {"path": "a.txt"})])
    async with FakeProvider("anthropic", ["Hello.", read]) as provider:
        swink.use(provider)
        await swink("-p", "hello")
        assert (await swink("-p", "go", "-c", "--max-turns", "1")).code == 4
    [item] = json.loads((await swink("sessions", "--json")).stdout)
    done = await swink("sessions", "replay", item["id"])
    assert done.code == 1
    assert done.stdout.splitlines()[-1] == (
        "max_turns ended the run when it was recorded: the run has had its one turn; prompt again to continue. "
        "A replay uses the current limits."
    )
    same = await swink("sessions", "replay", item["id"], environ={"SWINK_MAX_TURNS": "1"})
    assert same.code == 0
