"""Stores of both kinds, each new for its test, and fleets of workers that can be killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from swink_agent.durable.store.store import Store
from swink_agent.durable.urls import store_address

from . import postgres

KINDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.sweep))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    if postgres.programs() is None:
        pytest.skip("it needs a PostgreSQL server, which is not installed")
    with postgres.server() as one:
        _prepare(one.database("template"))
        yield one


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "template.db"
    _prepare(f"sqlite:///{path}")
    return path


def _prepare(url: str) -> None:
    """Makes the tables, so that not every test has to."""
    store = Store(store_address(url))
    store.stats()
    store.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of store."""
    return request.param


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store with its tables, and nothing in them."""
    if kind == "postgres":
        server: postgres.PostgresServer = request.getfixturevalue("postgres_server")
        return server.database(f"t{uuid4().hex[:12]}", template="template")
    path = tmp_path / "durable.db"
    shutil.copy(request.getfixturevalue("sqlite_template"), path)
    return f"sqlite:///{path}"


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    path = tmp_path / "durable.db"
    shutil.copy(sqlite_template, path)
    return f"sqlite:///{path}"


class Fleet:
    """Workers in separate processes, which a test starts, stops and kills."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self._program = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("fleet.py"), url, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.workers: list[int] = []

    def start(self, **options: Any) -> int:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps({"do": "start", **options}) + "\n")
        self._program.stdin.flush()
        process = int(self._program.stdout.readline())
        self.workers.append(process)
        return process

    def signal(self, process: int, number: int) -> None:
        os.kill(process, number)

    def kill(self, process: int) -> None:
        os.kill(process, signal.SIGKILL)
        self.workers.remove(process)

    def exit_code(self, process: int, seconds: float = 60) -> int:
        """Waits for a worker that ends by itself."""
        path = self.folder / f"exit-{process}"
        wait_until(path.exists, seconds)
        self.workers.remove(process)
        return int(path.read_text())

    def marks(self, kind: str) -> list[list[str]]:
        try:
            lines = (self.folder / "marks").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [words[1:] for line in lines if (words := line.split())[0] == kind]

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        for process in self.workers:
            for number in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.kill(process, number)
                except ProcessLookupError:
                    break
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.close()
        self._program.wait(30)
        self._program.stdout.close()


def wait_until(is_true: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Iterator[Fleet]:
    one = Fleet(url, tmp_path)
    try:
        yield one
    finally:
        one.close()
