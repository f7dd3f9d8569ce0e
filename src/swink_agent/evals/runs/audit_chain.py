"""The audit chain: shows whether a stored result is as it was recorded.

    link 0      the case, the attempt and the versions of model, prompt and tools
    link 1..n   one for each turn: its messages and calls, and the link before
    seal        scores, figures and the rest, and the last link
    run.chain   all seals, in order, and how long the run took

Owns what is hashed and how damage is found. A chain reveals accidents, and changes by people who do not recompute it.
Against others, keep a copy of `run.chain` where they cannot write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Raw, structs
from msgspec.structs import replace

from swink_agent.core.types import AgentMessage, AssistantMessage, ToolResultMessage

from ..cases.cases import Verdict
from ..errors import EvalStoreError
from ..types import Attempt, EvalRun, Invocation, ToolCallRecord
from .codec import decode_attempt, encode_attempt, plain_bytes, plain_message

_FORMAT = b"swink-agent evaluation 1\n"
_LATER = b',"served_model":null,"response_id":null}'
"""The end of a reply with fields that earlier versions did not write."""


class AuditTrail:
    """Computes and checks the chains of attempts and runs."""

    @staticmethod
    def sealed(set_id: str, case_id: str, attempt: Attempt) -> Attempt:
        """The attempt with its chain, over its present content."""
        link, chain = "", list[str]()
        for part in _parts(set_id, case_id, attempt):
            link = _link(link, part)
            chain.append(link)
        return replace(attempt, chain=tuple(chain))

    @staticmethod
    def chain_of_run(run: EvalRun) -> str:
        """The hash over the seals of all attempts, the run's duration and, if set, verdict, variant, grid, origin."""
        digest = hashlib.sha256(_FORMAT + plain_bytes(float(run.summary.seconds)))
        for result in run.results:
            for attempt in result.attempts:
                digest.update(plain_bytes([result.case_id, attempt.number, attempt.chain[-1:]]))
        said = [run.verdict, run.variant, run.grid, run.origin]
        if said != [Verdict.ALL, "", "", ""]:  # a run of an earlier version has none of them
            digest.update(plain_bytes(said))
        return digest.hexdigest()

    @classmethod
    def verify(cls, run: EvalRun) -> list[str]:
        """What is not as it was recorded, with case and turn; empty if everything is."""
        problems: list[str] = []
        for result in run.results:
            for attempt in result.attempts:
                where = f"case {result.case_id}"
                if len(result.attempts) > 1 or run.repeat > 1:
                    where += f", attempt {attempt.number}"
                problems += [f"{where}{problem}" for problem in _problems(run.set_id, result.case_id, attempt)]
            numbers = [attempt.number for attempt in result.attempts]
            if run.is_complete and numbers != list(range(1, run.repeat + 1)):
                problems.append(f"case {result.case_id}: has attempts {numbers}, not 1 to {run.repeat}")
        if run.is_complete and run.cases and len(run.results) != run.cases:
            problems.append(f"the run has results for {len(run.results)} of {run.cases} cases")
        if run.chain and not problems and run.chain != cls.chain_of_run(run):
            what = "attempts were added, removed or replaced, or its duration, verdict or names were changed"
            problems.append(f"the run's own hash does not fit: {what}")
        return problems


def _problems(set_id: str, case_id: str, attempt: Attempt) -> list[str]:
    recorded = attempt.chain
    if not recorded:
        return [": has no audit chain"]
    try:
        parts = [*_parts(set_id, case_id, attempt)]
    except EvalStoreError as error:
        return [f": {error.message}"]
    problems: list[str] = []
    names = ["", *[f", turn {number}" for number in range(1, max(len(recorded), len(parts)) - 1)]]
    # Each link is recomputed from the recorded link before it, so that one change is one problem; or from the computed
    # one, because a link itself may have been changed.
    stored, computed = "", ""
    for name, part, link in zip(names, parts[:-1], recorded[:-1], strict=False):
        candidates = (_link(stored, part), _link(computed, part))
        if link not in candidates:
            changed = f"{name}: was changed after it was recorded"
            problems.append(changed if name else ": the case or its versions were changed after they were recorded")
        stored, computed = link, candidates[0]
    for name in names[len(parts) - 1 : len(recorded) - 1]:
        problems.append(f"{name}: is missing")
    for name in names[len(recorded) - 1 : len(parts) - 1]:
        problems.append(f"{name}: was added after it was recorded")
    if not problems and recorded[-1] not in (_link(stored, parts[-1]), _link(computed, parts[-1])):
        problems.append(": the case, its scores or its figures were changed after they were recorded")
    return problems


def _link(before: str, part: bytes) -> str:
    return hashlib.sha256(_FORMAT + before.encode() + b"\n" + part).hexdigest()


def _parts(set_id: str, case_id: str, attempt: Attempt) -> Iterable[bytes]:
    """The hashed parts, in order: the head, the turns, the rest."""
    # As it is after storing and loading: 1 may come back as 1.0. The case has its own digest.
    asked = "" if attempt.case is None else attempt.case.digest
    attempt = decode_attempt(encode_attempt(replace(attempt, case=None)))
    invocation = attempt.invocation
    yield plain_bytes([set_id, case_id, attempt.number, attempt.versions])
    turns = _turns(invocation.messages)
    calls: dict[int, list[ToolCallRecord]] = {}
    for call in invocation.tool_calls:
        calls.setdefault(call.turn, []).append(call)
    for number, messages in enumerate(turns, 1):
        yield plain_bytes([list(map(_said, messages)), calls.pop(number, [])])
    rest = _recorded(attempt, Attempt(1), "case", "chain", "trajectory", "versions", "number")
    done = _recorded(invocation, Invocation(), "messages", "tool_calls")
    yield plain_bytes([asked, rest, done, list(calls.items())])


def _said(message: AgentMessage) -> Any:
    """The content of a message, without the later fields of a reply if they have their defaults."""
    data = plain_bytes(message) if isinstance(message, AssistantMessage) else b""
    return Raw(data.removesuffix(_LATER) + b"}") if data.endswith(_LATER) else plain_message(message)


def _recorded(value: Attempt | Invocation, plain: Attempt | Invocation, *left_out: str) -> dict[str, Any]:
    """The fields of a value, without those in `left_out` and later fields that have their default."""
    return {
        name: field
        for name, field in structs.asdict(value).items()
        if name not in left_out and not (name in value.later_fields and field == getattr(plain, name))
    }


def _turns(messages: Sequence[AgentMessage]) -> list[list[AgentMessage]]:
    """The messages by turn: messages to the model, its reply, and the results of its calls."""
    turns: list[list[AgentMessage]] = []
    is_over = True
    for message in messages:
        if is_over and not isinstance(message, ToolResultMessage):
            turns.append([])
            is_over = False
        if not turns:
            turns.append([])
        turns[-1].append(message)
        if isinstance(message, AssistantMessage):
            is_over = True
    return turns
