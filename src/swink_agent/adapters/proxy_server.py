"""The proxy's server: holds the providers' keys, and streams for those who have a token.

Owns who may ask, how much at once, and the life of a stream: the upstream call ends when the client goes away. It
writes no access log, and neither keys, tokens nor prompts into any other. On aiohttp's own server.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import msgspec
from aiohttp import web

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import AgentError, ErrorKind
from swink_agent.core.stream import AssistantMessageEvent, StreamFailed, StreamFn, StreamOptions
from swink_agent.core.types import AgentContext, ModelSpec

from ._outgoing import refused_files
from .proxy import PATH, ProxyRequest

__all__ = ["ProxyServer"]

log = logging.getLogger("swink_agent")
_MOST_BYTES = 32 * 1024 * 1024
_STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}


class ProxyServer:
    """A proxy for stream functions.

    `tokens` maps each token to the number of streams that its holder may have at once. `stream_fn` gives the stream
    function for a model, by default the adapter of the model's provider.
    """

    def __init__(
        self,
        tokens: Mapping[str, int],
        stream_fn: Callable[[ModelSpec], StreamFn] | None = None,
        *,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        if not tokens or any(not token.strip() or limit < 1 for token, limit in tokens.items()):
            raise ValueError("the proxy needs at least one token, none of them empty, each with at least one stream")
        self._tokens = {token.encode(): limit for token, limit in tokens.items()}
        self._open = dict.fromkeys(self._tokens, 0)
        self._most_bytes = most_bytes
        self._stream_fn = stream_fn or _adapter_of

    def __repr__(self) -> str:
        return f"<ProxyServer, {len(self._tokens)} tokens, {sum(self._open.values())} streams open>"

    @property
    def open_streams(self) -> int:
        return sum(self._open.values())

    def app(self) -> web.Application:
        """The application, for a server of one's own; run it with `handler_cancellation=True`."""
        app = web.Application(client_max_size=self._most_bytes)
        app.router.add_post(PATH, self._handle)
        app.router.add_get("/health", _healthy)
        return app

    @asynccontextmanager
    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[str]:
        """Serves while the block lasts, and gives the address."""
        runner = web.AppRunner(self.app(), access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            bound = runner.addresses[0]
            yield f"http://{bound[0]}:{bound[1]}"
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        token = self._token_of(request)
        if token is None:
            return _refuse(401, "the token is missing or unknown")
        if self._open[token] >= self._tokens[token]:
            limit = self._tokens[token]
            return _refuse(429, f"this token has its {limit} streams open already", {"retry-after": "1"})
        self._open[token] += 1
        try:
            return await self._answer(request)
        finally:
            self._open[token] -= 1

    def _token_of(self, request: web.Request) -> bytes | None:
        """The token, compared with every one that there is in a time that tells nothing."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        found: bytes | None = None
        for token in self._tokens:
            if hmac.compare_digest(token, given.strip().encode()) and scheme.lower() == "bearer":
                found = token
        return found

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = msgspec.json.decode(await request.read(), type=ProxyRequest)
        except web.HTTPRequestEntityTooLarge:
            return _refuse(413, f"the request is larger than {self._most_bytes} bytes")
        except msgspec.DecodeError as error:
            return _refuse(400, f"the request cannot be read: {error}")
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await response.prepare(request)
        cancel = CancellationToken()
        try:
            async with aclosing(cast("Any", self._events(asked, cancel))) as events:
                async for event in events:
                    await response.write(b"data: " + msgspec.json.encode(event) + b"\n\n")
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            cancel.cancel()  # the client has gone, and the upstream call with it
            raise
        return response

    async def _events(self, asked: ProxyRequest, cancel: CancellationToken) -> AsyncIterator[AssistantMessageEvent]:
        """The upstream events; whatever goes wrong there is a failure event here."""
        options = StreamOptions(
            temperature=asked.options.temperature,
            max_tokens=asked.options.max_tokens,
            session_id=asked.options.session_id,
            tool_choice=asked.options.tool_choice,
            cache="none" if asked.options.cache == "none" else "auto",
            extra=asked.options.extra,
        )
        # A path in a request is one of the client's machine; whoever may ask may not read files of this one.
        messages = tuple(refused_files(asked.messages))
        context = AgentContext(asked.system_prompt, messages, tuple(asked.tools))
        try:
            stream = self._stream_fn(asked.model)(asked.model, context, options, cancel)
            async with aclosing(cast("Any", stream)) as events:
                async for event in events:
                    yield event
        except AgentError as error:
            yield StreamFailed(str(error), error.kind or ErrorKind.INVALID_REQUEST)
        except LookupError as error:
            yield StreamFailed(str(error), ErrorKind.INVALID_REQUEST)
        except Exception as error:
            log.warning("the stream function for %s failed: %s", asked.model, type(error).__name__)
            yield StreamFailed("the proxy's stream function failed", ErrorKind.STREAM)


def _adapter_of(model: ModelSpec) -> StreamFn:
    from . import stream_fn_for

    return stream_fn_for(model)


def _refuse(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status, headers=headers)


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})
