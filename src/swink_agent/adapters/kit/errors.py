"""Maps a provider's error to one of our kinds.

The status code decides first, then the names and phrases that providers use for an input that is too long, a wrong key,
or a reply that a filter blocked. Adapters pass whole answers or error frames.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

import msgspec

from swink_agent.core.errors import AuthError, ErrorKind

from .documents import items, json_text, mapping

_LONGEST_MESSAGE = 2_000
_LONGEST_WAIT = 1000 * 365 * 24 * 3600.0  # a thousand years: a longer wait is an error and would overflow a clock

_OVERFLOW = re.compile(
    r"prompt is too long|prompt too long|(input|conversation|request) is too long|context.?length|context.?window"
    r"|maximum context|too_many_prompt_tokens|total length of all messages is too long|token count .{0,40}exceeds"
    r"|too many input tokens|input token count|exceeds the (model'?s )?maximum (input|context)|max_prompt_tokens"
    r"|exceed_context_size|request (entity )?too large for (the )?model|input length and `?max_tokens`? exceed"
    r"|reduce the length of the (messages|prompt|input)|maximum prompt length|model token limit|available context size"
    # Nova, and others that speak of the number of tokens
    r"|input tokens? exceeded|(number of )?(input|prompt) tokens .{0,60}exceeds?|prompt_tokens_exceeded"
    r"|exceeds? (the )?(maximum|max|allowed|configured)( allowed)? (number of )?(input|prompt|model|sequence)"
    r"|tokens .{0,40}exceed(s|ed)? (the )?(limit of|model's limit|token limit|maximum sequence)"
    r"|(input|prompt) \(?(length|of|has)?.{0,30}(is )?(longer than|greater than|larger than) the (model|max|context)"
    r"|longer than the maximum model length|greater than the max_model_len|max_model_len|maximum model length"
    # text-generation-inference and servers that are built on it, Cohere, DashScope
    r"|`?inputs`? tokens \+ `?max_new_tokens`? must be|`?inputs`? must have less than \d+ tokens"
    r"|too many tokens: (total )?|cannot exceed the .{0,20}token limit|range of input length should be"
    # bodies that are too large before their tokens are counted
    r"|request_too_large|request payload size exceeds|request exceeds the maximum size|exceeds the maximum size"
    r"|prompt exceeds max|context overflow|input exceeds the .{0,30}(limit|maximum)",
    re.IGNORECASE,
)
_NO_OVERFLOW = re.compile(
    r"(unknown|unrecognized|unsupported|unexpected|invalid) (request )?(argument|parameter|field|property|keyword)"
    r"|extra inputs? (are )?not permitted|is not a (valid|permitted) (argument|parameter|field)"
    r"|property '?[\w.]+'? is unsupported|maximum allowed number of output tokens|at most \d+ completion tokens",
    re.IGNORECASE,
)
"""Errors about a field of the request, whose name may contain words about the context."""
_BAD_KEY = re.compile(
    r"api.?key not valid|api_key_invalid|invalid.{0,4}api.?key|incorrect api key|wrong.api.key|authentication"
    r"|unauthori[sz]ed|permission.denied|access.?denied|security token|unrecognizedclient|expiredtoken"
    r"|signature expired|invalidsignature",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content.?filter|content management policy|responsibleai|safety (system|filter|policy|reasons)|blocked by"
    r"|prohibited_content|invalid_prompt|usage polic|data_inspection_failed",
    re.IGNORECASE,
)
_THROTTLED = re.compile(
    r"rate.?limit|too many requests|throttl|quota|resource.?(has been )?exhausted|toomanyrequests", re.IGNORECASE
)
_NETWORK = re.compile(
    r"overloaded|internal.?server|server_error|service.?unavailable|api_error|timeout|timed out|unavailable"
    r"|modelstreamerror|internalserver|bad gateway|cancelled",
    re.IGNORECASE,
)


class NotConfigured(AuthError):
    """An adapter lacks a key or an address. `problem` names the environment variable to set, `argument` is the name of
    the adapter's argument to pass instead."""

    def __init__(self, problem: str, argument: str) -> None:
        instead = "StreamOptions(api_key=…)" if argument == "api_key" else f"{argument} to the adapter"
        super().__init__(f"{problem}, or pass {instead}")
        self.problem = problem
        self.argument = argument


def classify(status: int, body: bytes) -> tuple[str, ErrorKind]:
    """Returns the message and the kind of an answer that is not a stream."""
    try:
        document = _decoded(body.strip())
    except (ValueError, RecursionError):
        return _without_json(status, body)
    if isinstance(document, list) and document:
        document = cast("list[Any]", document)[0]
    message, code = _words_in(document)
    if status == 200:
        return classify_error(document)
    return _shown(message or body.decode(errors="replace"), status), _kind_of_status(status, message, code)


