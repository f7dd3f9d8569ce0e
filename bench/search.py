"""Measures the cost of a search over many sessions. Sessions that did not change are not read.

    python -m bench.search [--quick] [--check]

Sessions are files of messages, one per line. Each row compares a piece of work with a bare one: the first search with
reading and decoding the files, a later search with a look at the files and a query to a bare index, and with a scan of
all files.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from swink_agent import AgentMessage, UserMessage, decode_message, encode_message
from swink_agent.memory import SessionIndex
from swink_agent.memory.sessions.info import SessionInfo

from .__main__ import print_table

MOST_TO_INDEX = 20.0
MOST_TO_SEARCH = 8.0


class Loaded(NamedTuple):
    info: SessionInfo
    messages: list[AgentMessage]


class Sessions:
    """A folder of files, and how often one of them was read."""

    def __init__(self, folder: Path, count: int, messages: int) -> None:
        self.folder = folder
        self.reads = 0
        dice = random.Random(7)
        words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randrange(3, 10))) for _ in range(20_000)]
        for number in range(count):
            lines = [encode_message(UserMessage(" ".join(dice.choices(words, k=60)))) for _ in range(messages)]
            (folder / f"s{number}.jsonl").write_bytes(b"\n".join(lines))
        self.word = words[0]

    def load(self, session_id: str) -> Loaded:
        self.reads += 1
        lines = (self.folder / f"{session_id}.jsonl").read_bytes().split(b"\n")
        return Loaded(SessionInfo(id=session_id), [decode_message(line) for line in lines])

    def load_all(self) -> None:
        for path in self.folder.glob("*.jsonl"):
            self.load(path.stem)

    def look_through(self) -> int:
        wanted = self.word.encode()
        return sum(path.read_bytes().count(wanted) for path in self.folder.glob("*.jsonl"))


def seconds(work: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def bare(folder: Path, database: sqlite3.Connection, word: str) -> None:
    """The least that a search can do: look at every file, and ask."""
    with os.scandir(folder) as entries:
        for entry in entries:
            entry.stat()
    query = "SELECT rowid, text FROM messages WHERE messages MATCH ? ORDER BY rank LIMIT 20"
    database.execute(query, (f'"{word}"',)).fetchall()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.search", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="200 sessions instead of 1,000")
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit is missed")
    options = parser.parse_args()
    count = 200 if options.quick else 1000
    with tempfile.TemporaryDirectory() as name:
        sessions = Sessions(Path(name), count, 50)
        index = SessionIndex(name)
        reading = seconds(sessions.load_all, 2)
        indexing = seconds(lambda: index.search(sessions.word, 20, sessions.load), 1)
        sessions.reads = 0
        searching = seconds(lambda: index.search(sessions.word, 20, sessions.load), 9)
        reads = sessions.reads
        database = sqlite3.connect(index.path)
        asking = seconds(lambda: bare(sessions.folder, database, sessions.word), 9)
        database.close()
        looking = seconds(sessions.look_through, 3)
        size = index.path.stat().st_size / sum(path.stat().st_size for path in sessions.folder.glob("*.jsonl"))
    rows = [["work", "bare", "ours", "at most"]]
    rows.append(
        [
            f"the first search over {count} sessions",
            f"{reading:.2f} s",
            f"{indexing / reading:.1f}",
            f"{MOST_TO_INDEX:g}",
        ]
    )
    rows.append(["a search after that", f"{asking * 1e3:.1f} ms", f"{searching / asking:.2f}", f"{MOST_TO_SEARCH:g}"])
    rows.append(
        ["the same, against looking through the files", f"{looking * 1e3:.0f} ms", f"{searching / looking:.3f}", "1"]
    )
    rows.append(["sessions read by it", "0", str(reads), "0"])
    rows.append(["the size of the index", "1", f"{size:.1f}", "-"])
    print_table(rows)
    is_missed = (
        indexing / reading > MOST_TO_INDEX or searching / asking > MOST_TO_SEARCH or searching > looking or reads
    )
    return 1 if options.check and is_missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
