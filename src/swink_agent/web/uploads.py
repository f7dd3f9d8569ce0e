"""Files that a reader attaches: pictures and PDFs, recognised by their content, kept until the server ends.

Owns their folder, and the limits of their number and size. File names never come from the client.
"""

from __future__ import annotations

import secrets
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from swink_agent.core.encoding.media import kind_of

from .problems import Problem, invalid

_ENDINGS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "application/pdf": ".pdf",
}
_MOST_BYTES = 512 * 1024 * 1024
_MOST_FILES = 5000
"""Limits for all uploads of a server; the oldest are deleted first."""


class Upload(msgspec.Struct, frozen=True):
    """An uploaded file. Its `id` goes into the `attachments` of a prompt."""

    id: str
    media_type: str
    size: int


class Uploads:
    """The files of one server. Use it in threads: it writes and deletes files."""

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        self._files: dict[tuple[str, str], tuple[Path, int]] = {}
        self._lock = threading.Lock()

    def keep(self, session_id: str, data: bytes) -> Upload:
        """Keeps a file for one session. Raises `Problem` if it is neither a picture nor a PDF."""
        media_type = kind_of(data)
        if media_type not in _ENDINGS:
            raise Problem(415, "media_type", "only PNG, JPEG, GIF and WebP pictures and PDF documents can be attached")
        with self._lock:
            if self._folder is None:
                self._folder = TemporaryDirectory(prefix="swink-")
        upload = Upload(secrets.token_hex(16), media_type, len(data))
        path = Path(self._folder.name, f"{upload.id}{_ENDINGS[media_type]}")
        path.write_bytes(data)
        with self._lock:
            self._files[session_id, upload.id] = (path, len(data))
            self._drop_old()
        return upload

    def paths(self, session_id: str, ids: list[str]) -> list[str]:
        """Returns the paths of the files with these ids. Raises `Problem` for an id that this session does not have."""
        found = [self._files.get((session_id, upload_id)) for upload_id in ids]
        missing = [upload_id for upload_id, file in zip(ids, found, strict=True) if file is None]
        if missing:
            raise invalid(f"there is no upload {missing[0][:40]!r} in this session")
        return [str(file[0]) for file in found if file is not None]

    def _drop_old(self) -> None:
        total = sum([size for _, size in self._files.values()])
        for key in list(self._files)[:-1]:
            if total <= _MOST_BYTES and len(self._files) <= _MOST_FILES:
                return
            path, size = self._files.pop(key)
            path.unlink(missing_ok=True)
            total -= size

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
