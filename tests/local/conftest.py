"""A writer of random texts by a grammar, and a scripted model, as fixtures."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from swink_agent import AgentContext, AssistantMessage, CancellationToken, MessageAssembler, ModelSpec, StreamOptions
from swink_agent.local import LocalStreamFn
from swink_agent.local.worker.engine import Engine, Workers

FAKE = (sys.executable, str(Path(__file__).with_name("fake_llama.py")))


class GrammarWriter:
    """Writes random texts of a GBNF grammar, as a model without knowledge would."""

    def __init__(self, text: str, source: random.Random) -> None:
        self._random = source
        self._rules: dict[str, Any] = {}
        for line in text.splitlines():
            name, _, body = line.partition(" ::= ")
            reader = _BodyReader(body)
            self._rules[name] = reader.alternatives()
            assert reader.is_at_end, f"{line!r} could be read up to character {reader.position} only"

    def write(self, rule: str = "root") -> str:
        return "".join(self._write(self._rules[rule], 0))

    def _write(self, alternatives: Any, depth: int) -> list[str]:
        assert depth < 400, "the grammar has no end"
        # Deep in a recursion, the alternative with the fewest parts ends it soonest.
        chosen = min(alternatives, key=len) if depth > 60 else self._random.choice(alternatives)
        written: list[str] = []
        for kind, value, least, most in chosen:
            limit = least + 3 if most is None else min(most, least + 3)
            for _ in range(self._random.randint(least, limit)):
                if kind == "text":
                    written.append(value)
                elif kind == "class":
                    written.append(value(self._random))
                elif kind == "group":
                    written += self._write(value, depth + 1)
                else:
                    written += self._write(self._rules[value], depth + 1)
        return written


class _BodyReader:
    def __init__(self, body: str) -> None:
        self.body = body
        self.position = 0

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self.body)

    def alternatives(self) -> list[Any]:
        found: list[Any] = [[]]
        while not self.is_at_end and self.body[self.position] != ")":
            character = self.body[self.position]
            if character == " ":
                self.position += 1
            elif character == "|":
                self.position += 1
                found.append([])
            else:
                kind, value = self._atom(character)
                found[-1].append((kind, value, *self._times()))
        return found

    def _atom(self, character: str) -> tuple[str, Any]:
        if character == '"':
            return "text", self._literal()
        if character == "[":
            return "class", self._class()
        if character == "(":
            self.position += 1
            group = self.alternatives()
            assert self.body[self.position] == ")"
            self.position += 1
            return "group", group
        start = self.position
        while not self.is_at_end and (self.body[self.position].isalnum() or self.body[self.position] == "-"):
            self.position += 1
        assert self.position > start, f"{self.body!r} at {start}"
        return "rule", self.body[start : self.position]

    def _character(self) -> str:
        character = self.body[self.position]
        self.position += 1
        if character != "\\":
            return character
        escape = self.body[self.position]
        self.position += 1
        digits = {"x": 2, "u": 4, "U": 8}.get(escape, 0)
        if digits:
            code = self.body[self.position : self.position + digits]
            self.position += digits
            return chr(int(code, 16))
        return {"n": "\n", "r": "\r", "t": "\t"}.get(escape, escape)

    def _literal(self) -> str:
        self.position += 1
        text = ""
        while self.body[self.position] != '"':
            text += self._character()
        self.position += 1
        return text

    def _class(self) -> Callable[[random.Random], str]:
        self.position += 1
        is_negated = self.body[self.position] == "^"
        self.position += is_negated
        allowed: set[str] = set()
        while self.body[self.position] != "]":
            low = self._character()
            high = low
            if self.body[self.position] == "-" and self.body[self.position + 1] != "]":
                self.position += 1
                high = self._character()
            allowed |= {chr(code) for code in range(ord(low), ord(high) + 1)}
        self.position += 1
        if is_negated:
            allowed = {c for c in map(chr, [*range(1, 128), 0xE9, 0x4E2D, 0x1F600]) if c not in allowed}
        choices = sorted(allowed)
        return lambda source: source.choice(choices)

    def _times(self) -> tuple[int, int | None]:
        mark = self.body[self.position] if not self.is_at_end else ""
        if mark in ("*", "+", "?"):
            self.position += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[mark]
        if mark == "{":
            end = self.body.index("}", self.position)
            least, comma, most = self.body[self.position + 1 : end].partition(",")
            self.position = end + 1
            return int(least), (int(most) if most else None) if comma else int(least)
        return 1, 1


@pytest.fixture
def write_by() -> Callable[..., list[str]]:
    """`write_by(grammar, count, seed)`: `count` random texts of a grammar."""

    def write(grammar: str, count: int = 20, seed: int = 1) -> list[str]:
        writer = GrammarWriter(grammar, random.Random(seed))
        return [writer.write() for _ in range(count)]

    return write


class Asked(NamedTuple):
    """What was asked of the server."""

    prompt: str
    grammar: str
    max_tokens: int
    temperature: float


class ScriptedModel:
    """A model in a worker process that gives scripted replies, one per completion, and keeps what it was asked."""

    def __init__(self, folder: Path, replies: Sequence[Any], script: dict[str, Any]) -> None:
        self.states = folder / ".states"
        self.file = folder / "model.gguf"
        self.file.write_text("GGUF" + json.dumps({"template": "", "window": 2_048, **script, "replies": replies}))
        self.workers = Workers(lambda settings: Engine(settings, command=FAKE))

    def stream_fn(self, **options: Any) -> LocalStreamFn:
        return LocalStreamFn(str(self.file), cache_dir=self.file.parent, workers=self.workers, **options)

    @property
    def asked(self) -> list[Asked]:
        """The completions; with `max_tokens` 0, those that only read a beginning."""
        lines = map(json.loads, (self.states / "asked.jsonl").read_text().splitlines())
        return [Asked(one["prompt"], one.get("grammar", ""), one["n_predict"], one["temperature"]) for one in lines]

    @property
    def requests(self) -> list[Asked]:
        """The completions that write something."""
        return [asked for asked in self.asked if asked.max_tokens]

    async def closed_early(self) -> None:
        """Waits until a connection was closed before its reply was complete."""
        await asyncio.to_thread(self._wait_for, self.states / "closed")

    def _wait_for(self, file: Path) -> None:
        deadline = time.monotonic() + 30
        while not file.exists():
            assert time.monotonic() < deadline, f"{file.name} did not come"
            time.sleep(0.01)


@pytest.fixture
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ScriptedModel]]:
    """`scripted(*replies, window=…, template=…)`: a reply is a text or a list of the events of `fake_llama`."""
    models: list[ScriptedModel] = []

    def make(*replies: Any, **script: Any) -> ScriptedModel:
        models.append(ScriptedModel(tmp_path_factory.mktemp("model"), replies, script))
        return models[-1]

    yield make
    for model in models:
        model.workers.close()


SPEC = ModelSpec("local", "scripted")


@pytest.fixture
def ask() -> Callable[..., Any]:
    """`await ask(stream_fn, context, **options)`: the whole message, the event sequence checked."""

    async def ask(
        stream_fn: Any, context: AgentContext, *, model: ModelSpec = SPEC, **options: Any
    ) -> AssistantMessage:
        assembler = MessageAssembler(model)
        async for event in stream_fn(model, context, StreamOptions(**options), CancellationToken()):
            assembler.feed(event)
        message = assembler.message()
        assert not assembler.is_broken, message.error_message
        return message

    return ask
