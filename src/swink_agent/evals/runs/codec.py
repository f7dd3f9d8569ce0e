"""Tasks and attempts as JSON: for another process, and as the lines of a stored run.

`store` keeps the lines, `audit_chain` hashes them.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace

from swink_agent.core.encoding.codec import decode_json
from swink_agent.core.types import AgentMessage, Extension, UserMessage
from swink_agent.core.values.value import Value, show

from ..errors import EvalStoreError, told
from ..types import Attempt, EvalTask, Invocation, StoredTrajectory

_ROLES = frozenset({"user", "assistant", "tool_result"})
_FOREIGN = "message:"
_EMPTY = Invocation()


class AttemptLine(Value, frozen=True):
    """One attempt in a stored run. Its trajectory follows in the same line."""

    case_id: str
    name: str
    case_digest: str
    elapsed: float
    """Seconds that the run had taken when this attempt ended."""
    attempt: Attempt


class _WholeLine(Value, frozen=True):
    trajectory: Invocation


def encode_task(task: EvalTask) -> bytes:
    """Encodes a task as JSON."""
    return msgspec.json.encode(task)


def decode_task(data: bytes | str) -> EvalTask:
    """Decodes a task. Raises `ValueError`."""
    return decode_json(data, EvalTask, "task")


def encode_attempt(attempt: Attempt) -> bytes:
    """Encodes an attempt as JSON, with its whole trajectory."""
    return _encoded(replace(attempt, trajectory=attempt.invocation))


def decode_attempt(data: bytes | str) -> Attempt:
    """Decodes an attempt. Raises `ValueError`."""
    return _decoded(data, Attempt)


# -- lines -------------------------------------------------------------------------------------------------------------


def encode_line(line: AttemptLine) -> bytes:
    """Encodes a line of a stored run, without the line break."""
    light = replace(line, attempt=replace(line.attempt, trajectory=_EMPTY))
    return _encoded(light)[:-1] + b',"trajectory":' + _encoded(line.attempt.invocation) + b"}"


def decode_line(data: bytes | str, *, whole: bool = False) -> AttemptLine:
    """Decodes a line; its trajectory only if `whole`. Raises `ValueError`."""
    line: AttemptLine = _decoded(data, AttemptLine)
    if not whole:
        return line
    trajectory = _decoded(data, _WholeLine).trajectory
    return replace(line, attempt=replace(line.attempt, trajectory=trajectory))


def load_trajectory(stored: StoredTrajectory) -> Invocation:
    """Reads a trajectory from its file. Raises `EvalStoreError`."""
    with told(stored.path, "the trajectory cannot be read"), open(stored.path, "rb") as file:
        file.seek(stored.offset)
        data = file.read(stored.length)
    try:
        return _decoded(data, _WholeLine).trajectory
    except ValueError as error:
        raise EvalStoreError(f"the trajectory is damaged: {error}", path=stored.path) from error


# -- JSON ------------------------------------------------------------------------------------------------------------


def plain_message(message: AgentMessage) -> Any:
    """The content of a message as JSON, the same before storing and after loading."""
    if isinstance(message, UserMessage) and len(message.content) == 1:
        block = message.content[0]
        if isinstance(block, Extension) and block.type_name.startswith(_FOREIGN):
            return block.data
    return message


def plain_bytes(value: Any) -> bytes:
    """Deterministic JSON."""
    return _encoded(value, "deterministic")


def _hook(value: Any) -> Any:
    # The details of a result may be any object of the application.
    return str(value) if isinstance(value, PurePath) else show(value)


def _encoded(value: Any, order: Literal["deterministic"] | None = None) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_hook, order=order)
    except (UnicodeEncodeError, TypeError):  # a lone surrogate, or a key that is not a text
        data = msgspec.to_builtins(value, str_keys=True, enc_hook=_hook)
        return msgspec.json.encode(_whole_characters(data), order=order)


def _whole_characters(data: Any) -> Any:
    """The data with lone surrogates replaced, which UTF-8 cannot encode."""
    if isinstance(data, str):
        return data.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(data, dict):
        items = cast("dict[Any, Any]", data)
        return {_whole_characters(key): _whole_characters(item) for key, item in items.items()}
    if isinstance(data, (list, tuple)):
        return [_whole_characters(item) for item in cast("list[Any]", data)]
    return data


def _decoded(data: bytes | str, kind: Any) -> Any:
    try:
        return decode_json(data, kind, "attempt", _dec_hook)
    except ValueError:
        # An application's own messages are read as extensions: their types are unknown here.
        document = decode_json(data, dict[str, Any], "attempt")
        if not _wrap_foreign(document):
            raise
        return decode_json(msgspec.json.encode(document), kind, "attempt", _dec_hook)


def _dec_hook(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(str(value))
    raise NotImplementedError(f"{kind} cannot be read")


def _wrap_foreign(document: dict[str, Any]) -> bool:
    trajectory = document.get("trajectory")
    messages = cast("dict[str, Any]", trajectory).get("messages") if isinstance(trajectory, dict) else None
    if not isinstance(messages, list):
        return False
    found = False
    items = cast("list[Any]", messages)
    for position, message in enumerate(items):
        role: Any = cast("dict[str, Any]", message).get("role") if isinstance(message, dict) else None
        if isinstance(role, str) and role not in _ROLES:
            block: dict[str, Any] = {"type": "extension", "type_name": _FOREIGN + role, "data": items[position]}
            items[position] = {"role": "user", "content": [block], "timestamp": 0}
            found = True
    return found
