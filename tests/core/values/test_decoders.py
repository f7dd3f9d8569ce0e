"""Threads that decode a type for the first time at once: each gets its value, and the process survives.

A crash would end the whole process, so each try runs in its own.
"""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

import swink_agent
from swink_agent import Agent, ModelSpec
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, scripted, text

SOURCE = Path(swink_agent.__file__).parent
OWNER = SOURCE / "core" / "values" / "decoders.py"

TOGETHER = """
import sys, threading

THREADS = 24
start = threading.Barrier(THREADS)
problems = []

def together(*works):
    def begin(work):
        start.wait()
        try:
            work()
        except BaseException as error:
            problems.append(error)
    threads = [threading.Thread(target=begin, args=(works[n % len(works)],)) for n in range(THREADS)]
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
"""

SESSIONS = """
from swink_agent.memory import JsonlSessionStore
store = JsonlSessionStore(sys.argv[1])
name = store.folder.glob("*.jsonl").__next__().stem
together(lambda: store.load(name).messages, store.list, lambda: store.export(name, "markdown"))
"""

EVENTS = """
from swink_agent import AgentToolResult, ToolExecutionEnd, UserMessage
from swink_agent.core.encoding.codec import decode_event, decode_message, encode_event, encode_message
message = encode_message(UserMessage("hello"))
event = encode_event(ToolExecutionEnd("a", "look", AgentToolResult("seen"), False))
together(lambda: decode_message(message), lambda: decode_event(event))
"""

ADAPTERS = """
from importlib import import_module
names = ["proxy", "proxy_server", "openai", "anthropic", "bedrock", "openai_responses", "ollama", "catalog", "gemini"]
imports = [lambda name=name: import_module(f"swink_agent.adapters.{name}") for name in names]
from swink_agent import UserMessage
from swink_agent.core.encoding.codec import decode_message, encode_message
message = encode_message(UserMessage("hello"))
together(*imports, lambda: decode_message(message))
"""

TOOLS = """
from dataclasses import dataclass
from typing import Annotated
from msgspec import Meta, Struct
from swink_agent.core.schemas.schema import ValueSchema

class Inner(Struct):
    numbers: list[Annotated[int, Meta(ge=0)]]
    words: dict[str, str] = {}

@dataclass
class Middle:
    inner: Inner
    others: list[Inner]

class Outer(Struct):
    middle: Middle
    again: "list[Outer]" = []

data = {"middle": {"inner": {"numbers": [1]}, "others": []}, "again": []}
together(*[lambda kind=kind: ValueSchema(kind).convert(data) for kind in (Outer, Outer | None, list[Outer] | Outer)])
"""

EVALS = """
from swink_agent.evals.runs.codec import decode_attempt, decode_task, encode_attempt, encode_task
from swink_agent.evals.cases.loading import read_set
from swink_agent.evals.types import Attempt
attempt = encode_attempt(Attempt(1))
cases = '{"id": "s", "name": "s", "cases": [{"id": "c", "name": "c", "user_messages": ["hi"]}]}'
together(lambda: decode_attempt(attempt), lambda: read_set(cases, is_json=True))
"""

WORKS = {"sessions": SESSIONS, "events": EVENTS, "adapters": ADAPTERS, "tools": TOOLS, "evals": EVALS}


@pytest.fixture
def session(tmp_path: Path) -> Path:
    async def talk() -> None:
        with JsonlSessionStore(tmp_path, sync=False).create() as session:
            agent = Agent(ModelSpec("test", "one"), stream_fn=scripted(call("look", at=1), text("seen")))
            session.attach(agent)
            await agent.prompt("look")

    asyncio.run(talk())
    return tmp_path


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("times", [1, pytest.param(30, marks=[pytest.mark.sweep, pytest.mark.timeout(900)])])
def test_threads_may_meet_a_type_for_the_first_time_at_once(session: Path, work: str, times: int) -> None:
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, "-c", TOGETHER + WORKS[work], str(session)],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert (done.returncode, done.stderr) == (0, "")


CALLS = re.compile(rb"\. *(?:convert|Decoder|decode)\b")
"""What is in a file that builds a decoder. Parsing takes long, so other files are not parsed."""


@pytest.mark.sweep
def test_decoders_are_built_in_one_place() -> None:
    """`convert` may be called by whoever had the type learned before: `Shapes`, alone."""
    sources = {path: path.read_bytes() for path in sorted(SOURCE.rglob("*.py")) if path != OWNER}
    found = [
        f"{path.relative_to(SOURCE)}: {built}"
        for path, source in sources.items()
        if CALLS.search(source)
        for node in ast.walk(ast.parse(source))
        if (built := _builds(node)) is not None
    ]
    assert set(found) == {"core/schemas/shapes.py: convert"}


def _builds(node: ast.AST) -> str | None:
    """What the call is that has msgspec look at a type, if it is one."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    owner = ast.unparse(node.func.value)
    name = node.func.attr
    if owner == "msgspec" and name == "convert":
        return name
    if owner in ("msgspec.json", "msgspec.msgpack", "msgspec.yaml", "msgspec.toml", "json", "msgpack"):
        if name == "Decoder" and node.args:
            return name
        if name == "decode" and any(word.arg == "type" and not _is_plain(word.value) for word in node.keywords):
            return name
    return None


def _is_plain(kind: ast.expr) -> bool:
    names = {node.id for node in ast.walk(kind) if isinstance(node, ast.Name)}
    return names <= {"str", "dict", "Any", "list", "int"}
