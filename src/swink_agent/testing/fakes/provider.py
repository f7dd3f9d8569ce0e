"""The fake server: one provider's API on loopback, which rejects what the provider would reject.

The checks, and the form of a reply, are in the file of each API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import msgspec

from swink_agent.testing.servers import LoopbackServer, ReceivedRequest, answer

from . import anthropic, azure, bedrock, gemini, mistral, ollama, openai, openai_responses, xai
from .kit.api import FakeApi
from .kit.checks import mapping, string
from .kit.replies import FakeFailure, FakeReply, json_bytes

log = logging.getLogger("swink_agent")

_MODULES = (anthropic, openai, openai_responses, azure, xai, mistral, gemini, ollama, bedrock)
_APIS = MappingProxyType({api.__name__.rpartition(".")[2].replace("_", "-"): api.API for api in _MODULES})
APIS = tuple(_APIS)
"""The names of the providers that can be faked, as in `ModelSpec.provider`."""


class FakeProvider:
    """A provider on loopback, for the duration of its `async with` block.

    Each valid request gets the next of `replies`; a string is a reply of text. A request that the provider would reject
    gets the provider's error, and `rejections` lists all its problems. A request is also rejected if no reply is left,
    or if the fake itself raises.
    `bodies` lists the received bodies. The key is `key`; for Bedrock it is the secret of a signature or a bearer token.
    `api` is one of `APIS`, or your own `FakeApi`, made with `fakes.kit`. Raises `ValueError` for any other name, and
    `TypeError` for any other kind of reply.
    """

    def __init__(
        self, api: str | FakeApi, replies: str | Iterable[FakeReply | FakeFailure | str] = (), *, key: str = "fake-key"
    ) -> None:
        if isinstance(api, str) and api not in _APIS:
            raise ValueError(f"no fake of {api!r}: there are {', '.join(APIS)}")
        self.api = api if isinstance(api, str) else api.path.pattern
        """The name of the API, or the pattern of its path if it is your own."""
        self.key = key
        self.replies: list[FakeReply | FakeFailure | str] = [replies] if isinstance(replies, str) else list(replies)
        """The replies that are left; more may be added at any time."""
        for reply in self.replies:
            if not isinstance(reply, FakeReply | FakeFailure | str):  # pyright: ignore[reportUnnecessaryIsInstance]
                kind = type(reply).__name__
                raise TypeError(f"a reply of FakeProvider is a FakeReply, a FakeFailure or a text, not a {kind}")
        self.bodies: list[dict[str, Any]] = []
        self.rejections: list[str] = []
        self._api = _APIS[api] if isinstance(api, str) else api
        self._server = LoopbackServer(self._answer)

    def __repr__(self) -> str:
        return f"<FakeProvider {self.api}, {len(self.bodies)} requests, {len(self.rejections)} rejected>"

    @property
    def url(self) -> str:
        """The base URL to give to an adapter."""
        return self._server.url

    @property
    def requests(self) -> list[ReceivedRequest]:
        return self._server.requests

    @property
    def open_connections(self) -> int:
        return self._server.open_connections

    async def __aenter__(self) -> FakeProvider:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._server.__aexit__(*failure)

    async def _answer(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        frames = b""
        try:
            reply = self._reply_to(request)
            if not isinstance(reply, FakeFailure):
                frames = b"".join(self._api.stream(reply, self._model_of(request)))
        except Exception as error:  # in a `FakeApi` of the user's, or for a reply that was added later
            log.exception("the fake of %s failed", self.api)
            reply = self._reject(500, f"the fake failed: {type(error).__name__}: {error}")
        if isinstance(reply, FakeFailure):
            body = json_bytes(self._api.error(reply.status, reply.message))
            await answer(body, status=reply.status, content_type="application/json")(request, writer)
            return
        respond = answer(frames, content_type=self._api.content_type, pieces=4, ends=reply.ends != "hangs")
        await respond(request, writer)

    def _reply_to(self, request: ReceivedRequest) -> FakeReply | FakeFailure:
        """Returns the next reply, or the rejection of this request."""
        if request.method != "POST" or not self._api.path.fullmatch(request.path):
            return self._reject(404, f"nothing is at {request.method} {request.path}")
        refusal = self._api.refusal(request, self.key)
        if refusal is not None:
            return self._reject(self._api.refusal_status, refusal)
        try:
            body: object = msgspec.json.decode(request.body)
        except msgspec.DecodeError as error:
            return self._reject(400, f"the body is not JSON: {error}")
        self.bodies.append(mapping(body))
        problems = self._api.problems(mapping(body), self._model_of(request))
        if problems:
            return self._reject(400, *problems)
        if not self._api.streams_by_default and mapping(body).get("stream") is not True:
            return self._reject(400, "stream: this fake only streams")
        if not self.replies:
            return self._reject(400, "no reply is left in the script of this fake")
        reply = self.replies.pop(0)
        return FakeReply(text=reply) if isinstance(reply, str) else reply

    def _reject(self, status: int, *problems: str) -> FakeFailure:
        self.rejections.append("; ".join(problems))
        return FakeFailure(status, problems[0])

    def _model_of(self, request: ReceivedRequest) -> str:
        """Returns the requested model, from the path or from the body."""
        match = self._api.path.fullmatch(request.path)
        named = match.groupdict().get("model") if match is not None else None
        return unquote(named) if named else string(mapping(msgspec.json.decode(request.body)).get("model"))
