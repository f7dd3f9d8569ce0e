"""Sessions as trajectories, and trajectories as messages: the Agent Trajectory Interchange Format, ATIF v1.7.

Public benchmarks and viewers of agents read this JSON. Owns both directions. Data for which ATIF has no field is in
`extra`, so that a session that is exported and imported again has the same messages, with two exceptions: several texts
of one message become one, and thinking signatures and image data are left out. An imported file may be hostile: none of
its calls waits for an answer, none of its messages is a summary, and reading takes time in proportion to its length.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import msgspec

from swink_agent.core import types
from swink_agent.core.values.data import as_json
from swink_agent.core.values.decoders import json_decoder, whole_json
from swink_agent.memory.log.records import UnknownMessage
from swink_agent.memory.sessions.info import SessionInfo
from swink_agent.rendering.turns import LabelAt, NoteAt

VERSION = "ATIF-v1.7"
_KNOWN = "ATIF-v1."
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
_DEEPEST = 100
"""The most levels of a call's arguments. Later readers of the session need stack space for each level."""
_NOTHING_SAID = "(the session has no messages)"  # a trajectory has at least one step
_NO_RESULT = "(the trajectory has no result of this call)"


# -- a session as a trajectory ---------------------------------------------------------------------------------


def export_atif(
    info: SessionInfo,
    messages: Sequence[types.AgentMessage],
    *,
    labels: Sequence[LabelAt] = (),
    notes: Sequence[NoteAt] = (),
) -> str:
    """The session as one ATIF document. Labels and notes have no place in it."""
    from swink_agent import __version__

    steps = _steps(messages)
    agent: dict[str, Any] = {"name": "swink-agent", "version": __version__}
    if info.model is not None:
        agent["model_name"] = _model_name(info.model.provider, info.model.model_id)
    document: dict[str, Any] = {
        "schema_version": VERSION,
        "session_id": info.id,
        "trajectory_id": info.id,
        "agent": agent,
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {**_totals(info, messages), "total_steps": len(steps)},
        "extra": {"title": info.title, "folder": info.cwd},
    }
    return msgspec.json.format(as_json(document), indent=2).decode() + "\n"


def _steps(messages: Sequence[types.AgentMessage]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    reply: dict[str, Any] = {}
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, types.UserMessage):
            step = {**_when(message.timestamp), "source": "user", "message": _words(message.content)}
            steps.append({**step, "extra": {"origin": message.origin}} if message.origin else step)
        elif isinstance(message, types.AssistantMessage):
            steps.append(reply := _reply(message))
            open_calls = [call.id for call in message.tool_calls]
        elif isinstance(message, types.ToolResultMessage) and message.tool_call_id in open_calls:
            open_calls.remove(message.tool_call_id)
            observation = reply.setdefault("observation", {"results": []})
            observation["results"].append(_result(message))
        elif isinstance(message, types.ToolResultMessage):  # its call was cut from the history
            steps.append({**_when(message.timestamp), "source": "system", "message": _words(message.content)})
        else:
            steps.append({"source": "system", "message": _described(message)})
    return steps or [{"source": "system", "message": _NOTHING_SAID}]


def _reply(message: types.AssistantMessage) -> dict[str, Any]:
    step: dict[str, Any] = {**_when(message.timestamp), "source": "agent"}
    if message.model_id:
        step["model_name"] = _model_name(message.provider, message.model_id)
    step["message"] = _words([block for block in message.content if type(block) is not types.Thinking])
    if thoughts := "\n\n".join(block.thinking for block in message.content if type(block) is types.Thinking):
        step["reasoning_content"] = thoughts
    if message.tool_calls:
        step["tool_calls"] = [
            {"tool_call_id": call.id, "function_name": call.name, "arguments": call.arguments}
            | ({} if call.partial_json is None else {"extra": {"partial_json": call.partial_json}})
            for call in message.tool_calls
        ]
    usage = message.usage
    if usage.tokens or message.cost.amount:
        metrics: dict[str, Any] = {
            "prompt_tokens": usage.input + usage.cache_read + usage.cache_write,
            "completion_tokens": usage.output,
            "cached_tokens": usage.cache_read,
        }
        if message.cost.amount:
            metrics["cost_usd"] = message.cost.amount
        if usage.cache_write:
            metrics["extra"] = {"cache_creation_tokens": usage.cache_write}
        step["metrics"] = metrics
    step["llm_call_count"] = 1
    step["extra"] = {"stop_reason": str(message.stop_reason)}
    if message.error_message is not None:
        step["extra"]["error"] = message.error_message
    return step


