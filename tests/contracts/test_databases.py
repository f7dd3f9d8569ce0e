"""Only SQLite opens the files of databases.

If a process closes any descriptor of a file, all locks end that SQLite has on the file in this process. Then another
process takes the database for unused, and deletes what was not moved into it yet.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import swink_agent

_PROLOGUE = """
import asyncio, json, os, sys
from pathlib import Path

folder = Path(sys.argv[1])
opened, connected = [], []

def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        opened.append(os.path.basename(os.fsdecode(arguments[0])))
    elif event == "sqlite3.connect" and arguments[0] != ":memory:":
        connected.append(os.fsdecode(arguments[0]))

sys.addaudithook(hook)
"""
_EPILOGUE = """
print(json.dumps([opened, connected]))
"""
_STORES = {
    "memory": """
from swink_agent import Agent
from swink_agent.memory import JsonlSessionStore, SqlSessionStore
from swink_agent.testing import scripted

def use(store, again):
    for each in (store, again, store):
        with each.create(cwd=folder) as session:
            agent = Agent("test:model", stream_fn=scripted("needle"))
            session.attach(agent)
            agent.prompt_sync("go")
    assert len(store.search("needle")) == len(again.search("needle")) == 3
    again.fork(session.id).close()
    store.delete(session.id)
    assert len(again.list()) == 3 and len(again.search("needle")) == 3

use(JsonlSessionStore(folder / "files"), JsonlSessionStore(folder / "files"))
use(SqlSessionStore(folder / "all.db"), SqlSessionStore(folder / "all.db"))
""",
    "tools": """
from swink_agent.tools.checkpoints.store import CheckpointStore

tree = folder / "tree"
tree.mkdir()
store, again = CheckpointStore(folder / "kept"), CheckpointStore(folder / "kept")
(tree / "a.txt").write_text("old")
first = store.take(tree)
(tree / "a.txt").write_text("new")
again.take(tree, "run", "run")
again.rewind(tree, store.plan(tree, first))
assert (tree / "a.txt").read_text() == "old"
store.settle(tree)
assert store.roots() and again.checkpoints(tree)

import sqlite3
from swink_agent import ToolContext
from swink_agent.tools import standard_tools

async def go():
    # in a folder in which this process has a database open
    database = sqlite3.connect(tree / "app.db")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE rows (name)")
    assert {"app.db", "app.db-wal", "app.db-shm"} <= set(os.listdir(tree))
    tools = {tool.name: tool for tool in standard_tools(tree)}
    for name, given in {
        "read_file": {},
        "write_file": {"content": "x"},
        "edit_file": {"edits": [{"old": "S", "new": "x"}]},
    }.items():
        for path in ("app.db", "app.db-shm"):
            result = await tools[name].execute({"path": path, **given}, ToolContext())
            assert "in use by this program" in result.content[0].text, result
    await tools["search"].execute({"pattern": "SQLite"}, ToolContext())
    store.take(tree, "run", "run")
    done = {item.path: item.what for item in store.rewind(tree, store.plan(tree, first, force=True))}
    assert {name: what for name, what in done.items() if name.startswith("app.db")} == dict.fromkeys(
        ("app.db", "app.db-wal", "app.db-shm"), "failed"
    )
    assert database.execute("SELECT count(*) FROM rows").fetchone() == (0,)
    database.close()

asyncio.run(go())
again.forget()
""",
    "durable": """
from swink_agent import Agent
from swink_agent.durable import Durable
from swink_agent.testing import scripted

async def main():
    url = f"sqlite:///{folder}/durable.db"
    async with Durable(url) as store, Durable(url) as again:
        again.agent("a")(lambda: Agent("test:model", stream_fn=scripted("hello")))
        run = await store.submit("a", "go")
        async with again.worker(poll=0.05):
            await run.result(timeout=30)
        await again.stats()
        assert len(await store.runs()) == 1
        await run.load()

asyncio.run(main())
""",
}


@pytest.mark.parametrize("package", _STORES)
def test_only_sqlite_opens_the_files_of_databases(package: str, tmp_path: Path) -> None:
    program = _PROLOGUE + _STORES[package] + _EPILOGUE
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    opened, connected = json.loads(done.stdout)
    names = {Path(name.removeprefix("file:").partition("?")[0]).name for name in connected}
    assert names
    databases = {name + ending for name in names for ending in ("", "-wal", "-shm", "-journal")}
    assert databases & set(opened) == set()


def test_each_package_that_uses_sqlite_is_in_the_test_above() -> None:
    source = Path(swink_agent.__file__).parent
    found = {
        path.relative_to(source).parts[0]
        for path in source.rglob("*.py")
        if re.search(r"^\s*import (sqlite3|sqlalchemy)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert found == set(_STORES)
