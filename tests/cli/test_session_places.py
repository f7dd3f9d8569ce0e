"""Sessions that cannot be stored or read: one clear line, the documented exit code, and nothing changed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from swink_agent import Agent
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import FakeProvider, scripted, text

from .conftest import Done, Swink

# Permissions count for root too, once it has no right to pass over them. Whoever cannot give that up sees no errors.
HELD_BACK = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "env")
pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(
        os.geteuid() == 0 and shutil.which("setpriv") is None,
        reason="root may read and write everything, and there is no setpriv to give that up with",
    ),
]
PLAIN = ("--tools", "none")
NOT_RECORDED = "warning: this run is not recorded, and cannot be resumed: "


class Ordinary(Swink):
    """The program without the right to pass over permissions."""

    def command(self, *arguments: str) -> list[str]:
        before = HELD_BACK if os.geteuid() == 0 else ()
        return [*before, *super().command(*arguments)]


class Place:
    """A folder of two sessions, and the program."""

    def __init__(self, swink: Swink, folder: Path, ids: list[str]) -> None:
        self.swink, self.folder = swink, folder
        self.first, self.second = ids

    def file(self, session: str) -> Path:
        return self.folder / f"{session}.jsonl"

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}

    async def all(self, *commands: tuple[str, ...]) -> list[Done]:
        """The program with these arguments, all at once."""
        async with self.model():
            return await asyncio.gather(*[self.swink(*command) for command in commands])

    @asynccontextmanager
    async def model(self) -> AsyncIterator[None]:
        async with FakeProvider("anthropic", ["Fine."] * 5) as provider:
            self.swink.use(provider)
            yield


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    work, home, folder = tmp_path / "work", tmp_path / "home", tmp_path / "sessions"
    work.mkdir()
    home.mkdir()
    store = JsonlSessionStore(folder)
    ids: list[str] = []
    for said in ("one", "two"):
        with store.create(work) as session:
            session.attach(agent := Agent("anthropic:claude-sonnet-4-6", stream_fn=scripted(text("Fine."))))
            agent.prompt_sync(said)
        ids.append(session.id)
    swink = Ordinary(work, home)
    swink.environ["SWINK_SESSIONS_FOLDER"] = str(folder)
    made = Place(swink, folder, ids)
    before = made.contents()
    yield made
    folder.chmod(0o700)
    for path in folder.iterdir():
        path.chmod(0o600)
    assert {name: data for name, data in made.contents().items() if name in before} == before


def check_one_line(done: Done, code: int, end: str) -> None:
    assert (done.code, done.stdout) == (code, ""), done
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith(f"{end}\n")
    assert done.stderr.count("\n") == 1


async def test_a_folder_that_can_be_written_and_not_listed_keeps_no_new_session(place: Place) -> None:
    before = place.contents()
    place.folder.chmod(0o300)
    run, whole, *others = await place.all(
        ("-p", "x", *PLAIN),
        ("sessions", "show", place.first),
        ("sessions",),
        ("sessions", "show", place.first[:20]),
        ("sessions", "search", "one"),
        ("sessions", "rm", place.first),
        ("sessions", "prune", "--older-than", "1h", "--yes"),
        ("sessions", "fork", place.first),
        ("-p", "x", "-c", *PLAIN),
    )
    place.folder.chmod(0o700)
    assert (run.code, run.stdout) == (0, "Fine.\n")
    assert run.stderr == f"{NOT_RECORDED}{place.folder} cannot be read: Permission denied\n"
    assert whole.code == 0, "who knows the whole id needs no list"
    for done in others:
        check_one_line(done, 1, f"{place.folder} cannot be read: Permission denied")
    assert place.contents() == before


async def test_a_folder_that_can_be_listed_and_not_written_can_be_read(place: Place) -> None:
    before = place.contents()
    place.folder.chmod(0o500)
    listed, found, run, fork, removed = await place.all(
        ("sessions",),
        ("sessions", "search", "one"),
        ("-p", "x", *PLAIN),
        ("sessions", "fork", place.first),
        ("sessions", "rm", place.first),
    )
    place.folder.chmod(0o700)
    assert (listed.code, len(listed.stdout.splitlines()), listed.stderr) == (0, 3, "")
    assert (found.code, found.stdout.split()[0]) == (0, place.first)
    assert (run.code, run.stdout) == (0, "Fine.\n")
    assert run.stderr.startswith(f"{NOT_RECORDED}{place.folder}/")
    assert run.stderr.endswith(" cannot be made: Permission denied\n")
    check_one_line(fork, 1, "cannot be made: Permission denied")
    check_one_line(removed, 1, f"{place.file(place.first)} cannot be deleted: Permission denied")
    assert place.contents() == before


async def test_a_folder_whose_files_cannot_be_reached_is_not_said_to_hold_nothing(place: Place) -> None:
    place.folder.chmod(0o400)
    listed, found, goes_on, resumed = await place.all(
        ("sessions",),
        ("sessions", "search", "one"),
        ("-p", "x", "-c", *PLAIN),
        ("-p", "x", "--resume", place.first, *PLAIN),
    )
    assert listed.stderr.endswith("! 2 sessions are without a folder: `swink sessions list --all` lists them.\n")
    check_one_line(found, 1, f"{place.folder} cannot be read: Permission denied")
    check_one_line(goes_on, 2, "`swink sessions list --all` lists them")
    assert f"but 2 of unknown folders, the newest {place.second}" in goes_on.stderr
    check_one_line(resumed, 1, f"{place.file(place.first)} cannot be opened: Permission denied")


@pytest.mark.parametrize("mode", [0o000, 0o400])
async def test_a_session_that_may_not_be_read_or_written_is_named(place: Place, mode: int) -> None:
    path = place.file(place.second)
    path.chmod(mode)
    resumed, renamed, removed, shown, forked = await place.all(
        ("-p", "x", "--resume", place.second, *PLAIN),
        ("sessions", "rename", place.second, "title"),
        ("sessions", "rm", place.second),
        ("sessions", "show", place.second),
        ("sessions", "fork", place.second),
    )
    for done in (resumed, renamed, removed):
        check_one_line(done, 1, f"{path} cannot be opened: Permission denied")
    for done in (shown, forked):
        if mode:
            assert done.code == 0
        else:
            check_one_line(done, 1, f"{path} cannot be read: Permission denied")


async def in_mounts(place: Place, script: str, *commands: tuple[str, ...]) -> list[Done]:
    """The program with these arguments, each in mounts of its own, which are gone with it."""
    async with place.model():
        return await asyncio.gather(*[mounted(place, script, *command) for command in commands])


async def mounted(place: Place, script: str, *arguments: str) -> Done:
    process = await asyncio.create_subprocess_exec(
        *["unshare", "-m", "bash", "-ec", f'{script}; exec "$@"', "sh", *Swink.command(place.swink, *arguments)],
        cwd=place.swink.folder,
        env=place.swink.environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await asyncio.wait_for(process.communicate(), 50)
    return Done(process.returncode or 0, stdout, stderr)


def can_mount() -> bool:
    return os.geteuid() == 0 and os.system("unshare -m true 2> /dev/null") == 0


@pytest.mark.skipif(not can_mount(), reason="mounts need root")
async def test_a_read_only_file_system_is_read_and_named_by_who_needs_more(place: Place) -> None:
    script = 'mount --bind "$SWINK_SESSIONS_FOLDER" "$SWINK_SESSIONS_FOLDER"'
    script += '; mount -o remount,ro,bind "$SWINK_SESSIONS_FOLDER"'
    listed, found, run, goes_on, removed, renamed = await in_mounts(
        place,
        script,
        ("sessions",),
        ("sessions", "search", "one"),
        ("-p", "x", *PLAIN),
        ("-p", "x", "-c", *PLAIN),
        ("sessions", "rm", place.first),
        ("sessions", "rename", place.first, "title"),
    )
    assert (listed.code, len(listed.stdout.splitlines()), listed.stderr) == (0, 3, "")
    assert (found.code, found.stdout.split()[0]) == (0, place.first)
    assert (run.code, run.stdout, run.stderr.count("\n")) == (0, "Fine.\n", 1)
    assert run.stderr.startswith(NOT_RECORDED)
    for done in (goes_on, removed, renamed):
        check_one_line(done, 1, "cannot be opened: Read-only file system")


@pytest.mark.skipif(not can_mount(), reason="mounts need root")
@pytest.mark.parametrize("limit", ["size=4k", "nr_inodes=3"])
async def test_a_disk_that_is_full_when_a_session_is_to_be_made_is_a_warning(place: Place, limit: str) -> None:
    script = f'mount -t tmpfs -o {limit} none "$SWINK_SESSIONS_FOLDER"'
    script += '; (cd "$SWINK_SESSIONS_FOLDER"; printf %5000s x > a; touch b) 2> /dev/null || true'
    (done,) = await in_mounts(place, script, ("-p", "x", *PLAIN))
    assert (done.code, done.stdout) == (0, "Fine.\n")
    assert done.stderr.startswith(NOT_RECORDED)
    assert done.stderr.splitlines()[-1].endswith(" cannot be made: No space left on device")


async def test_other_things_than_files_and_folders_are_not_sessions(place: Place, tmp_path: Path) -> None:
    (place.folder / "folder.jsonl").mkdir()
    os.mkfifo(place.folder / "pipe.jsonl")
    names = ("folder", "pipe", "nope")
    for done in await place.all(*[("sessions", "rm", name) for name in names]):
        check_one_line(done, 2, "`swink sessions list --all` lists them")
    (place.folder / "folder.jsonl").rmdir()
    (place.folder / "pipe.jsonl").unlink()

    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "else")
    for name in ("file", "link"):
        environ = {"SWINK_SESSIONS_FOLDER": str(tmp_path / name)}
        async with place.model():
            done = await place.swink("-p", "x", *PLAIN, environ=environ)
        assert (done.code, done.stdout) == (0, "Fine.\n")
        said = f"the folder {tmp_path / name} cannot be created: a file with that name is in the way"
        assert done.stderr == f"{NOT_RECORDED}{said}\n"


async def test_in_a_folder_that_is_gone_the_others_are_still_listed(place: Place, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    process = await asyncio.create_subprocess_exec(
        *["bash", "-c", script, str(gone), *place.swink.command("sessions")],
        env=place.swink.environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await asyncio.wait_for(process.communicate(), 50)
    assert (process.returncode, stdout) == (2, b"")
    assert stderr == b"error: the current folder is gone: `swink sessions list --all` lists all sessions\n"


async def test_a_home_that_nobody_has_is_one_line(place: Place) -> None:
    wrong = "~nobody-of-that-name/x.md"
    exported = await place.swink("sessions", "export", place.first, "-o", wrong)
    check_one_line(exported, 2, "~nobody-of-that-name/x.md is not a path: there is no user of that name (-o)")
    for variable, where in (("SWINK_SESSIONS_FOLDER", "sessions_folder"), ("SWINK_CONFIG_DIR", "SWINK_CONFIG_DIR")):
        done = await place.swink("sessions", environ={variable: wrong})
        check_one_line(done, 2, f"there is no user of that name ({where})")


def folder_called(name: bytes, where: Path) -> Path:
    folder = Path(os.fsdecode(os.fsencode(where) + b"/" + name))
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("the file system has no such names")
    return folder


@pytest.mark.parametrize("name", [b"no\xfftext", "some \N{PARTY POPPER}\nlines".encode()])
async def test_a_folder_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "home").mkdir()
    swink = Ordinary(folder_called(name, tmp_path), tmp_path / "home")
    async with FakeProvider("anthropic", ["One.", "Two.", "Three."]) as provider:
        swink.use(provider)
        first = await swink("-p", "one", "--output", "json")
        second = await swink("-p", "two", "-c")
        session = json.loads(first.stdout)["session"]
        third = await swink("-p", "three", "--resume", session)
    assert [(done.code, done.stderr) for done in (first, second, third)] == [(0, "")] * 3
    assert [len(body["messages"]) for body in provider.bodies] == [1, 3, 5]
    (system,) = [block["text"] for block in provider.bodies[0]["system"]]
    assert f"Folder: {tmp_path}/" in system
    assert "\nlines" not in system, "a name is no line of its own"
    listed = await swink("sessions", "list", "--json")
    assert [(info["id"], info["messages"]) for info in json.loads(listed.stdout)] == [(session, 6)]
