"""The table of the API: every route under `/api/v1`. The server and the OpenAPI document are made from it."""

from __future__ import annotations

from typing import Any

from swink_agent.evals.runs.comparing import Comparison

from ..uploads import Upload
from . import about, evals, live, runs, sessions
from .asking import Route

STREAM = "text/event-stream"
_S = "sessions/{session}"
_R = "runs/{run}"
_E = "evals/{run}"
_Object = dict[str, Any]

ROUTES: tuple[Route, ...] = (
    Route("GET", "openapi.json", "read", about.openapi, "This document", _Object),
    Route("GET", "info", "read", about.info, "Version, folder and model", about.Info),
    Route("GET", "models", "read", about.models, "The models that can be chosen", about.Models),
    Route("GET", "search", "read", sessions.search, "Messages that match", sessions.Hits, query=sessions.Search),
    Route("GET", "sessions", "read", sessions.list_sessions, "Sessions", sessions.Sessions, query=sessions.Page),
    Route(
        "POST", "sessions", "write", sessions.create, "A new session", sessions.SessionState, 201, None,
        sessions.NewSession,
    ),
    Route("GET", _S, "read", sessions.read, "A session and its state", sessions.SessionState),
    Route(
        "PATCH", _S, "write", sessions.change, "Change the title, model or mode", sessions.SessionState,
        body=sessions.Change,
    ),
    Route("DELETE", _S, "delete", sessions.delete, "Delete the session", None, 204),
    Route(
        "GET", f"{_S}/messages", "read", sessions.messages, "Messages of the session", sessions.Messages,
        query=sessions.Between,
    ),
    Route(
        "POST", f"{_S}/fork", "read", sessions.fork, "A copy of its first messages", sessions.SessionState, 201,
        None, sessions.At,
    ),
    Route(
        "GET", f"{_S}/export", "read", sessions.export, "The session as a file", "text/markdown",
        query=sessions.Format,
    ),
    Route("POST", f"{_S}/prompt", "write", live.prompt, "Start a run", live.Accepted, 202, None, live.Prompt),
    Route("POST", f"{_S}/steer", "write", live.steer, "Steer the run", live.Accepted, 202, None, live.Prompt),
    Route(
        "POST", f"{_S}/follow-up", "write", live.follow_up, "Queue a follow-up", live.Accepted, 202, None, live.Prompt
    ),
    Route("POST", f"{_S}/abort", "write", live.abort, "Stop the run", live.Returned, 200, None, live.Nothing),
    Route("POST", f"{_S}/answers", "answer", live.answer, "Answer a question", _Object, 200, None, live.Answer),
    Route("POST", f"{_S}/command", "write", live.command, "Begin a command", live.Accepted, 202, None, live.Line),
    Route("POST", f"{_S}/uploads", "write", live.upload, "Upload a picture or a PDF", Upload, 201, raw=True),
    Route("GET", f"{_S}/events", "read", live.events, "The events of the session", STREAM, query=live.After),
    Route(
        "GET", "events", "read", live.all_events, "The events of several sessions, in one stream", STREAM,
        query=live.Several,
    ),
    Route("GET", "runs", "operate", runs.list_runs, "Durable runs", runs.Runs, query=runs.RunsQuery),
    Route("POST", "runs", "operate", runs.submit, "Submit a durable run", _Object, 201, None, runs.NewRun),
    Route("GET", _R, "operate", runs.read, "A durable run", _Object),
    Route("GET", f"{_R}/events", "operate", runs.events, "The records of a run", STREAM, query=runs.RunPlace),
    Route("POST", f"{_R}/answers", "operate", runs.answer, "Answer a call", runs.Counted, 200, None, runs.RunAnswer),
    Route("POST", f"{_R}/cancel", "operate", runs.cancel, "Cancel the run", runs.Counted, 200, None, runs.Reason),
    Route("POST", f"{_R}/retry", "operate", runs.retry, "Try a failed run again", _Object, 200, None, live.Nothing),
    Route("GET", "evals", "read", evals.list_runs, "Runs of evaluations", evals.EvalRuns),
    Route("GET", "evals/compare", "read", evals.compare, "The differences of two runs", Comparison, query=evals.Two),
    Route("GET", _E, "read", evals.read, "A run with its results", _Object),
    Route("GET", f"{_E}/report", "read", evals.report, "A report", "text/markdown", query=evals.ReportFormat),
    Route("GET", f"{_E}/cases/{{case}}", "read", evals.case, "A case with its conversations", _Object),
)  # fmt: skip
