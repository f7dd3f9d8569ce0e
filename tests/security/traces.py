"""Finds traces of a run on the machine and in the outputs: files, processes, connections, secrets.

Owns the search. `world` judges the findings.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, quote_plus

STRAY_PLACES = ("/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/etc", "/etc/cron.d", "/usr/local/bin", "/usr/lib")


def snapshot(*paths: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    todo = [str(path) for path in paths]
    while todo:
        path = todo.pop()
        with suppress(FileNotFoundError):
            state = os.lstat(path)
            if stat.S_ISDIR(state.st_mode):
                todo += [f"{path}/{name}" for name in os.listdir(path)]
                content = "folder"
            elif stat.S_ISLNK(state.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(state.st_mode):
                content = hashlib.sha256(_read(path)).hexdigest()[:12]
            else:
                content = "special"
            found[path] = f"{oct(state.st_mode)} {state.st_uid} {content}"
    return found


def _read(path: str) -> bytes:
    """The file, in as few calls as can be: every test looks at hundreds of them, most very small."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 20), b""))
    finally:
        os.close(file)


def leaks(outputs: dict[str, str], canary: str) -> list[str]:
    """The outputs that hold the canary in a form that is promised not to get out."""
    forms = promised_forms(canary)
    return [name for name, text in outputs.items() if any(form in text for form in forms)]


def promised_forms(canary: str) -> set[str]:
    """The canary as it is, escaped as in JSON, URL-encoded, in hexadecimal, and in base64 at any offset."""
    raw = canary.encode()
    forms = {canary, json.dumps(canary)[1:-1], quote(canary), quote(canary, safe=""), quote_plus(canary)}
    forms |= {raw.hex(), raw.hex().upper()}
    for offset in range(3):
        # Without the characters at either end that what stands around it changes.
        encoded = base64.b64encode(b"?" * offset + raw).rstrip(b"=").decode()[4:-4]
        forms |= {encoded, encoded.replace("+", "-").replace("/", "_")}
    return forms


def running_with(marker: str) -> list[str]:
    """Processes with the marker in their arguments or environment: the machine's own list, so no sandbox hides them."""
    found: list[str] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError):
                line = _read(f"/proc/{name}/cmdline") + b" " + _read(f"/proc/{name}/environ")
                if marker.encode() in line:
                    found.append(f"{name}: {line[:100]!r}")
    return found


def strays(marker: str) -> Iterator[str]:
    for place in STRAY_PLACES:
        with suppress(OSError):
            yield from (os.path.join(place, name) for name in os.listdir(place) if marker in name)


def was_reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(1024)
    except BlockingIOError:
        return False
    return True
