"""The terminal UI as a person uses it: the real program in tmux, a model on loopback, its own home folder."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import textual.app
import textual.pilot
import textual.screen

from swink_agent.testing import LoopbackServer
from swink_agent.testing.servers import ReceivedRequest

from .tmux import Tmux

FRAME = 0.001
"""How often the screen is drawn in a test without a terminal."""
CALM = 5
"""How many idle frames must have passed."""


async def until_calm(min_sleep: float = 0.0, max_sleep: float = 5.0) -> None:
    """Returns when all typed input has been processed, as textual's own `wait_for_idle` does.

    Textual's version counts 20 ms without work as idle, twice for each key. That takes longer than the work, and on a
    busy machine a process that gets no CPU looks idle too. Here the event loop shows whether work is left.
    """
    loop: Any = asyncio.get_running_loop()
    deadline = time.monotonic() + max_sleep
    calm = 0
    while calm < CALM and time.monotonic() < deadline:
        worked = time.process_time()
        await asyncio.sleep(FRAME)
        # Ready callbacks have not run yet; a working thread of the program shows only in the CPU time.
        is_at_work = loop._ready or time.process_time() - worked > FRAME / 2
        calm = 0 if is_at_work else calm + 1


@pytest.fixture(autouse=True)
def quick_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (textual.app, textual.pilot):
        monkeypatch.setattr(module, "wait_for_idle", until_calm)
    monkeypatch.setattr(textual.screen, "UPDATE_PERIOD", FRAME)


needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: `.ci/run` installs it")


class SpokenModel:
    """A model on loopback whose replies a test sends piece by piece: `async with SpokenModel() as model`.

    Each request waits for its reply: `say` sends a piece of text, `call` a tool call, `finish` ends the reply. Requests
    are in `bodies`, in order.
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.left = 0
        """Connections that were closed before their reply ended."""
        self._server = LoopbackServer(self._answer)
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._came = asyncio.Condition()
        self._index = 0
        self._is_in_text = False
        self._has_calls = False

    async def __aenter__(self) -> SpokenModel:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *details: Any) -> None:
        await self._server.__aexit__(*details)

    @property
    def url(self) -> str:
        return self._server.url

    async def asked(self, count: int = 1) -> dict[str, Any]:
        """The body of the count-th request, once it has come."""
        async with asyncio.timeout(40), self._came:
            await self._came.wait_for(lambda: len(self.bodies) >= count)
        return self.bodies[count - 1]

    def say(self, text: str) -> None:
        if not self._is_in_text:
            self._put("content_block_start", index=self._index, content_block={"type": "text", "text": ""})
            self._is_in_text = True
        self._put("content_block_delta", index=self._index, delta={"type": "text_delta", "text": text})

    def think(self, text: str) -> None:
        self._close_text()
        block = {"type": "thinking", "thinking": "", "signature": ""}
        self._put("content_block_start", index=self._index, content_block=block)
        self._put("content_block_delta", index=self._index, delta={"type": "thinking_delta", "thinking": text})
        self._put("content_block_delta", index=self._index, delta={"type": "signature_delta", "signature": "c2ln"})
        self._put("content_block_stop", index=self._index)
        self._index += 1

    def call(self, name: str, **arguments: Any) -> None:
        self._close_text()
        block = {"type": "tool_use", "id": f"toolu_{len(self.bodies)}_{self._index}", "name": name, "input": {}}
        self._put("content_block_start", index=self._index, content_block=block)
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        self._put("content_block_delta", index=self._index, delta=delta)
        self._put("content_block_stop", index=self._index)
        self._index += 1
        self._has_calls = True

    def finish(self, *, tokens: int = 10) -> None:
        self._close_text()
        reason = "tool_use" if self._has_calls else "end_turn"
        self._put("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": tokens})
        self._put("message_stop")
        self._frames.put_nowait(None)
        self._index, self._has_calls = 0, False

    def reply(self, text: str) -> None:
        """A whole reply of text."""
        self.say(text)
        self.finish()

    def _close_text(self) -> None:
        if self._is_in_text:
            self._put("content_block_stop", index=self._index)
            self._index += 1
            self._is_in_text = False

    def _put(self, kind: str, **fields: Any) -> None:
        self._frames.put_nowait(f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode())

    async def _answer(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        async with self._came:
            self.bodies.append(json.loads(request.body))
            self._came.notify_all()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        usage = {"input_tokens": 1000, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
        start = json.dumps({"type": "message_start", "message": message})
        writer.write(f"event: message_start\ndata: {start}\n\n".encode())
        await writer.drain()
        try:
            while (frame := await self._frames.get()) is not None:
                writer.write(frame)
                await writer.drain()
        except asyncio.CancelledError:
            self.left += 1
            self._index, self._is_in_text, self._has_calls = 0, False, False
            while not self._frames.empty():
                self._frames.get_nowait()
            raise


class Program:
    """`swink` at its own terminal."""

    def __init__(self, place: Path) -> None:
        self.folder, self.home = place / "work", place / "home"
        self.folder.mkdir()
        self.home.mkdir()
        self.terminal = Tmux(place)
        self.environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "COLORTERM": "truecolor",
            "SWINK_DEBUG": "1",
            "SWINK_CONFIG_DIR": str(self.home / "config"),
            "SWINK_DATA_DIR": str(self.home / "data"),
            "SWINK_MODELS_DIR": str(self.home / "models"),
            "SSL_CERT_FILE": os.devnull,  # reading the machine's certificates takes long, and no test here uses TLS
        }

    def use(self, model: SpokenModel) -> None:
        self.environ |= {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "fake-key"}

    async def start(
        self,
        *arguments: str,
        columns: int = 100,
        rows: int = 30,
        environ: Mapping[str, str] | None = None,
        shell: bool = False,
    ) -> None:
        """Starts the program and waits for its first frame."""
        await self.terminal.start(
            [sys.executable, "-m", "swink_agent", *arguments],
            cwd=self.folder,
            environ={**self.environ, **(environ or {})},
            columns=columns,
            rows=rows,
            shell=shell,
        )
        await self.terminal.until(lambda screen: ("Execute" in screen and "idle" in screen) or "running" in screen)

    async def send(self, text: str) -> None:
        """Types a line and sends it, once it shows."""
        self.terminal.type(text)
        await self.terminal.until(text[-20:])
        self.terminal.press("Enter")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    try:
        yield made
    finally:
        made.terminal.close()
