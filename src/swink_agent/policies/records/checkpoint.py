"""`Checkpoint`: writes the conversation to disk after each turn, so that a crash loses at most one turn.

The file is one JSON document, replaced as a whole. Sessions, in `swink_agent.memory`, keep every step.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from swink_agent.core.encoding.codec import decode_message, encode_message
from swink_agent.core.machine.files import replace_file
from swink_agent.core.policy import PolicyContext
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage, AssistantMessage, CustomMessage, ToolResultMessage
from swink_agent.core.values.checks import check_methods, check_whole
from swink_agent.core.values.data import as_json, checked_json_data
from swink_agent.core.values.decoders import json_decoder
from swink_agent.core.values.several import check_path

_VERSION = 1


class SavedConversation(NamedTuple):
    """The content of a checkpoint: `messages, state = Checkpoint.load(path)`."""

    messages: tuple[AgentMessage, ...]
    state: dict[str, Any]


class _File(msgspec.Struct):
    version: int
    messages: list[msgspec.Raw]
    state: dict[str, Any] = {}


class Checkpoint:
    """Writes the conversation and the agent's state to `path` after each turn, or each `every` turns.

    The file is replaced in one step, after its content was flushed to the disk: it always holds the last complete
    checkpoint, even if the machine stops. Only its owner can read it. Secrets are masked in it, as in a session's file,
    by `redactor` or, without one, by the agent's. `Checkpoint.load(path)` returns the messages and the state: pass them
    to `Agent(..., messages=messages, state=state)`, then call `prompt` or `continue_loop`.

    Put this policy after those that rewrite results and replies, so that it writes their output. Use one file per
    agent; runs of delegates are not written. Errors are logged; the run continues and the last file stays. Writing
    blocks the event loop for the time of a flush, a few milliseconds.
    """

    name = "checkpoint"
    own_run_only = optional = True
    __slots__ = ("_redactor", "every", "path")

    def __init__(self, path: str | os.PathLike[str], every: int = 1, *, redactor: Redactor | None = None) -> None:
        check_path("Checkpoint(path=…)", path)
        check_whole("Checkpoint: every", every)
        if redactor is not None:
            check_methods("Checkpoint: redactor", redactor, "a Redactor", "redact")
        self.path = os.path.abspath(path)
        self.every = every
        self._redactor = redactor

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r}, every={self.every})"

    def post_turn(self, ctx: PolicyContext) -> None:
        """Writes if it is time, and always if the run probably has no further turn."""
        is_last = not ctx.tool_results or (ctx.message is not None and ctx.message.is_failed)
        if is_last or (ctx.turn_index + 1) % self.every == 0:
            self._save(_messages_of(ctx), dict(ctx.state), self._redactor or ctx.redactor)

    def save(self, messages: Sequence[AgentMessage], state: dict[str, Any] | None = None) -> None:
        """Writes a checkpoint now. Raises `OSError`, and `ValueError` for a state that is not JSON; the last checkpoint
        then stays.

        Without a `redactor`, it masks the secrets of the environment.
        """
        self._save(messages, state, self._redactor)

    def _save(self, messages: Sequence[AgentMessage], state: dict[str, Any] | None, redactor: Redactor | None) -> None:
        try:
            kept = checked_json_data(dict(state or {}))
        except ValueError as error:
            raise ValueError(
                f"the state cannot be saved in {self.path}, since not all of it is JSON: {error}"
            ) from error
        redactor = Redactor() if redactor is None else redactor
        document = {
            "version": _VERSION,
            "messages": [msgspec.Raw(encode_message(redactor.redact_message(message))) for message in messages],
            "state": redactor.redact_value(kept),
        }
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        replace_file(self.path, as_json(document), sync_name=True)

    @staticmethod
    def load(path: str | os.PathLike[str], types: Sequence[type[CustomMessage]] = ()) -> SavedConversation:
        """Reads a checkpoint. `types` are the application's own messages that may be in it.

        Raises `OSError` if the file cannot be read, `ValueError` if it is not a checkpoint.
        """
        with open(path, "rb") as file:
            data = file.read()
        try:
            saved = json_decoder(_File).decode(data)
            if saved.version > _VERSION:
                raise ValueError(f"it was written by a newer version ({saved.version}); update swink-agent")
            messages = tuple([decode_message(bytes(raw), types) for raw in saved.messages])
        except (ValueError, RecursionError) as error:  # the latter for JSON that is nested too deep
            raise ValueError(f"{os.fspath(path)} is not a readable checkpoint: {error}") from error
        return SavedConversation(messages, saved.state)


def _messages_of(ctx: PolicyContext) -> list[AgentMessage]:
    """The history, with the changes of earlier policies to this turn, which it gets only after all policies."""
    messages = list(ctx.messages)
    if ctx.message is None:
        return messages
    reply = max(at for at, message in enumerate(messages) if type(message) is AssistantMessage)
    messages[reply] = ctx.message
    results = list(ctx.tool_results)  # in a turn that `resume` continues, those of the answered calls
    for at in range(reply + 1, len(messages)):
        message = messages[at]
        if results and type(message) is ToolResultMessage and message.tool_call_id == results[0].tool_call_id:
            messages[at] = results.pop(0)
    return messages
