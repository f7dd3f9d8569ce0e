"""The JSON export: one document with everything that the other exports show, for programs.

Owns its layout, which `docs/export.md` describes. `encode_message` writes the messages, so `decode_message` reads them
back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from swink_agent.core.types import AgentMessage
from swink_agent.memory.log.records import UnknownMessage
from swink_agent.memory.sessions.info import SessionInfo
from swink_agent.rendering.turns import LabelAt, NoteAt
from swink_agent.rendering.values import pretty_json

FORMAT, VERSION = "swink-agent-session-export", 1


def export_json(
    info: SessionInfo, messages: Sequence[AgentMessage], *, labels: Sequence[LabelAt] = (), notes: Sequence[NoteAt] = ()
) -> str:
    """The session as one JSON document."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "info": msgspec.to_builtins(info),
        "messages": [_message(message) for message in messages],
        "labels": [{"text": text, "at": at} for text, at in labels],
        "notes": [{"kind": kind, "data": _data(data), "at": at} for kind, data, at in notes],
    }
    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    except (UnicodeEncodeError, msgspec.DecodeError):  # a lone surrogate, which JSON can escape in ASCII
        return json.dumps(document, default=_plain, indent=2) + "\n"


def _message(message: AgentMessage) -> msgspec.Raw:
    if isinstance(message, UnknownMessage):  # as the program that knows its type wrote it
        return _data(message.data)
    try:
        return msgspec.Raw(msgspec.json.encode(message, enc_hook=str))
    except UnicodeEncodeError:  # `encode_message` would replace the half character, which ASCII can keep
        return msgspec.Raw(json.dumps(msgspec.to_builtins(message, str_keys=True)).encode())
    except RecursionError:
        plain = {"role": "unreadable", "description": pretty_json(message)}
        return msgspec.Raw(msgspec.json.encode(plain))


def _data(data: object) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(data))
    except (RecursionError, TypeError, ValueError):
        return msgspec.Raw(json.dumps(pretty_json(data)).encode())


def _plain(value: object) -> object:
    return json.loads(bytes(value)) if isinstance(value, msgspec.Raw) else str(value)
