"""The description of a provider's API for a fake server, and the check of a bearer token."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from swink_agent.testing.servers import ReceivedRequest

from .replies import FakeReply


@dataclass(frozen=True, slots=True)
class FakeApi:
    """One provider's API."""

    path: re.Pattern[str]
    """Path and query of a valid request; a group `model` is the model, if the path contains it."""
    content_type: str
    """The content type of a stream."""
    problems: Callable[[dict[str, Any], str], list[str]]
    """Lists what the provider would reject in a body for a model."""
    refusal: Callable[[ReceivedRequest, str], str | None]
    """Returns why the headers do not authenticate the sender, or `None`."""
    error: Callable[[int, str], dict[str, Any]]
    """Makes the body of an error from status and message."""
    stream: Callable[[FakeReply, str], Iterator[bytes]]
    """Yields the frames of a model's reply."""
    refusal_status: int = 401
    """The status for an unauthenticated request."""
    streams_by_default: bool = False
    """Whether replies are streamed even if the request does not ask for it."""


def needs_bearer(request: ReceivedRequest, key: str) -> str | None:
    """Checks for the key as a bearer token."""
    if request.headers.get("authorization") == f"Bearer {key}":
        return None
    return "the key in the authorization header is missing or wrong"
