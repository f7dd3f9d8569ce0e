"""Asks llama.cpp's HTTP server, which listens on a Unix socket.

Knows its addresses and its answers, of which a completion is server-sent events. `engine` starts the server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from .values import Chunk, Completion, EngineError, Finished, ModelInfo, Overflowed, Piece, Progress

if TYPE_CHECKING:
    import aiohttp

_LONGEST_LINE = 1 << 20
_EVENT = b"data: "
_END = b"[DONE]"


class ServerLost(Exception):
    """Nothing listens on the socket, or the connection broke: the process has ended, or has not begun to listen."""


class LlamaServer:
    """The server behind a socket. Each request has a connection of its own, so every event loop can use it.

    Methods raise `ServerLost`, and `EngineError` with the server's words if it refuses a request.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    async def is_ready(self) -> bool:
        """Whether the model is loaded."""
        async with self._asked("GET", "/health") as response:
            return response.status == 200

    async def info(self) -> ModelInfo:
        properties = await self._answer("GET", "/props")
        settings: dict[str, Any] = properties["default_generation_settings"]
        return ModelInfo(int(settings["n_ctx"]), str(properties.get("chat_template") or ""))

    async def complete(self, request: Completion) -> AsyncGenerator[Chunk, None]:
        """Yields pieces, then `Finished` or `Overflowed`. Closing the generator closes the connection, which stops
        the work."""
        async with self._asked("POST", "/v1/completions", _body(request)) as response:
            if response.status != 200:
                yield _overflow(await _content(response))
                return
            async for line in response.content:
                if line.startswith(_EVENT) and line[len(_EVENT) :].strip() != _END:
                    for chunk in _chunks(msgspec.json.decode(line[len(_EVENT) :])):
                        yield chunk

    async def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """Applies the model's chat template, up to the assistant's reply."""
        body = {"messages": [{"role": role, "content": text} for role, text in messages]}
        return str((await self._answer("POST", "/apply-template", body))["prompt"])

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        answer = await self._answer("POST", "/v1/embeddings", {"input": list(texts)})
        rows: list[dict[str, Any]] = sorted(answer["data"], key=lambda row: row["index"])
        return [[float(number) for number in row["embedding"]] for row in rows]

    async def save_state(self, name: str) -> None:
        """Writes the state of the context to a file in the folder of states."""
        await self._answer("POST", "/slots/0?action=save", {"filename": name})

    async def restore_state(self, name: str) -> None:
        await self._answer("POST", "/slots/0?action=restore", {"filename": name})

    async def _answer(self, method: str, path: str, body: object = None) -> Any:
        async with self._asked(method, path, body) as response:
            content = await _content(response)
            if response.status != 200:
                raise _refusal(content)
            return content

    @asynccontextmanager
    async def _asked(self, method: str, path: str, body: object = None) -> AsyncGenerator[aiohttp.ClientResponse]:
        import aiohttp

        connector = aiohttp.UnixConnector(self.address, force_close=True)
        limits = aiohttp.ClientTimeout(total=None)
        data = None if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json"}
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=limits, read_bufsize=_LONGEST_LINE) as session,
                session.request(method, f"http://localhost{path}", data=data, headers=headers) as response,
            ):
                yield response
        except (aiohttp.ClientError, OSError) as error:
            raise ServerLost(f"{error}") from error


async def _content(response: aiohttp.ClientResponse) -> Any:
    text = await response.read()
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {"error": {"message": text.decode(errors="replace")}}


def _body(request: Completion) -> dict[str, Any]:
    body: dict[str, Any] = {
        "prompt": request.prompt,
        "n_predict": request.max_tokens,
        "stream": True,
        "cache_prompt": True,
        "return_progress": True,
        "temperature": request.temperature,
        "top_p": 0.95,
        "top_k": 40,
    }
    if request.grammar:
        body["grammar"] = request.grammar
    if request.seed is not None:
        body["seed"] = request.seed
    return body


def _chunks(event: dict[str, Any]) -> list[Chunk]:
    if "error" in event:
        return [_overflow(event)]
    found: list[Chunk] = []
    if progress := event.get("prompt_progress"):
        found.append(Progress(int(progress["processed"]), int(progress["total"]), int(progress.get("cache", 0))))
    choice = event["choices"][0]
    if choice.get("text"):
        found.append(Piece(choice["text"]))
    if choice.get("finish_reason"):
        found.append(_finished(choice["finish_reason"], event))
    return found


def _finished(reason: str, event: dict[str, Any]) -> Finished:
    usage: dict[str, Any] = event.get("usage") or {}
    timings: dict[str, Any] = event.get("timings") or {}
    details: dict[str, Any] = usage.get("prompt_tokens_details") or {}
    prompt = int(usage.get("prompt_tokens") or 0)
    cached = int(details.get("cached_tokens") or 0)
    return Finished(
        reason == "length",
        prompt,
        min(cached, prompt),
        int(usage.get("completion_tokens") or 0),
        float(timings.get("prompt_ms") or 0.0) / 1e3,
        float(timings.get("predicted_ms") or 0.0) / 1e3,
    )


def _overflow(content: dict[str, Any]) -> Overflowed:
    """The refusal of a prompt that is too long. Raises `EngineError` for any other refusal."""
    error: dict[str, Any] = content["error"]
    if error.get("type") != "exceed_context_size_error":
        raise _refusal(content)
    return Overflowed(int(error["n_prompt_tokens"]), int(error["n_ctx"]))


def _refusal(content: dict[str, Any]) -> EngineError:
    return EngineError(f"llama.cpp refused the request: {content['error'].get('message')}")