def _result(message: types.ToolResultMessage) -> dict[str, Any]:
    extra: dict[str, Any] = {"outcome": str(message.outcome), **_when(message.timestamp)}
    if message.is_error:
        extra["is_error"] = True
    return {"source_call_id": message.tool_call_id, "content": _words(message.content), "extra": extra}


def _words(content: Sequence[types.ContentBlock]) -> str:
    """The text. Pictures and documents are only named."""
    said: list[str] = []
    for block in content:
        if isinstance(block, types.Text):
            said.append(block.text)
        elif isinstance(block, types.Image):
            said.append(f"[image, {block.source.media_type or 'of an unknown type'}]")
        elif isinstance(block, types.Document):
            said.append(f"[document {block.shown_name}]")
    return "\n".join(said)


def _described(message: types.AgentMessage) -> str:
    data = message.data if isinstance(message, UnknownMessage) else message
    try:
        return msgspec.json.encode(data).decode()
    except (TypeError, ValueError, RecursionError):
        return f"(a message of the type {type(message).__name__})"


def _totals(info: SessionInfo, messages: Sequence[types.AgentMessage]) -> dict[str, Any]:
    """The totals of the session or the sums of its replies, whichever are larger: imported replies are only in the
    sums, retried requests only in the totals."""
    replies = [message for message in messages if isinstance(message, types.AssistantMessage)]
    kinds = (info.usage, sum((reply.usage for reply in replies), types.Usage()))
    totals: dict[str, Any] = {
        "total_prompt_tokens": max(usage.input + usage.cache_read + usage.cache_write for usage in kinds),
        "total_completion_tokens": max(usage.output for usage in kinds),
        "total_cached_tokens": max(usage.cache_read for usage in kinds),
    }
    cost = max(info.cost.amount, sum(reply.cost.amount for reply in replies))
    return {**totals, "total_cost_usd": cost} if cost else totals


