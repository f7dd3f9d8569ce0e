"""The base of all HTTP adapters: from a request to stream events.

Runs a call: sends the request, checks the status, feeds the body to the parser, and always ends with exactly one
terminal event. An adapter adds a pure request builder and a pure parser.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Protocol, TypeAlias, cast

import msgspec

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.encoding.stream_writer import ReplyWriter
from swink_agent.core.errors import AgentError, ErrorKind, StreamError
from swink_agent.core.providers import ProviderDescription
from swink_agent.core.stream import AssistantMessageEvent, StreamDone, StreamFailed, StreamOptions, resolved_prompt
from swink_agent.core.types import AgentContext, Cost, Document, ModelSpec, Usage
from swink_agent.core.values.value import is_secret_name

from ..addresses import address_problem
from .documents import document
from .errors import classify, retry_after
from .frames import MOST_BYTES, FrameError, ShapeError
from .outgoing import OutgoingMessages, RequestError
from .searches import SEARCHES, TOOL_NAME
from .transport import AiohttpTransport, HttpRequest, HttpResponse, Limits, Transport, TransportError

log = logging.getLogger("swink_agent")
_MOST_ERROR_BYTES = 64 * 1024
_LEAST_HALF = 4
_JSON = "application/json"


Failure: TypeAlias = tuple[str, ErrorKind]
_CANCELLED: Failure = ("the call was cancelled", ErrorKind.ABORTED)


class Parser(Protocol):
    """Bytes in, stream events out, no I/O. It writes through a `ReplyWriter`."""

    writer: ReplyWriter

    def feed(self, data: bytes) -> bool:
        """Reads the next bytes; returns whether they completed a frame.

        Raises `FrameError` for bytes that are not a frame, `ShapeError` for a frame with unexpected content.
        """
        ...

    def end(self) -> None:
        """Reads the rest when the body ends. If the terminal frame is missing, the caller fails the reply."""
        ...

    def usage_so_far(self) -> Usage | None:
        """The usage that the provider has reported so far, for a reply that fails."""
        ...


class DocumentParser(Parser, Protocol):
    """A parser that also reads a reply which comes as one JSON document, from a server that does not stream."""

    def take_document(self, body: bytes) -> bool:
        """Reads the whole body, and ends the reply. Returns whether it is a reply, and not another document."""
        ...


class SearchingParser(Parser, Protocol):
    """A parser for replies with searches, of an adapter whose `searches_web` may return true."""

    def keep_searches(self) -> None:
        """Called before the first bytes if searches were asked for: then sources become a part of the text, and the
        parts that must be sent back are kept."""
        ...


class HttpStreamFn(ABC):
    """The base of the adapters."""

    description: ClassVar[ProviderDescription]
    """The description of its provider; it also gives `provider`."""
    provider: ClassVar[str] = ""
    kin: ClassVar[frozenset[str]] = frozenset()
    """Other names of its provider, with the same models and keys and another wire format."""
    is_bound: ClassVar[bool] = True
    """Whether it serves one provider or server only, so that its agent cannot change to a model of another."""
    content_types: ClassVar[tuple[str, ...]] = ("text/event-stream",)
    """Content types of a stream. Other types, except web pages, are accepted too; JSON is one whole document."""
    session_field: ClassVar[str] = ""
    """The request field for `StreamOptions.session_id`, if servers that do not know it may refuse the request."""
    documents_need_images: ClassVar[bool] = False
    """Whether models that take no images take no documents either."""
    keeps_own_ids: ClassVar[bool] = False
    """Whether call ids that recur are sent back unchanged to the model that gave them: they may mean something to its
    server."""
    is_relay: ClassVar[bool] = False
    """Whether another server decides what the model accepts: then only local files are read here."""
    base_url: str = ""
    address_source: str = "base_url"
    """The parameter or variable that gave the address, for error messages."""
    given_address: str = ""
    """The address as the user gave it."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "description" in vars(cls):
            cls.provider = cls.description.name

    def __init__(self, *, transport: Transport | None = None, limits: Limits | None = None) -> None:
        self.transport: Transport = transport or AiohttpTransport()
        self.limits = limits or Limits()
        self._outgoing = OutgoingMessages()
        self._refuses_sessions = False
        self._told: set[ModelSpec] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def serves(self, provider: str) -> bool:
        """Whether this stream function can serve models of the provider."""
        return provider == self.provider or provider in self.kin

    def check(self, model: ModelSpec, options: StreamOptions) -> None:  # noqa: B027 - most have nothing to check
        """Raises an `AgentError` if every call would fail, as with a missing key. Sends no request."""

    @abstractmethod
    def build(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> HttpRequest:
        """Builds the request. Raises `AgentError` or `RequestError` for errors that are found before sending."""

    def server(self) -> str:
        """The address of the server. Raises `StreamError` for an invalid one."""
        if problem := address_problem(self.base_url):
            given = self.given_address or self.base_url
            shown = given.rpartition("@")[2][:100]  # a password may come before it
            raise StreamError(
                f"{self.provider} cannot be asked: {self.address_source} is {shown!r}, which {problem}",
                kind=ErrorKind.INVALID_REQUEST,
            )
        return self.base_url

    async def authorize(self, request: HttpRequest) -> HttpRequest:
        """Returns the request with data that is known only when it is sent, such as a token that expires."""
        return request

    @abstractmethod
    def parser(self, model: ModelSpec, headers: dict[str, str]) -> Parser:
        """Makes a parser for one reply."""

    def searches_web(self, model: ModelSpec, has_tools: bool) -> bool:
        """Whether the provider can search the web for the model, next to tools if `has_tools`.

        If this may return true, `build` must handle `StreamOptions.web_search`, and `parser` must return a
        `SearchingParser`.
        """
        return False

    def search_cost(self, model: ModelSpec, searches: int) -> float:
        """Returns the cost in US dollars of that number of searches in one reply; zero if it is not known."""
        return 0.0

    def cost(self, model: ModelSpec, usage: Usage) -> Cost:
        """Returns the cost of the reply, with that of its searches."""
        from ..prices import cost_of

        cost = cost_of(model, usage)
        if not usage.extra or not (searches := usage.extra.get(SEARCHES, 0)):
            return cost
        amount = self.search_cost(model, searches)
        return msgspec.structs.replace(cost, total=cost.total + amount, extra={**cost.extra, SEARCHES: amount})

    def _searching(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> StreamOptions:
        """Returns the options without `web_search` where it cannot be used; the log has one warning for each model."""
        has_own = any(tool.name == TOOL_NAME for tool in context.tools)
        if self.searches_web(model, bool(context.tools)) and not has_own and options.output_schema is None:
            return options
        if options.output_schema is None and model not in self._told:
            self._told.add(model)
            why = f"a tool is called {TOOL_NAME}" if has_own else f"{self.provider} cannot do it for {model.model_id}"
            beside = " next to other tools" if context.tools and self.searches_web(model, False) else ""
            log.warning("web_search is not used: %s%s", why, "" if has_own else beside)
        return msgspec.structs.replace(options, web_search=False)

    def limits_for(self, options: StreamOptions) -> Limits:
        if options.timeout is None:
            return self.limits
        return msgspec.structs.replace(self.limits, total=options.timeout)

    def without_documents(self, model: ModelSpec) -> str:
        """Returns the name of the provider or of the model that takes no documents; empty if both take them."""
        if not self.description.takes_documents:
            return self.provider
        return str(model) if self.documents_need_images and not takes_images(model) else ""

    def document_names(self) -> Callable[[Document], str] | None:
        """Returns a function that names the documents of one request, if the provider does not take every name."""
        return None

    async def prepared(self, model: ModelSpec, context: AgentContext) -> AgentContext:
        """Prepares the context for the model. Raises `RequestError`."""
        prompt = await resolved_prompt(context)
        messages = await self._outgoing.prepare(
            context.messages,
            lambda: self.is_relay or takes_images(model),
            keeps_extensions=self.is_relay,
            without_documents=lambda: self.without_documents(model),
            names_documents=self.document_names(),
            keeps_ids_of=model if self.keeps_own_ids else None,
        )
        if prompt is context.system_prompt and messages is context.messages:
            return context
        return AgentContext(prompt, messages, context.tools)

    async def __call__(
        self, model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        if self._refuses_sessions and options.session_id is not None:
            options = msgspec.structs.replace(options, session_id=None)
        try:
            context = await self.prepared(model, context)
            if options.web_search:
                options = self._searching(model, context, options)
            request = await self.authorize(self.build(model, context, options))
        except AgentError as error:
            yield StreamFailed(str(error), error.kind or ErrorKind.INVALID_REQUEST)
            return
        except (RequestError, UnicodeEncodeError) as error:
            yield StreamFailed(str(error), ErrorKind.INVALID_REQUEST)
            return
        if cancel.is_cancelled:
            yield StreamFailed(*_CANCELLED)
            return
        parser: Parser | None = None
        failure: Failure = ("the connection ended before the reply did", ErrorKind.NETWORK)
        refused: StreamFailed | None = None
        try:
            async with self.transport.post(request, cancel) as response:
                if response.status != 200 or _content_type(response) == "text/html":
                    refused = _without_secrets(await _refusal(response), request)
                    is_refusal = response.status in (400, 404) and refused.kind == ErrorKind.INVALID_REQUEST
                    if is_refusal and "model" in refused.message.lower():
                        refused = await self.advised(refused, model)
                else:
                    parser = self.parser(model, dict(response.headers))
                    if options.web_search and not self.is_relay:
                        cast("SearchingParser", parser).keep_searches()
                    is_begun = False
                    while data := await response.read():
                        if not is_begun and not data.isspace():
                            is_begun = True
                            if self._is_document(parser, response, data):
                                parser = _WholeBody(parser, response.headers)
                        problem = _fed(parser, data, response)
                        for event in self._events(model, parser, request):
                            yield event
                        if parser.writer.is_finished:
                            return
                        if problem is not None:
                            failure = problem
                            break
        except TransportError as error:
            # A connection may break because of the cancellation, before the transport has heard of it.
            failure = _CANCELLED if cancel.is_cancelled else (str(error), error.kind)
        if refused is not None and options.session_id is not None and self._is_about_the_session(refused):
            self._refuses_sessions = True
            async with aclosing(cast("Any", self(model, context, options, cancel))) as events:
                async for event in events:
                    yield event
        elif parser is None:
            yield refused or _without_secrets(StreamFailed(*failure), request)
        else:
            _finish(parser, failure)
            for event in self._events(model, parser, request):
                yield event

    async def advised(self, refused: StreamFailed, model: ModelSpec) -> StreamFailed:
        """Adds the names of existing models to the failure for a model that the provider does not know."""
        from ..catalog import ModelCatalog

        catalog = ModelCatalog.load()
        if catalog.find(model) is not None:
            return refused
        if near := catalog.nearest(model.model_id, self.provider):
            return with_advice(refused, f"is it {' or '.join(near)}?")
        some = [str(info) for info in catalog.models(self.provider)[:3]]
        return with_advice(refused, f"there are, for example, {', '.join(some)}") if some else refused

    def _is_about_the_session(self, refused: StreamFailed) -> bool:
        """Whether a server refused the request because of its session field, which is optional."""
        is_refusal = refused.kind == ErrorKind.INVALID_REQUEST and not self._refuses_sessions
        return is_refusal and bool(self.session_field) and self.session_field in refused.message

    def _events(self, model: ModelSpec, parser: Parser, request: HttpRequest) -> Sequence[AssistantMessageEvent]:
        """Returns the parser's new events, with the cost in the terminal event."""
        events = parser.writer.take()
        if not events:
            return events
        last = events[-1]
        if type(last) is StreamFailed:
            last = events[-1] = _without_secrets(last, request)
            if last.usage is not None and last.cost is None:
                events[-1] = msgspec.structs.replace(last, cost=self.cost(model, last.usage))
        elif type(last) is StreamDone and last.cost == Cost():
            from ..prices import priced_model

            priced = priced_model(model, last.served_model)
            events[-1] = msgspec.structs.replace(last, cost=self.cost(priced, last.usage))
        return events

    def _is_document(self, parser: Parser, response: HttpResponse, beginning: bytes) -> bool:
        """Whether the body is one JSON document, by its type or its beginning: some servers call it something else."""
        if _JSON in self.content_types:
            return False  # the stream itself is JSON
        return _content_type(response) == _JSON or (
            hasattr(parser, "take_document") and beginning.lstrip().startswith(b"{")
        )


class _WholeBody:
    """Reads a body that is one document, at its end, with the parser of a stream."""

    def __init__(self, parser: Parser, headers: Mapping[str, str]) -> None:
        self.writer = parser.writer
        self.usage_so_far = parser.usage_so_far
        self._take: Callable[[bytes], bool] | None = getattr(parser, "take_document", None)
        self._headers = headers
        self._body = bytearray()

    def feed(self, data: bytes) -> bool:
        self._body += data
        if len(self._body) > MOST_BYTES:
            raise FrameError(f"a document of more than {MOST_BYTES} bytes")
        return False

    def end(self) -> None:
        body = bytes(self._body)
        try:
            document(body, "a document")
        except FrameError:
            if body.lstrip().startswith(b"{"):
                raise  # it was cut off
        if self._take is None or not self._take(body):
            self.writer.fail(*classify(200, body), retry_after=retry_after(self._headers))


def _content_type(response: HttpResponse) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _without_secrets(failed: StreamFailed, request: HttpRequest) -> StreamFailed:
    """Masks the request's headers in the failure: some providers repeat a wrong key."""
    from swink_agent.core.secrets.redaction import Redactor  # on use: most calls do not fail

    known = Redactor(environment={}, patterns=False)
    for name, value in request.headers.items():
        if is_secret_name(name):
            for part in (value, value.partition(" ")[2]):  # without the scheme, as in "Bearer …"
                known.register(part, "API key")
    message = known.redact(failed.message)
    half = len(message) - known.safe_length(message)
    if half >= _LEAST_HALF:  # the message was cut, and the cut went through the key
        message = message[:-half] + "…"
    return msgspec.structs.replace(failed, message=message)


def with_advice(refused: StreamFailed, advice: str) -> StreamFailed:
    return msgspec.structs.replace(refused, message=f"{refused.message} ({advice})")


def takes_images(model: ModelSpec) -> bool:
    """Whether the model accepts images; an unknown model is assumed to.

    On Azure a model is a deployment, which may have the name of another model.
    """
    from ..catalog import ModelCatalog  # on use: most conversations have no images

    if model.provider == "azure":
        return True
    info = ModelCatalog.load().find(model)
    return info is None or info.capabilities.images is not False


def _fed(parser: Parser, data: bytes, response: HttpResponse) -> Failure | None:
    """Feeds the parser; returns a failure if the rest of the body is useless.

    It raises nothing, because the transport would mistake an exception for one of the connection.
    """
    try:
        if parser.feed(data):
            response.progress()
    except Exception as error:
        return _misread(error)
    return None


def _finish(parser: Parser, failure: Failure) -> None:
    """Lets the parser read the rest: a reply with its terminal frame is complete, even if an error followed."""
    if failure[1] not in (ErrorKind.ABORTED, ErrorKind.STREAM):
        try:
            parser.end()
        except Exception as error:
            if (misread := _misread(error))[1] == ErrorKind.STREAM:
                failure = misread
    parser.writer.fail(*failure, usage=parser.usage_so_far())


def _misread(error: Exception) -> Failure:
    """Returns the failure for bytes that could not be read; for a complete frame the connection is not at fault."""
    if isinstance(error, FrameError):
        is_whole = isinstance(error, ShapeError)
        return f"the provider sent {error}", ErrorKind.STREAM if is_whole else ErrorKind.NETWORK
    log.warning("a reply could not be read, which is a mistake in its adapter", exc_info=error)
    what = str(error) or type(error).__name__
    return f"the reply could not be read, which is a mistake in the adapter: {what[:300]}", ErrorKind.STREAM


async def _refusal(response: HttpResponse) -> StreamFailed:
    """Returns the failure for an answer that is not a stream."""
    body = bytearray()
    try:
        while len(body) <= _MOST_ERROR_BYTES and (data := await response.read()):
            body += data
    except TransportError as error:
        if error.kind == ErrorKind.ABORTED:
            return StreamFailed(str(error), ErrorKind.ABORTED)
    message, kind = classify(response.status, bytes(body))
    return StreamFailed(message, kind, retry_after=retry_after(response.headers))
