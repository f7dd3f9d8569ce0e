"""A writer of random texts by a grammar, and a scripted engine, as fixtures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from swink_agent import AgentContext, AssistantMessage, CancellationToken, MessageAssembler, ModelSpec, StreamOptions
from swink_agent.local.worker.engine import Chunk, Completion, Finished, ModelInfo, Overflowed, Piece, Progress


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


class ScriptedEngine:
    """An engine that gives scripted replies, one per request, and keeps the requests."""

    def __init__(self, *replies: str | Sequence[Chunk] | Exception, window: int = 2_048, template: str = "") -> None:
        self.replies = list(replies)
        self.requests: list[Completion] = []
        self.info = ModelInfo(window, template)
        self.load_error: Exception | None = None
        self.is_closed_early = False
        self.hold = asyncio.Event()
        self.hold.set()

    async def load(self) -> ModelInfo:
        if self.load_error is not None:
            raise self.load_error
        return self.info

    async def complete(self, request: Completion) -> AsyncIterator[Chunk]:
        self.requests.append(request)
        tokens = len(request.prompt) // 4
        if tokens > self.info.context_length:
            yield Overflowed(tokens, self.info.context_length)
            return
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        is_over = False
        try:
            yield Progress(0, tokens)
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply, str):
                pieces = [reply[start : start + 3] for start in range(0, len(reply), 3)]
                reply = [*(Piece(piece) for piece in pieces), Finished(False, tokens, tokens // 2, len(pieces))]
            for chunk in reply:
                await asyncio.sleep(0)
                await self.hold.wait()
                is_over = isinstance(chunk, Finished)
                yield chunk
        finally:
            self.is_closed_early = not is_over

    async def render(self, messages: Sequence[tuple[str, str]]) -> str:
        return "".join(f"[{role}]{text}" for role, text in messages) + "[assistant]"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[float(len(text))] for text in texts]


@pytest.fixture
def scripted_engine() -> type[ScriptedEngine]:
    return ScriptedEngine


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
