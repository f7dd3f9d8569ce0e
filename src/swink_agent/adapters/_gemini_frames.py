"""Gemini's `streamGenerateContent`: the reply, from bytes to stream events.

The request is in `gemini`, which also explains how signatures are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from swink_agent.core.encoding.stream_writer import ReplyWriter
from swink_agent.core.errors import ErrorKind
from swink_agent.core.types import StopReason, Usage
from swink_agent.core.values.decoders import json_decoder

from .kit.bodies import unused_id
from .kit.documents import UNREADABLE, count, items, mapping, read, text
from .kit.errors import classify_error
from .kit.frames import FrameError, JsonArrayFrames, LineFrames, SseFrames, take_last
from .kit.searches import SEARCHES, Sources, kept, searched


class _FunctionCall(Struct):
    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw()


class _Part(Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None
    tool_call: dict[str, Any] | None = None
    tool_response: dict[str, Any] | None = None  # the result of a tool that Google ran


class _Content(Struct):
    parts: list[_Part] | None = None


class _Candidate(Struct, rename="camel"):
    index: int | None = None
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    grounding_metadata: dict[str, Any] | None = None


class _Chunk(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: dict[str, Any] | None = None
    usage_metadata: dict[str, Any] | None = None
    error: Any = None
    model_version: Any = None
    response_id: Any = None


_decode_chunk = json_decoder(_Chunk).decode
_OPTIONAL = frozenset(
    {
        *("usageMetadata", "promptFeedback", "thoughtSignature", "finishMessage", "id", "thought"),
        *("toolCall", "toolResponse", "groundingMetadata"),
    }
)

_FILTERS = frozenset(
    {
        *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
        *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
    }
)
_FAILURES = {
    "MALFORMED_FUNCTION_CALL": ("the model wrote a tool call that cannot be read", ErrorKind.STREAM),
    "UNEXPECTED_TOOL_CALL": ("the model called a tool that it was not given", ErrorKind.STREAM),
    "TOO_MANY_TOOL_CALLS": ("the model called too many tools in a row", ErrorKind.STREAM),
    "MALFORMED_RESPONSE": ("the model wrote a reply that cannot be read", ErrorKind.STREAM),
    "MISSING_THOUGHT_SIGNATURE": ("a signature of the model was not sent back", ErrorKind.INVALID_REQUEST),
    "OTHER": ("the provider stopped the reply and does not say why", ErrorKind.STREAM),
}


class _StrayDocument:
    """An error that Google writes between server-sent events, without `data:`."""

    __slots__ = ("_documents", "_lines", "error")

    def __init__(self) -> None:
        self._lines = LineFrames()
        self._documents = JsonArrayFrames()
        self.error: Any = None

    def feed(self, data: bytes) -> None:
        self._read(self._lines.feed(data))

    def end(self) -> None:
        self._read(self._lines.end())

    def _read(self, lines: list[bytes]) -> None:
        for line in lines:
            if line.startswith((b"data:", b"event:", b"id:", b"retry:", b":")):
                continue
            for document in self._documents.feed(line):
                try:
                    self.error = self.error or _decode_chunk(document).error
                except UNREADABLE:
                    pass  # it is not a frame, so nothing is lost


class GeminiParser:
    """Reads the chunks of a reply, as server-sent events or as one JSON array, by the first byte of the body.

    There is no end marker: the reply is complete if the body ends after a finish reason. The last finish reason counts.
    """

    def __init__(self) -> None:
        self._keeps_searches = False
        self._sources = Sources()
        self._queries: set[str] = set()
        self.writer = ReplyWriter()
        self._read: Callable[[bytes], list[bytes]] | None = None
        self._events = SseFrames()
        self._documents = JsonArrayFrames()
        self._stray = _StrayDocument()
        self._usage: dict[str, Any] = {}
        self._finish = ""
        self._finish_message = ""
        self._call_ids: set[str] = set()

    def keep_searches(self) -> None:
        self._keeps_searches = True

    def feed(self, data: bytes) -> bool:
        if self._read is None:
            data = data.lstrip()
            if not data:
                return False
            self._read = self._documents.feed if data[:1] in (b"[", b"{") else self._read_events
        payloads = self._read(data)
        for payload in payloads:
            self._take(payload)
        return bool(payloads)

    def _read_events(self, data: bytes) -> list[bytes]:
        self._stray.feed(data)
        return [payload for _, payload in self._events.feed(data)]

    def end(self) -> None:
        take_last((payload for _, payload in self._events.end()), self._take)
        self._stray.end()
        if self._stray.error is not None:
            self._fail(self._stray.error)
        if self._finish:
            self._done()

    def _take(self, payload: bytes) -> None:
        if self.writer.is_finished or payload.strip() in (b"", b"[DONE]"):
            return
        chunk = read(payload, _decode_chunk, _Chunk, "a chunk", _OPTIONAL)
        self.writer.answered_by(chunk.model_version, chunk.response_id)
        if chunk.usage_metadata:
            self._usage = chunk.usage_metadata
        if chunk.error is not None:
            self._fail(chunk.error)
            return
        for candidate in chunk.candidates or ():
            if not candidate.index:
                self._take_candidate(candidate)
        reason = text(mapping(chunk.prompt_feedback).get("blockReason"))
        if reason and reason != "BLOCK_REASON_UNSPECIFIED":
            self._filtered(f"the provider's filter refused the prompt: {reason}")

    def _take_candidate(self, candidate: _Candidate) -> None:
        if candidate.content is not None:
            for part in candidate.content.parts or ():
                self._take_part(part)
        if self._keeps_searches and candidate.grounding_metadata:
            self._take_grounding(candidate.grounding_metadata)
        if candidate.finish_reason and candidate.finish_reason != "FINISH_REASON_UNSPECIFIED":
            self._finish = candidate.finish_reason
            self._finish_message = candidate.finish_message or ""

    def _take_grounding(self, grounding: dict[str, Any]) -> None:
        self._queries.update(filter(None, map(text, items(grounding.get("webSearchQueries")))))
        for chunk in map(mapping, items(grounding.get("groundingChunks"))):
            found = mapping(chunk.get("web"))
            self._sources.add(found.get("uri"), found.get("title"))

    def _take_part(self, part: _Part) -> None:
        writer = self.writer
        if self._keeps_searches and (part.tool_call or part.tool_response):
            signed = {"thoughtSignature": part.thought_signature} if part.thought_signature else {}
            ran = {"toolCall": part.tool_call} if part.tool_call else {"toolResponse": part.tool_response}
            writer.end_speech()
            writer.thinking(searched(*items(mapping(mapping(part.tool_call).get("args")).get("queries"))))
            writer.signature(kept([{**ran, **signed}]))
            writer.end_speech()
            return
        if part.thought and part.function_call is None:
            writer.thinking(part.text or "")
            if part.thought_signature:
                writer.signature(part.thought_signature)
                writer.end_speech()
            return
        if part.thought_signature:
            writer.end_speech()
            writer.signature(part.thought_signature)
            writer.end_speech()
        if part.function_call is not None:
            self._take_call(part.function_call)
        elif part.text:
            writer.text(part.text)

    def _take_call(self, call: _FunctionCall) -> None:
        if not call.name:
            return
        arguments = bytes(call.args)
        try:
            delta = "" if arguments == b"null" else arguments.decode()  # the loop reports other values to the model
        except UnicodeDecodeError as error:
            raise FrameError(f"arguments of {call.name!r} that cannot be read: {error}") from error
        call_id = unused_id(call.id, self._call_ids)
        self.writer.start_call(call_id, call_id, call.name)
        self.writer.arguments(call_id, delta)
        self.writer.end_call(call_id)

    # -- the end -------------------------------------------------------------------------------------------------

    def _done(self) -> None:
        finish = self._finish
        if finish in _FILTERS:
            self._filtered(f"the provider's filter stopped the reply: {finish} {self._finish_message}".rstrip())
        elif finish in _FAILURES:
            message, kind = _FAILURES[finish]
            detail = f": {self._finish_message}" if self._finish_message else ""
            self.writer.fail(f"{message}{detail} ({finish})", kind, usage=self.usage_so_far())
        elif finish == "MAX_TOKENS":
            self.writer.done(StopReason.LENGTH, self._all_usage())
        else:
            if not self._call_ids:
                self.writer.text(self._sources.take())
            self.writer.done(StopReason.TOOL_USE if self._call_ids else StopReason.STOP, self._all_usage())

    def _filtered(self, message: str) -> None:
        self.writer.fail(message, ErrorKind.CONTENT_FILTERED, usage=self.usage_so_far())

    def _fail(self, error: Any) -> None:
        if self._finish:
            return  # the reply was complete
        message, kind = classify_error(error)
        if mapping(error).get("status") == "CANCELLED":
            kind = ErrorKind.NETWORK  # by Google, not by us
        self.writer.fail(message, kind, usage=self.usage_so_far())

    def usage_so_far(self) -> Usage | None:
        return self._all_usage() if self._usage else None

    def _all_usage(self) -> Usage:
        usage = _usage(self._usage)
        if not self._queries:
            return usage
        return msgspec.structs.replace(usage, extra={**usage.extra, SEARCHES: len(self._queries)})


def _usage(counts: dict[str, Any]) -> Usage:
    """Converts Google's counts: input excludes cached tokens, and includes those that Google's own tools added."""
    prompt, thoughts = count(counts, "promptTokenCount"), count(counts, "thoughtsTokenCount")
    cached = min(count(counts, "cachedContentTokenCount"), prompt)
    new = prompt - cached + count(counts, "toolUsePromptTokenCount")
    output = count(counts, "candidatesTokenCount") + thoughts
    return Usage(
        input=new,
        output=output,
        cache_read=cached,
        total=new + cached + output,
        extra={"reasoning": thoughts} if thoughts else {},
    )
