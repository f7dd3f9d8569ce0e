"""`Checkpoint`: the conversation on disk after each turn, so that a crash loses no more than the turn it struck.

Owns the file: one JSON document, replaced as a whole. Sessions with a history of their own are in the room `memory`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from swink_agent.core.codec import decode_message, encode_message
from swink_agent.core.policy import PolicyContext
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage, CustomMessage
from swink_agent.core.values.value import show

__all__ = ["Checkpoint", "SavedConversation"]

_VERSION = 1


class SavedConversation(NamedTuple):
    """What a checkpoint holds: `messages, state = Checkpoint.load(path)`."""

    messages: tuple[AgentMessage, ...]
    state: dict[str, Any]


class _File(msgspec.Struct):
    version: int
    messages: list[msgspec.Raw]
    state: dict[str, Any] = {}


class Checkpoint:
    """Writes the conversation and the agent's state to `path` after every turn (or every so many, see `every`).

    The file is written beside its place, flushed to the disk and then put there in one step: whenever the machine
    stops, the file is the last whole checkpoint. Only its owner can read it. A `redactor` masks secrets in what is
    written. `Checkpoint.load(path)` gives the messages and the state back:
    `Agent(..., messages=messages, state=state)`, then `prompt` or `continue_loop`.

    Put it behind policies that rewrite results and replies, so that it writes what they left. One file is for one
    agent. What goes wrong is logged by the loop; the run goes on and the last file stays. Writing takes the time of a
    flush, a few milliseconds, in which nothing else in the event loop runs.
    """

    name = "checkpoint"
    __slots__ = ("_redactor", "every", "path")

    def __init__(self, path: str | os.PathLike[str], every: int = 1, *, redactor: Redactor | None = None) -> None:
        if every < 1:
            raise ValueError(f"Checkpoint: every is {every}; give at least 1")
        self.path = os.path.abspath(path)
        self.every = every
        self._redactor = redactor

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r}, every={self.every})"

    def post_turn(self, ctx: PolicyContext) -> None:
        """Writes when it is time, and always when the run will have no further turn of its own."""
        is_last = not ctx.tool_results or (ctx.message is not None and ctx.message.is_failed)
        if is_last or (ctx.turn_index + 1) % self.every == 0:
            self.save(tuple(_messages_of(ctx)), dict(ctx.state))

    def save(self, messages: Sequence[AgentMessage], state: dict[str, Any] | None = None) -> None:
        """Writes a checkpoint now. Raises `OSError`, and leaves the last one in place."""
        if self._redactor is not None:
            messages = [self._redactor.redact_message(message) for message in messages]
            state = self._redactor.redact_value(state)
        document = {
            "version": _VERSION,
            "messages": [msgspec.Raw(_encoded(message)) for message in messages],
            "state": state or {},
        }
        _replace_file(self.path, msgspec.json.encode(document, enc_hook=show))

    @staticmethod
    def load(path: str | os.PathLike[str], types: Sequence[type[CustomMessage]] = ()) -> SavedConversation:
        """What the file holds; `types` are the application's own messages that may be in it.

        Raises `OSError` if it cannot be read, `ValueError` if it is no checkpoint.
        """
        with open(path, "rb") as file:
            data = file.read()
        try:
            saved = msgspec.json.decode(data, type=_File)
            if saved.version > _VERSION:
                raise ValueError(f"it was written by a newer version ({saved.version}); update swink-agent")
            messages = tuple([decode_message(bytes(raw), types) for raw in saved.messages])
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is no checkpoint that can be read: {error}") from error
        return SavedConversation(messages, saved.state)


def _messages_of(ctx: PolicyContext) -> Iterator[AgentMessage]:
    """The history, with the turn as earlier policies left it: the history gets that only after all of them."""
    if ctx.message is None:
        yield from ctx.messages
    else:
        yield from ctx.messages[: len(ctx.messages) - 1 - len(ctx.tool_results)]
        yield ctx.message
        yield from ctx.tool_results


def _encoded(message: AgentMessage) -> bytes:
    try:
        return encode_message(message)
    except (TypeError, ValueError):  # details that a tool gave for people, and that no JSON can hold
        details = show(getattr(message, "details", None))
        return encode_message(cast("AgentMessage", replace(cast("Any", message), details=details)))


def _replace_file(path: str, data: bytes) -> None:
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=folder)  # for the owner alone
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass  # what went wrong first is what matters
        raise
    # The new name too must be on the disk, else a crash may bring the old one back.
    directory = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
