"""Remembers which version and which lines of each file a conversation has seen.

Two refusals depend on it: to edit a file that someone else has changed, and to replace one that the model has not read.
The memory belongs to the conversation, so that one agent's reading does not allow another's writing; without a
conversation, to the workspace.
"""

from __future__ import annotations

import threading

_MOST_FILES = 10_000
_MOST_SPANS = 1000
_BEFORE_ALL = -1


class SeenFiles:
    """The files that were read and written, by their resolved names. Safe for threads."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, ...], _SeenFile] = {}
        self._lock = threading.Lock()

    def read(
        self, parts: tuple[str, ...], version: str, first: int, last: int, total: int | None, now: int | None = None
    ) -> None:
        """Records that these lines were shown. `total` is `None` if the end of the file was not seen.

        `now` is the length of the conversation: lines that are read at one length are known at the next. Without
        `now`, they are known at once.
        """
        with self._lock:
            file = self._files.get(parts)
            if file is None or file.version != version:
                file = _SeenFile(version)
            if not file.is_whole:
                file.add(first, last, total, _BEFORE_ALL if now is None else now)
            self._put(parts, file)

    def wrote(self, parts: tuple[str, ...], version: str, *, is_whole: bool) -> None:
        """Records a file that a tool wrote: known at once, and whole if the model knows all of its content."""
        with self._lock:
            file = _SeenFile(version)
            if is_whole:
                file.add(1, 0, 0, _BEFORE_ALL)
            self._put(parts, file)

    def version(self, parts: tuple[str, ...]) -> str | None:
        """The version that was seen last, whole or in part."""
        with self._lock:
            file = self._files.get(parts)
            return None if file is None else file.version

    def is_whole(self, parts: tuple[str, ...], version: str, now: int | None = None) -> bool:
        """Whether the model knows all of this version by now."""
        with self._lock:
            file = self._files.get(parts)
            if file is None or file.version != version or not file.is_whole:
                return False
            return now is None or file.since < now

    def _put(self, parts: tuple[str, ...], file: _SeenFile) -> None:
        """Moves the file to the end: the least recently used one is forgotten first."""
        self._files.pop(parts, None)
        self._files[parts] = file
        if len(self._files) > _MOST_FILES:
            self._files.pop(next(iter(self._files)))


class _SeenFile:
    """One version of a file: the spans of lines that were shown, in order and apart from each other."""

    __slots__ = ("_spans", "_total", "since", "version")

    def __init__(self, version: str) -> None:
        self.version = version
        self.since = _BEFORE_ALL
        self._spans: list[tuple[int, int]] = []
        self._total: int | None = None

    @property
    def is_whole(self) -> bool:
        if self._total is None:
            return False
        return self._total == 0 or (len(self._spans) == 1 and self._spans[0] == (1, self._total))

    def add(self, first: int, last: int, total: int | None, now: int) -> None:
        self.since = max(self.since, now)
        self._total = self._total if total is None else total
        if first > last:
            return
        spans: list[tuple[int, int]] = []
        for start, end in sorted([*self._spans, (first, last)]):
            if spans and start <= spans[-1][1] + 1:
                spans[-1] = (spans[-1][0], max(spans[-1][1], end))
            else:
                spans.append((start, end))
        self._spans = spans[:_MOST_SPANS]