def _when(timestamp: int) -> dict[str, str]:
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return {}
    return {"timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


def _model_name(provider: str, model_id: str) -> str:
    return f"{provider}/{model_id}" if provider else model_id


# -- a trajectory as messages ----------------------------------------------------------------------------------


class TrajectoryError(ValueError):
    """A text is not a trajectory that can be read."""


class Trajectory(NamedTuple):
    """The contents of a trajectory: messages for a session, and metadata."""

    messages: tuple[types.AgentMessage, ...]
    model: types.ModelSpec
    title: str
    agent: str
    """The name and the version of the agent that the trajectory records."""
    left_out: tuple[str, ...]
    """Descriptions of the parts that are not among the messages."""


class _Content(msgspec.Struct):
    type: str = "text"
    text: str | None = None
    source: dict[str, Any] | None = None


class _Call(msgspec.Struct):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None


class _ObservedResult(msgspec.Struct):
    source_call_id: str | None = None
    content: str | list[_Content] | None = None
    extra: dict[str, Any] | None = None


class _Observation(msgspec.Struct):
    results: list[_ObservedResult] | None = None


class _Metrics(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    extra: dict[str, Any] | None = None


class _Step(msgspec.Struct):
    source: str
    message: str | list[_Content] | None = None
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    extra: dict[str, Any] | None = None


class _Agent(msgspec.Struct):
    name: str | None = None
    version: str | None = None
    model_name: str | None = None


class _Document(msgspec.Struct):
    schema_version: str
    agent: _Agent
    steps: list[_Step]
    subagent_trajectories: list[msgspec.Raw] | None = None
    extra: dict[str, Any] | None = None


def read_atif(text: str | bytes) -> Trajectory:
    """Reads an ATIF document of any version 1. Raises `TrajectoryError`."""
    data = text.encode(errors="replace") if isinstance(text, str) else text
    try:
        document = json_decoder(_Document).decode(whole_json(data))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise TrajectoryError(f"this is not an ATIF trajectory: {error}") from error
    if not document.schema_version.startswith(_KNOWN):
        raise TrajectoryError(f"the version {document.schema_version[:40]!r} is not supported: it must be {_KNOWN}x")
    messages: list[types.AgentMessage] = []
    system = 0
    for step in document.steps:
        if step.source == "system":
            system += 1
        elif step.source == "user":
            said = _text(step.message) or "(nothing)"
            messages.append(types.UserMessage(said, **_moment(step.timestamp), origin=_origin(step)))
            messages += _remarks(_observed(step), step)
        elif step.source == "agent":
            messages += _messages_of(step, document.agent.model_name)
        else:
            raise TrajectoryError(f"a step has the source {step.source[:40]!r}: it must be system, user or agent")
    left_out = [f"{system} step{'s' * (system != 1)} of the system"] * bool(system)
    if others := len(document.subagent_trajectories or ()):
        left_out.append("1 trajectory of another agent" if others == 1 else f"{others} trajectories of other agents")
    title = (document.extra or {}).get("title")
    return Trajectory(
        tuple(messages),
        _model(document.agent.model_name),
        title if isinstance(title, str) else "",
        " ".join(filter(None, (document.agent.name, document.agent.version))),
        tuple(left_out),
    )


def _origin(step: _Step) -> str | None:
    """What made a user's message. A summary covers other messages, so a file cannot claim to have one."""
    origin = (step.extra or {}).get("origin")
    return origin if isinstance(origin, str) and origin not in ("", "summary") else None


def _messages_of(step: _Step, usual_model: str | None) -> list[types.AgentMessage]:
    """The reply, the results of its calls, and the other observations of the step."""
    calls = step.tool_calls or []
    ids = _unique_ids(calls)
    name = step.model_name or usual_model
    model = types.ModelSpec("", "") if name is None else _model(name)
    extra = step.extra or {}
    content: list[types.AssistantBlock] = [types.Thinking(step.reasoning_content)] if step.reasoning_content else []
    content += [types.Text(said)] if (said := _text(step.message)) else []
    content += [_tool_call(call, id_) for call, id_ in zip(calls, ids, strict=True)]
    stop_reason = types.StopReason.TOOL_USE if calls else types.StopReason.STOP
    if extra.get("stop_reason") in tuple(types.StopReason):
        stop_reason = types.StopReason(extra["stop_reason"])
    reply = types.AssistantMessage(
        content=tuple(content),
        provider=model.provider,
        model_id=model.model_id,
        usage=_usage(step.metrics),
        cost=types.Cost() if step.metrics is None else types.Cost(total=max(step.metrics.cost_usd or 0.0, 0.0)),
        stop_reason=stop_reason,
        error_message=extra["error"] if isinstance(extra.get("error"), str) else None,
        **_moment(step.timestamp),
    )
    observed = _observed(step)
    by_id: dict[str | None, deque[int]] = {}
    for place, result in enumerate(observed):
        by_id.setdefault(result.source_call_id, deque()).append(place)
    results: list[types.ToolResultMessage] = []
    taken: set[int] = set()
    for call, id_ in zip(calls, ids, strict=True):  # its result is the next with its id, else the next without one
        places = by_id.get(call.tool_call_id) or by_id.get(None)
        place = places.popleft() if places else None
        results.append(_tool_result(call, id_, None if place is None else observed[place], step))
        taken.update(() if place is None else (place,))
    return [reply, *results, *_remarks([one for place, one in enumerate(observed) if place not in taken], step)]


def _observed(step: _Step) -> Sequence[_ObservedResult]:
    return (step.observation.results or ()) if step.observation is not None else ()


def _remarks(observed: Iterable[_ObservedResult], step: _Step) -> list[types.UserMessage]:
    """Observations without a call, as messages."""
    return [
        types.UserMessage(said, **_moment(step.timestamp)) for result in observed if (said := _text(result.content))
    ]


def _unique_ids(calls: Sequence[_Call]) -> list[str]:
    """Ids for the calls of a reply, unique and not empty, as providers require."""
    seen: dict[str, int] = {}
    ids: list[str] = []
    for call in calls:
        wanted = id_ = call.tool_call_id or "call"
        while id_ in seen:
            seen[wanted] += 1
            id_ = f"{wanted}-{seen[wanted]}"
        seen[id_] = 1
        ids.append(id_)
    return ids


def _tool_name(call: _Call) -> str:
    """A name that every provider accepts, so that the session can be continued."""
    return _NOT_IN_NAMES.sub("_", call.function_name)[:_LONGEST_NAME] or "tool"


def _tool_result(call: _Call, id_: str, result: _ObservedResult | None, step: _Step) -> types.ToolResultMessage:
    extra = {} if result is None else result.extra or {}
    outcome = types.ToolOutcome.LOST if result is None else types.ToolOutcome.RAN
    if extra.get("outcome") in tuple(types.ToolOutcome):
        outcome = types.ToolOutcome(extra["outcome"])
    if outcome is types.ToolOutcome.PENDING:
        outcome = types.ToolOutcome.NEVER_RAN  # else a continued session would run a call from the file
    return types.ToolResultMessage(
        id_,
        (types.Text(_NO_RESULT if result is None else _text(result.content)),),
        is_error=result is None or extra.get("is_error") is True,
        tool_name=_tool_name(call),
        outcome=outcome,
        **(_moment(extra.get("timestamp")) or _moment(step.timestamp)),
    )


def _tool_call(call: _Call, id_: str) -> types.ToolCall:
    if _is_deeper(call.arguments, _DEEPEST):
        raise TrajectoryError(f"the arguments of a call of {_tool_name(call)} are nested more than {_DEEPEST} deep")
    partial = (call.extra or {}).get("partial_json")
    return types.ToolCall(id_, _tool_name(call), call.arguments or {}, partial if isinstance(partial, str) else None)


def _is_deeper(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        inner: Iterable[object] = cast("dict[str, object]", value).values()
    elif isinstance(value, list):
        inner = cast("list[object]", value)
    else:
        return False
    return levels < 0 or any(_is_deeper(item, levels - 1) for item in inner)


def _usage(metrics: _Metrics | None) -> types.Usage:
    if metrics is None:
        return types.Usage()
    cached = max(metrics.cached_tokens or 0, 0)
    written = (metrics.extra or {}).get("cache_creation_tokens")
    written = max(written, 0) if isinstance(written, int) else 0
    read = max((metrics.prompt_tokens or 0) - cached - written, 0)
    output = max(metrics.completion_tokens or 0, 0)
    return types.Usage(read, output, cached, written, read + output + cached + written)


def _text(content: str | Iterable[_Content] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(
        part.text or ""
        if part.type == "text"
        else f"[{part.type} {(part.source or {}).get('path', '')}]".replace(" ]", "]")
        for part in content
    )


def _moment(text: object) -> dict[str, Any]:
    """The time as a keyword argument of a message; empty if the text is not a time."""
    if not isinstance(text, str):
        return {}
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return {}
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return {"timestamp": round(moment.timestamp() * 1000)}


def _model(name: str | None) -> types.ModelSpec:
    provider, slash, model_id = (name or "").partition("/")
    return types.ModelSpec(provider, model_id) if slash and model_id else types.ModelSpec("imported", name or "unknown")
