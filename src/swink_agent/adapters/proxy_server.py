"""The proxy's server: holds the providers' keys, and streams replies to clients with a token.

Checks tokens, limits the streams of each, and ends the upstream call when the client disconnects. An invalid request
gets a 4xx answer and one line in the log, which cannot be forged by the request's content. There is no access log, and
no keys, tokens or prompts are logged. It runs on aiohttp's server.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import msgspec
from aiohttp import web

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.context.context import SentMessages
from swink_agent.core.errors import AgentError, ErrorKind
from swink_agent.core.stream import AssistantMessageEvent, StreamFailed, StreamFn, StreamOptions
from swink_agent.core.types import AgentContext, ModelSpec
from swink_agent.core.values.decoders import json_decoder

from . import stream_fn_for
from .kit.listener import Connection, listening, listening_sockets, noted
from .kit.outgoing import refused_files
from .kit.server_log import ServerLog, quoted
from .proxy import PATH, ProxyRequest

log = logging.getLogger("swink_agent")
_MOST_BYTES = 32 * 1024 * 1024
_READ_SECONDS = 60.0  # a client that takes longer to send its request, or to read the reply, is disconnected
_LINGER_SECONDS = 5.0
"""How long the rest of a refused request is still read, so that the client can read the answer."""
_NOT_JSON = ("multipart/", "text/html", "text/xml", "application/xml", "image/", "audio/", "video/")
_STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}


class ProxyServer:
    """A proxy for stream functions.

    `tokens` maps each token to its number of concurrent streams. `stream_fn` returns the stream function for a model,
    by default the adapter of the model's provider.
    """

    def __init__(
        self,
        tokens: Mapping[str, int],
        stream_fn: Callable[[ModelSpec], StreamFn] | None = None,
        *,
        most_bytes: int = _MOST_BYTES,
        read_seconds: float = _READ_SECONDS,
    ) -> None:
        if not tokens or any(not token.strip() or limit < 1 for token, limit in tokens.items()):
            raise ValueError("the proxy needs at least one token, none of them empty, each with at least one stream")
        self._tokens = {token.encode(): limit for token, limit in tokens.items()}
        self._open = dict.fromkeys(self._tokens, 0)
        self._most_bytes = most_bytes
        self._read_seconds = read_seconds
        self._stream_fn = stream_fn or stream_fn_for

    def __repr__(self) -> str:
        return f"<ProxyServer, {len(self._tokens)} tokens, {self.open_streams} streams open>"

    @property
    def open_streams(self) -> int:
        return sum(self._open.values())

    def app(self) -> web.Application:
        """Returns the application, for your own server; run it with `handler_cancellation=True`."""
        app = web.Application(client_max_size=self._most_bytes, middlewares=[_refusals])
        app.router.add_post(PATH, self._handle, expect_handler=_expected)
        app.router.add_get("/health", _healthy)
        return app

    @asynccontextmanager
    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[str]:
        """Serves during the block. The value is the address."""
        app = self.app()
        app.middlewares.insert(0, noted)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        manager, loop = runner.server, asyncio.get_running_loop()
        assert manager is not None

        def connection() -> Connection:
            return Connection(
                manager,
                patience=self._read_seconds,
                loop=loop,
                access_log=None,
                logger=ServerLog("swink_agent.proxy"),
                keepalive_timeout=self._read_seconds,
                lingering_time=min(_LINGER_SECONDS, self._read_seconds),
            )

        try:
            sockets = await listening_sockets(host, port)
            bound = sockets[0].getsockname()
            async with listening(manager, sockets, connection):
                yield f"http://{bound[0]}:{bound[1]}"
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        token = self._token_of(request)
        if token is None:
            return _refuse(request, 401, "the token is missing or unknown")
        if self._open[token] >= self._tokens[token]:
            limit = self._tokens[token]
            return _refuse(request, 429, f"this token has its {limit} streams open already", {"retry-after": "1"})
        self._open[token] += 1
        try:
            return await self._answer(request)
        finally:
            self._open[token] -= 1

    def _token_of(self, request: web.Request) -> bytes | None:
        """Returns the token if it is known. The comparison with all tokens takes constant time."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        found, is_bearer = None, scheme.lower() == "bearer"
        for token in self._tokens:
            if hmac.compare_digest(token, given.strip().encode("utf-8", "surrogateescape")) and is_bearer:
                found = token
        return found

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await self._asked(request)
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await response.prepare(request)
        cancel = CancellationToken()
        try:
            async with aclosing(cast("Any", self._events(asked, cancel))) as events:
                async for event in events:
                    async with asyncio.timeout(self._read_seconds):
                        await response.write(b"data: " + msgspec.json.encode(event) + b"\n\n")
            await response.write_eof()
        except TimeoutError:
            cancel.cancel()
            raise ConnectionResetError("the client does not read") from None
        except (ConnectionError, asyncio.CancelledError):
            cancel.cancel()  # the client disconnected, so the upstream call ends
            raise
        return response

    async def _asked(self, request: web.Request) -> ProxyRequest:
        """Reads the client's request. Raises `_Refused` if it is invalid in any way."""
        if request.content_type.startswith(_NOT_JSON):
            raise _Refused(415, "the request is not sent as application/json")
        try:
            async with asyncio.timeout(self._read_seconds):
                body = await request.read()
            return json_decoder(ProxyRequest).decode(body)
        except TimeoutError:
            raise _Refused(408, f"the request took longer than {self._read_seconds:g} seconds to come") from None
        except web.HTTPRequestEntityTooLarge:
            raise _Refused(413, f"the request is larger than {self._most_bytes} bytes") from None
        except msgspec.DecodeError as error:
            raise _Refused(400, "the request cannot be read", quoted(str(error), 200)) from None
        except RecursionError:
            raise _Refused(400, "the request cannot be read", "it is nested too deeply") from None
        except ConnectionError:
            raise
        except Exception as error:  # a wrong length or chunk, an unknown encoding, half a character
            raise _Refused(400, "the request cannot be read", type(error).__name__) from None

    async def _events(self, asked: ProxyRequest, cancel: CancellationToken) -> AsyncIterator[AssistantMessageEvent]:
        """Yields the upstream events; every error there becomes a failure event."""
        sent: dict[str, Any] = msgspec.structs.asdict(asked.options)
        sent["cache"] = "none" if asked.options.cache == "none" else "auto"
        options = StreamOptions(**sent)
        # A path in a request belongs to the client's machine; clients must not read files of this one.
        messages = SentMessages(list(refused_files(asked.messages)), max(0, asked.answered))
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
            log.warning("the stream function for %s failed: %s", quoted(str(asked.model)), type(error).__name__)
            yield StreamFailed("the proxy's stream function failed", ErrorKind.STREAM)


