"""What a fake server needs to know of one provider's API, and the checks of headers that several share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from swink_agent.testing.servers import ReceivedRequest

from .replies import FakeReply

__all__ = ["FakeApi", "needs_bearer"]


@dataclass(frozen=True, slots=True)
class FakeApi:
    """One provider's API."""

    path: re.Pattern[str]
    """Path and query of a good request; a group `model` is the model, where the path names it."""
    content_type: str
    """Of a stream."""
    problems: Callable[[dict[str, Any], str], list[str]]
    """What the provider would reject in a body sent to a model."""
    refusal: Callable[[ReceivedRequest, str], str | None]
    """Why the headers do not prove that the sender has the key, if they do not."""
    error: Callable[[int, str], dict[str, Any]]
    """The body of an error, by status and message."""
    stream: Callable[[FakeReply, str], Iterator[bytes]]
    """The frames of a reply of a model."""
    refusal_status: int = 401
    """What such a request is answered with."""
    streams_by_default: bool = False
    """Whether a request need not ask for a stream to get one."""


def needs_bearer(request: ReceivedRequest, key: str) -> str | None:
    """The key as a bearer token."""
    if request.headers.get("authorization") == f"Bearer {key}":
        return None
    return "the key in the authorization header is missing or wrong"