def classify_error(error: Any) -> tuple[str, ErrorKind]:
    """Returns the message and the kind of an error object with status 200, in the stream or instead of one."""
    message, code = _words_in(error)
    status = _status_in(error)
    text = f"{message} {code}"
    shown = _shown(message or json_text(error), None)
    if status is not None and status >= 400:
        return shown, _kind_of_status(status, message, code)
    if _THROTTLED.search(text):
        return shown, ErrorKind.THROTTLED
    if _is_overflow(message, code):
        return shown, ErrorKind.CONTEXT_OVERFLOW
    for pattern, kind in ((_BAD_KEY, ErrorKind.AUTH), (_FILTERED, ErrorKind.CONTENT_FILTERED)):
        if pattern.search(text):
            return shown, kind
    if _NETWORK.search(code) or (not code and _NETWORK.search(message)):
        return shown, ErrorKind.NETWORK
    return shown, ErrorKind.INVALID_REQUEST


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds to wait, from either form of `Retry-After`, or from the header in milliseconds."""
    value = headers.get("retry-after", "").strip()
    for seconds in (_number(value), _date(value), _number(headers.get("retry-after-ms", ""), 1000)):
        if seconds is not None:
            return seconds
    return None


def _number(text: str, divisor: float = 1) -> float | None:
    try:
        seconds = float(text) / divisor
    except ValueError:
        return None
    return min(max(0.0, seconds), _LONGEST_WAIT) if math.isfinite(seconds) else None


def _date(text: str) -> float | None:
    try:
        when = parsedate_to_datetime(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return min(max(0.0, (when - datetime.now(UTC)).total_seconds()), _LONGEST_WAIT)
    except (ValueError, OverflowError, TypeError):
        return None


def _kind_of_status(status: int, message: str, code: str = "") -> ErrorKind:
    text = f"{message} {code}"
    if status == 429:
        return ErrorKind.THROTTLED
    if status in (401, 403):
        return ErrorKind.AUTH
    if status in (408, 499) or status >= 500:
        return ErrorKind.NETWORK
    if status == 413 or _is_overflow(message, code):
        return ErrorKind.CONTEXT_OVERFLOW
    if status == 400 and _BAD_KEY.search(text):
        return ErrorKind.AUTH
    if status == 400 and _FILTERED.search(text):
        return ErrorKind.CONTENT_FILTERED
    return ErrorKind.INVALID_REQUEST


def _is_overflow(message: str, code: str) -> bool:
    """Whether message or code say so, and the message does not name a field: xAI's code for everything that it refuses
    is "Client specified an invalid argument"."""
    return _OVERFLOW.search(f"{message} {code}") is not None and _NO_OVERFLOW.search(message) is None


def _without_json(status: int, body: bytes) -> tuple[str, ErrorKind]:
    text = body.decode(errors="replace").strip()
    if status == 200:
        start = text[:60] or "nothing"
        return f"the answer is not a stream but {start!r}: is the URL the provider's?", ErrorKind.NETWORK
    if text.startswith("<"):
        text = _words_of_page(text[:20_000])
    return _shown(text[:300], status), _kind_of_status(status, text[:2_000])


def _words_of_page(page: str) -> str:
    """Extracts the text between the tags, without scripts and styles, in linear time."""
    words: list[str] = []
    is_hidden = False
    for piece in page.split("<"):
        tag, _, content = piece.partition(">")
        if tag.lstrip("/").lower().startswith(("script", "style")):
            is_hidden = not tag.startswith("/")
        if not is_hidden:
            words.extend(content.split())
    return " ".join(words)


def _decoded(body: bytes) -> Any:
    """Decodes the document, also with numbers out of range, which the fast decoder rejects."""
    try:
        return msgspec.json.decode(body)
    except msgspec.ValidationError:
        import json  # on use: hardly any error holds such a number

        return json.loads(body)


def _error_in(document: Any) -> Any:
    """Returns the object that describes the error: the value of `error`, if there is one, alone or in a list."""
    fields = mapping(document)
    inner = fields.get("error")
    if isinstance(inner, list):
        inner = next(iter(cast("list[Any]", inner)), None)
    return cast("Any", inner) if isinstance(inner, dict) or (isinstance(inner, str) and inner) else fields


def _words_in(document: Any) -> tuple[str, str]:
    """Returns the message, and the codes and types beside it, in any provider's form."""
    if isinstance(document, str):
        return document, ""
    inner = _error_in(document)
    if isinstance(inner, str):
        return inner, _codes(mapping(document))
    fields = mapping(inner)
    message = fields.get("message") or fields.get("Message") or fields.get("detail") or fields.get("msg") or ""
    return message if isinstance(message, str) else json_text(message), _codes(fields)


def _codes(fields: dict[str, Any]) -> str:
    found = [fields.get(name) for name in ("type", "code", "status", "__type", "reason")]
    found += [mapping(item).get("reason") for item in items(fields.get("details"))]
    return " ".join(item for item in found if isinstance(item, str))


def _status_in(error: Any) -> int | None:
    fields = mapping(_error_in(error))
    for name in ("code", "status", "http_code"):
        value: object = fields.get(name)
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, (int, float)) and 100 <= value < 600:
            return int(value)
    return None


def _shown(message: str, status: int | None) -> str:
    message = message.strip()[:_LONGEST_MESSAGE]
    if status is None:
        return message or "the provider reported an error without saying which"
    return f"HTTP {status}: {message}" if message else f"HTTP {status}"