# -- refusals ------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """A request that gets no stream. The detail may quote the request, so it is only sent to the client."""

    def __init__(self, status: int, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail


@web.middleware
async def _refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Converts every error to an answer and a line in the log, including unknown paths and bugs."""
    try:
        return await handler(request)
    except _Refused as refused:
        return _refuse(request, refused.status, str(refused), detail=refused.detail)
    except web.HTTPException as error:
        headers = {"allow": error.headers["allow"]} if "allow" in error.headers else None
        return _refuse(request, error.status, error.reason.lower(), headers)
    except ConnectionError:
        raise  # the client has disconnected
    except Exception as error:
        log.error("a request failed in the proxy itself: %s", type(error).__name__)
        return _response(500, "the proxy failed", None)


async def _expected(request: web.Request) -> None:
    """Answers a client that asks whether it may send its body. aiohttp calls this before all middlewares."""
    if request.headers.get("expect", "").lower() != "100-continue":
        _refuse(request, 417, "nothing can be expected but 100-continue")  # for the log
        raise web.HTTPExpectationFailed(text="nothing can be expected but 100-continue")
    writer = request.writer
    await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    writer.output_size = 0  # this was not the answer yet


def _refuse(
    request: web.Request, status: int, message: str, headers: Mapping[str, str] | None = None, *, detail: str = ""
) -> web.Response:
    """Makes the answer and logs a line. A wrong token or too many streams are not malformed requests: they are logged
    at a lower level."""
    has_token = request.headers.get("authorization", "").lower().startswith("bearer ")
    level = logging.INFO if status == 429 or (status == 401 and has_token) else logging.WARNING
    where = f"{quoted(request.method)} {quoted(request.path)}"
    log.log(level, "refused %s from %s with %d: %s", where, request.remote or "somewhere", status, message)
    return _response(status, f"{message}: {detail}" if detail else message, headers)


def _response(status: int, message: str, headers: Mapping[str, str] | None) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status, headers=headers)


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})
