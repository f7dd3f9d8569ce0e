"""Files that a reader attaches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from swink_agent.web import uploads
from swink_agent.web.problems import Problem
from swink_agent.web.uploads import Uploads

PDF = b"%PDF-1.4\n%%EOF\n"


def test_the_first_uploads_may_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Uploads()
    began = Barrier(4)
    made = uploads.TemporaryDirectory

    def slowly(prefix: str) -> object:
        with ThreadPoolExecutor(1) as other:  # lets the other threads go on
            return other.submit(made, prefix=prefix).result()

    monkeypatch.setattr(uploads, "TemporaryDirectory", slowly)

    def keep(_: int) -> str:
        began.wait(10)
        return kept.keep("session", PDF).id

    with ThreadPoolExecutor(4) as threads:
        ids = list(threads.map(keep, range(4)))
    assert [Path(path).read_bytes() for path in kept.paths("session", ids)] == [PDF] * 4
    kept.close()


def test_the_oldest_uploads_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Uploads()
    monkeypatch.setattr(uploads, "_MOST_FILES", 3)
    ids = [kept.keep("session", PDF).id for _ in range(5)]
    with pytest.raises(Problem):
        kept.paths("session", ids[:2])
    paths = kept.paths("session", ids[2:])
    assert sorted(Path(paths[0]).parent.iterdir()) == sorted(map(Path, paths))
    monkeypatch.setattr(uploads, "_MOST_BYTES", 2 * len(PDF))
    newest = kept.keep("session", PDF).id
    assert len(list(Path(paths[0]).parent.iterdir())) == 2
    assert kept.paths("session", [newest])
    with pytest.raises(Problem):
        kept.paths("other session", [newest])
    kept.close()
