"""A PostgreSQL server for the tests: in its own folder, on a socket there, as a user who is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def programs() -> Path | None:
    """The folder of the newest server that is installed."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin/initdb") if os.access(path, os.X_OK)]
    if found:
        return max(found, key=lambda path: int(path.parts[-3].partition(".")[0])).parent
    initdb = shutil.which("initdb")
    return None if initdb is None else Path(initdb).parent


@contextmanager
def server() -> Iterator[PostgresServer]:
    """A server that is stopped and deleted at the end. `programs` must have found one."""
    folder = Path(tempfile.mkdtemp(prefix="swink-pg-"))
    one = PostgresServer(folder)
    try:
        one.create()
        one.start()
        yield one
    finally:
        one.stop()
        shutil.rmtree(folder, ignore_errors=True)


class PostgresServer:
    """One server. Its databases have the same owner, who needs no password on the socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = programs()
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        folder.chmod(0o700)

    def create(self) -> None:
        assert self._programs is not None
        command = [self._programs / "initdb", "-D", self.folder / "data", "-U", "swink", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*command, "--no-sync", "--locale=C"], check=True, capture_output=True, cwd="/", **self._as)

    def start(self) -> None:
        assert self._programs is not None
        options = [
            "-c",
            "fsync=off",
            "-c",
            "listen_addresses=",
            "-c",
            "max_connections=100",
            "-c",
            "shared_buffers=32MB",
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                **self._as,
            )
        deadline = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.address("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Stops the server at once, as a power cut would."""
        if self._process is not None:
            self._process.send_signal(3)  # SIGQUIT: immediate
            self._process.wait(30)
            self._process = None

    def address(self, name: str) -> str:
        return f"postgresql://swink@/{name}?host={self.folder}"

    def database(self, name: str, template: str = "template1") -> str:
        """The address of a new database, a copy of the template."""
        import psycopg

        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.address(name)
