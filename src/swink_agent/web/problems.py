"""Answers to failed requests: a problem document (RFC 9457) for programs, a page for people.

Owns the form of the document and the status of each of our errors. Routes raise `Problem`.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from aiohttp import web

from swink_agent.app.errors import ApplicationError
from swink_agent.app.runs.sessions import SessionProblem
from swink_agent.core.errors import AgentError, AlreadyRunning
from swink_agent.memory import SessionAmbiguous, SessionDamaged, SessionError, SessionInUse, SessionNotFound

MEDIA_TYPE = "application/problem+json"


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an answer to a failed request."""

    type: str = "about:blank"
    title: str
    """The name of the status."""
    status: int
    detail: str
    """What happened, to which thing, and what to do."""
    code: str
    """A word for programs, such as `running` or `in_use`."""


class Problem(Exception):
    """A request cannot be fulfilled."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})

    @property
    def document(self) -> ProblemDocument:
        return ProblemDocument(
            title=HTTPStatus(self.status).phrase, status=self.status, detail=self.detail, code=self.code
        )

    def response(self) -> web.Response:
        """Returns the answer for a program."""
        body = msgspec.json.encode(self.document)
        return web.Response(status=self.status, body=body, content_type=MEDIA_TYPE, headers=self.headers)


def invalid(detail: str) -> Problem:
    """Returns the problem of a request with wrong fields."""
    return Problem(422, "invalid", detail)


def not_found(what: str) -> Problem:
    return Problem(404, "not_found", what)


class NotBegun(Problem):
    """A prompt whose run could not begin: it is not on record."""

    def __init__(self, error: Exception, words: str) -> None:
        found = problem_of(error)
        super().__init__(*((500, "failed") if found is None else (found.status, found.code)), words)


def problem_of(error: Exception) -> Problem | None:
    """Returns the answer to an error of a session or of the application; `None` if the error is a bug."""
    if isinstance(error, SessionProblem) and isinstance(error.__cause__, SessionError):
        error = error.__cause__
    cause = error.__cause__
    if isinstance(error, ApplicationError) and isinstance(cause, SessionError):
        error = cause
    match error:
        case Problem():
            return error
        case SessionInUse():
            return Problem(409, "in_use", "another program uses this session: close it there first, or fork it")
        case SessionNotFound() | SessionAmbiguous():  # their texts name a folder, which not every reader may know
            return not_found("there is no session of this id: give the whole id")
        case SessionDamaged():
            return Problem(422, "damaged", str(error))
        case AlreadyRunning():
            return Problem(409, "running", "a run of this session is active: stop it, or steer it")
        case ApplicationError():
            return invalid(str(error))
        case SessionError():
            return Problem(500, "session", str(error))
        case AgentError():
            return invalid(str(error))
        case _:
            return None
