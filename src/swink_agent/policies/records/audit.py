"""`AuditLog`: writes one line of JSON for each call, turn and end of an agent's runs.

All facts come from the policy's context, those of a call from its record. The log never fails a run: a line that cannot
be written is dropped, with one warning for the first.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import IO, Any, cast

from swink_agent.core.policy import PolicyContext, PreDispatchContext
from swink_agent.core.record import CallRecord
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import Text, ToolResultMessage, extract_text
from swink_agent.core.values.checks import check_methods, is_function, is_not
from swink_agent.core.values.data import as_json, as_json_data
from swink_agent.core.values.several import check_path

_LONGEST_TEXT = 2000
log = logging.getLogger("swink_agent")


class AuditLog:
    """Writes a line to a file for every call that the model asks for, every turn, and every end of a run.

    `file` is an open file, or a path; only the owner can read a file that the log creates. Each line is one JSON object
    with `time` (seconds since the epoch), `event`, `run` and `turn`:

    - `call`: `call_id`, `tool` and `arguments`, as the model asked, before any approval.
    - `turn`: `model`, `stop_reason`, `error`, `error_kind`, `usage`, `cost`, `text_size`, and `results`, each with its
      `call_id`, `tool`, `outcome` (a `ToolOutcome`: `ran`, `failed`, `skipped` by a policy, `rejected`, `cancelled` and
      so on), `size` in characters and `seconds`; and where they apply the `reason` of the outcome, the `approval`
      (`approved` or `rejected`), its `note`, and the `arguments` that ran, if they are not those of the reply.
    - `end`: the run's `usage` and `cost`, when the agent is done. A run that fails, is aborted or stopped has no such
      line; its last `turn` line shows how it ended.

    Texts of replies and results are not written, only their sizes. The `redactor` masks secrets, by default those of
    the environment; long texts are cut. Put this policy before others, so that it sees calls that they skip. Each line
    is appended with one write, so several agents and processes can share a file. A symbolic link instead of the file is
    not followed.
    """

    name = "audit_log"
    __slots__ = ("_clock", "_file", "_has_failed", "_redactor")

    def __init__(
        self,
        file: str | os.PathLike[str] | IO[str],
        *,
        redactor: Redactor | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not hasattr(file, "write"):
            check_path("AuditLog(file=…)", file)
        if redactor is not None:
            check_methods("AuditLog: redactor", redactor, "a Redactor", "redact")
        if not is_function(clock):
            raise is_not("AuditLog: clock", clock, "a function")
        self._file = file if hasattr(file, "write") else os.path.abspath(cast("str", file))
        self._redactor = Redactor() if redactor is None else redactor
        self._clock = clock
        self._has_failed = False

    def __repr__(self) -> str:
        return f"AuditLog({self._file if isinstance(self._file, str) else '<file>'!s})"

    def pre_dispatch(self, ctx: PreDispatchContext) -> None:
        self._record("call", ctx, lambda: {"call_id": ctx.call_id, "tool": ctx.name, "arguments": ctx.arguments})

    def post_turn(self, ctx: PolicyContext) -> None:
        self._record("turn", ctx, lambda: _turn(ctx))

    def post_loop(self, ctx: PolicyContext) -> None:
        self._record("end", ctx, lambda: {"usage": ctx.usage, "cost": ctx.cost.amount})

    def _record(
        self, event: str, ctx: PolicyContext | PreDispatchContext, fields: Callable[[], dict[str, Any]]
    ) -> None:
        try:
            line = {"time": round(self._clock(), 3), "event": event, "run": ctx.run_id, "turn": ctx.turn_index}
            self._write(
                as_json(line | _cut(self._redactor.redact_value(as_json_data(fields(), cuts_deep=True)))) + b"\n"
            )
        except Exception as error:  # a log must not break the run or prevent a call
            if not self._has_failed:
                self._has_failed = True
                log.warning("the audit log cannot be written, lines are lost: %s: %s", type(error).__name__, error)

    def _write(self, line: bytes) -> None:
        if not isinstance(self._file, str):
            cast("IO[str]", self._file).write(line.decode())
            return
        # Opened for each line: nothing to close, and a file that was moved away is created again. O_NONBLOCK, in case
        # there is a pipe instead of a file; O_NOFOLLOW, because a link could redirect the log to another file.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(self._file, flags, 0o600)
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(f"{self._file} took only a part of a line")
        finally:
            os.close(descriptor)


def _turn(ctx: PolicyContext) -> dict[str, Any]:
    message, calls = ctx.message, ctx.calls
    asked = {} if message is None else {call.id: call.arguments for call in message.tool_calls}
    results = [_result(result) for result in ctx.tool_results]
    for fields, call in zip(results, calls, strict=False):
        fields |= _facts(call, asked.get(call.id))
    fields: dict[str, Any] = {"model": str(ctx.model), "results": results}
    if message is not None:
        fields |= {
            "model": f"{message.provider}:{message.model_id}",
            "stop_reason": message.stop_reason,
            "error": message.error_message,
            "error_kind": message.error_kind,
            "usage": message.usage,
            "cost": message.cost.amount,
            "text_size": len(message.text),
        }
    return fields


def _result(result: ToolResultMessage) -> dict[str, Any]:
    size = sum(len(block.text) for block in result.content if type(block) is Text)
    fields: dict[str, Any] = {"call_id": result.tool_call_id, "tool": result.tool_name}
    fields |= {"outcome": result.outcome, "size": size}
    if result.is_error:
        fields["reason"] = extract_text(result.content)
    return fields


def _facts(call: CallRecord, asked: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the record of a call adds to its result."""
    facts: dict[str, Any] = {"seconds": None if call.seconds is None else round(call.seconds, 3)}
    facts |= {"reason": call.reason} if call.reason else {}
    facts |= {} if call.approval is None else {"approval": call.approval}
    facts |= {"note": call.note} if call.note else {}
    return facts if call.arguments == asked else facts | {"arguments": call.arguments}


def _cut(value: Any) -> Any:
    """Returns the data with long texts cut. It must be masked before: half a secret would not be recognised."""
    if isinstance(value, str):
        rest = len(value) - _LONGEST_TEXT
        return value if rest <= 0 else f"{value[:_LONGEST_TEXT]}…+{rest}"
    if isinstance(value, Mapping):
        return {str(key): _cut(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_cut(item) for item in cast("list[Any]", value)]
    return value
