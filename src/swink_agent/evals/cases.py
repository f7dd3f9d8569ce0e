"""What is asked of an agent: the cases of a set, and what is expected of each.

Owns the values and the rules that each keeps when it is made, from Python or from a file. How a file is read is in
`loading`, what comes of running a case in `types`, and how expectations are held against it in `scorers`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from swink_agent.core.values.choice import Choice
from swink_agent.core.values.value import Value, frozen_json

__all__ = [
    "BadValue",
    "CaseBudget",
    "EvalCase",
    "EvalSet",
    "ExpectedCall",
    "ExpectedFile",
    "ExpectedTrajectory",
    "JudgeRubric",
    "ResponseCriteria",
    "TrajectoryMatch",
    "checked_path",
]

_LONGEST_ID = 128
T = TypeVar("T", bound=Struct)

Identifier = Annotated[str, Meta(min_length=1, max_length=_LONGEST_ID)]
Amount = Annotated[float, Meta(ge=0)]
Duration = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Votes = Annotated[int, Meta(ge=1, le=99)]


class BadValue(ValueError):
    """A value that cannot be; `at` leads to it from the value that refused, so that a loader can say on which line."""

    def __init__(self, message: str, *at: str | int) -> None:
        super().__init__(message)
        self.at = at


class TrajectoryMatch(Choice):
    """How the calls that were made are held against those that were expected."""

    IN_ORDER = "in_order"
    """The expected ones in their order; others may stand between them."""
    EXACT = "exact"
    """The expected ones in their order, and no others."""
    ANY_ORDER = "any_order"
    """The expected ones in whatever order; others may be among them."""


class ExpectedCall(Value, frozen=True, forbid_unknown_fields=True):
    """A call that the agent should make."""

    name: Annotated[str, Meta(min_length=1, description="The tool's name.")]
    arguments: Annotated[
        dict[str, Any] | None,
        Meta(description="The arguments, compared as JSON. Left out, any will do; {} is a call without arguments."),
    ] = None

    def __post_init__(self) -> None:
        if not self.name:
            raise BadValue("a call needs the name of a tool", "name")
        force_setattr(self, "arguments", frozen_json(self.arguments))


class ExpectedTrajectory(Value, frozen=True, forbid_unknown_fields=True):
    """The calls that the agent should make, and how strictly."""

    calls: Annotated[tuple[ExpectedCall, ...], Meta(description="The calls; none at all is an expectation too.")]
    match: Annotated[
        TrajectoryMatch,
        Meta(description="in_order (the default), exact (and no other calls) or any_order."),
    ] = TrajectoryMatch.IN_ORDER

    if TYPE_CHECKING:

        def __init__(
            self, calls: Sequence[ExpectedCall | Mapping[str, Any]], match: TrajectoryMatch | str = ...
        ) -> None: ...

    def __post_init__(self) -> None:
        calls: Sequence[Any] = self.calls
        force_setattr(self, "calls", tuple([_made(call, ExpectedCall) for call in calls]))
        force_setattr(self, "match", TrajectoryMatch(self.match))


class ResponseCriteria(Value, frozen=True, forbid_unknown_fields=True):
    """What the agent's last reply should be: one of the four."""

    exact: Annotated[str | None, Meta(description="The text of the reply, every character of it.")] = None
    contains: Annotated[str | None, Meta(description="A text that occurs in the reply.")] = None
    regex: Annotated[
        str | None, Meta(description="A Python regular expression that is found in the reply, in limited time.")
    ] = None
    schema: Annotated[
        dict[str, Any] | None, Meta(description="A JSON Schema that the reply, read as JSON, is valid under.")
    ] = None

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(given) != 1:
            said = f"has {', '.join(given)}" if given else "says nothing"
            raise BadValue(f"a response criterion {said}; give one of exact, contains, regex, schema", *given[1:2])
        _check_pattern(self.regex)
        _check_schema(self.schema)
        force_setattr(self, "schema", frozen_json(self.schema))


class ExpectedFile(Value, frozen=True, forbid_unknown_fields=True):
    """A file that should be in the case's folder at the end; with neither content nor pattern, it should be there."""

    path: Annotated[str, Meta(min_length=1, description="Relative to the case's folder, with forward slashes.")]
    content: Annotated[str | None, Meta(description="What the file holds, exactly.")] = None
    regex: Annotated[
        str | None, Meta(description="A Python regular expression that is found in the file, in limited time.")
    ] = None

    def __post_init__(self) -> None:
        force_setattr(self, "path", checked_path(self.path, "path"))
        if self.content is not None and self.regex is not None:
            raise BadValue("an expected file has content and regex; give one of them", "regex")
        _check_pattern(self.regex)


class CaseBudget(Value, frozen=True, forbid_unknown_fields=True):
    """What a case may use at most; what is not given is not limited."""

    cost: Annotated[Amount | None, Meta(description="US dollars.")] = None
    tokens: Annotated[Count | None, Meta(description="Tokens in and out, cached ones included.")] = None
    turns: Annotated[Positive | None, Meta(description="Replies of the model; also the ideal for efficiency.")] = None
    seconds: Annotated[Duration | None, Meta(description="From the first message to the last reply.")] = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            limit = getattr(self, name)
            least = 1 if name == "turns" else 0
            if limit is not None and not (least <= limit < float("inf")):
                raise BadValue(f"a budget of {limit} {name} cannot be; give a number from {least} up", name)
        if self.seconds == 0:
            raise BadValue("a budget of 0 seconds cannot be kept; give more", "seconds")
        for name in ("cost", "seconds"):  # 1 and 1.0 are one budget, with one digest
            limit = getattr(self, name)
            force_setattr(self, name, None if limit is None else float(limit))


class JudgeRubric(Value, frozen=True, forbid_unknown_fields=True):
    """What a model is asked about the agent's work."""

    rubric: Annotated[str, Meta(min_length=1, description="What is good and what is bad, in words.")]
    threshold: Annotated[float, Meta(ge=0, le=1, description="The score from which on the case passes.")] = 0.5
    votes: Annotated[
        Votes | None, Meta(description="How often the model is asked, if not as often as the evaluator says (3).")
    ] = None

    def __post_init__(self) -> None:
        if not self.rubric.strip():
            raise BadValue("a rubric says what is good and what is bad; this one is empty", "rubric")
        if not 0 <= self.threshold <= 1:
            raise BadValue(f"a threshold of {self.threshold} cannot be; it lies between 0 and 1", "threshold")
        if self.votes is not None and not 1 <= self.votes <= 99:
            raise BadValue(f"{self.votes} votes cannot be; ask for 1 to 99", "votes")
        force_setattr(self, "threshold", float(self.threshold))


class EvalCase(Value, frozen=True, forbid_unknown_fields=True):
    """One thing that an agent is asked to do, and what is expected of it.

    The parts may be given as the plain dicts that a file would hold. Raises `ValueError` for what cannot be.
    """

    id: Annotated[Identifier, Meta(description="Unique in the set; printable characters on one line.")]
    name: Annotated[str, Meta(description="For people.")]
    user_messages: Annotated[tuple[str, ...], Meta(min_length=1, description="Sent in turn, each when it is answered.")]
    system_prompt: Annotated[str, Meta(description="The agent's instructions; empty leaves them to the factory.")] = ""
    description: str = ""
    expected_trajectory: Annotated[
        ExpectedTrajectory | None, Meta(description="The tool calls that the agent should make.")
    ] = None
    expected_response: Annotated[ResponseCriteria | None, Meta(description="What the last reply should be.")] = None
    expected_files: Annotated[
        tuple[ExpectedFile, ...], Meta(description="Files that should be in the case's folder at the end.")
    ] = ()
    budget: Annotated[CaseBudget | None, Meta(description="What the case may use at most.")] = None
    judge: Annotated[JudgeRubric | None, Meta(description="What a model is asked about the agent's work.")] = None
    evaluators: Annotated[
        tuple[str, ...] | None, Meta(description="Names of the evaluators that count; left out, all that apply.")
    ] = None
    setup: Annotated[
        dict[str, str], Meta(description="Files to put into the case's folder first: path to content.")
    ] = {}
    metadata: Annotated[dict[str, Any], Meta(description="Whatever else belongs to the case.")] = {}

    if TYPE_CHECKING:

        def __init__(
            self,
            id: str,  # noqa: A002
            name: str,
            user_messages: Sequence[str],
            system_prompt: str = ...,
            description: str = ...,
            expected_trajectory: ExpectedTrajectory | Mapping[str, Any] | None = ...,
            expected_response: ResponseCriteria | Mapping[str, Any] | None = ...,
            expected_files: Sequence[ExpectedFile | Mapping[str, Any]] = ...,
            budget: CaseBudget | Mapping[str, Any] | None = ...,
            judge: JudgeRubric | Mapping[str, Any] | None = ...,
            evaluators: Sequence[str] | None = ...,
            setup: Mapping[str, str] = ...,
            metadata: Mapping[str, Any] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        _check_id(self.id, "case")
        force_setattr(self, "user_messages", _strings(self.user_messages, "user_messages"))
        if not self.user_messages:
            raise BadValue("a case says something to the agent; user_messages is empty", "user_messages")
        for position, message in enumerate(self.user_messages):
            if not message.strip():
                raise BadValue("a message to the agent says something; this one is empty", "user_messages", position)
        force_setattr(self, "expected_trajectory", _made(self.expected_trajectory, ExpectedTrajectory))
        force_setattr(self, "expected_response", _made(self.expected_response, ResponseCriteria))
        force_setattr(self, "budget", _made(self.budget, CaseBudget))
        force_setattr(self, "judge", _made(self.judge, JudgeRubric))
        force_setattr(self, "expected_files", tuple([_made(file, ExpectedFile) for file in self.expected_files]))
        if self.evaluators is not None:
            force_setattr(self, "evaluators", _strings(self.evaluators, "evaluators"))
        setup = {checked_path(path, "setup", path): content for path, content in self.setup.items()}
        for path in setup:
            parent = path
            while "/" in parent:
                parent = parent.rpartition("/")[0]
                if parent in setup:
                    raise BadValue(f"{parent} cannot be a file and the folder of {path}", "setup", path)
        force_setattr(self, "setup", frozen_json(setup))
        force_setattr(self, "metadata", frozen_json(dict(self.metadata)))

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the case says: another one is another case."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


class EvalSet(Value, frozen=True, forbid_unknown_fields=True):
    """Cases that are run together. Raises `ValueError` for ids that occur twice."""

    id: Annotated[Identifier, Meta(description="Names the set and the folder of its results.")]
    name: Annotated[str, Meta(description="For people.")]
    cases: Annotated[tuple[EvalCase, ...], Meta(min_length=1)]
    description: str = ""

    if TYPE_CHECKING:

        def __init__(
            self,
            id: str,  # noqa: A002
            name: str,
            cases: Sequence[EvalCase | Mapping[str, Any]],
            description: str = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        _check_id(self.id, "set")
        cases: Sequence[Any] = self.cases
        force_setattr(self, "cases", tuple([_made(case, EvalCase) for case in cases]))
        seen: set[str] = set()
        for position, case in enumerate(self.cases):
            if case.id in seen:
                raise BadValue(f"the id {case.id!r} occurs twice; give every case its own", "cases", position, "id")
            seen.add(case.id)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the set says."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


# -- what several of them check ----------------------------------------------------------------------------------


def checked_path(path: str, *at: str | int) -> str:
    """A path beneath a folder, with single forward slashes. Raises `BadValue` for one that leads elsewhere."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith(("/", "~")) or "\\" in path or "\0" in path or re.match(r"[A-Za-z]:", path):
        raise BadValue(f"{path!r} does not lie in the case's folder: give a relative path with forward slashes", *at)
    if ".." in parts:
        raise BadValue(f"{path!r} leads out of the case's folder", *at)
    if not parts or path.endswith("/"):
        raise BadValue(f"{path!r} names no file", *at)
    return "/".join(parts)


def _check_id(value: str, what: str) -> None:
    if not value.strip() or value != value.strip() or len(value) > _LONGEST_ID or not value.isprintable():
        raise BadValue(
            f"{value[:80]!r} cannot be the id of a {what}: give 1 to {_LONGEST_ID} printable characters on one line",
            "id",
        )
    if what == "set" and (value in (".", "..") or re.search(r"[/\\]", value)):
        raise BadValue(f"{value!r} cannot be the id of a set: its results lie in a folder of that name", "id")


def _check_pattern(pattern: str | None) -> None:
    if pattern is None:
        return
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        said = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise BadValue(f"the regular expression {pattern[:80]!r} is invalid: {said}", "regex") from error


def _check_schema(schema: dict[str, Any] | None) -> None:
    if schema is None:
        return
    from swink_agent.core.schemas.validation import compile_schema

    try:
        compile_schema(schema)
    except ValueError as error:
        raise BadValue(f"the JSON Schema is invalid: {str(error).partition(': ')[2]}", "schema") from error


def _strings(given: object, name: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise BadValue(f"{name} is a single text; give a list of them", name)
    values = tuple(cast("Sequence[Any]", given))
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise BadValue(f"{name} holds a {type(value).__name__}; it is a list of texts", name, position)
    return values


def _made(given: Any, kind: type[T]) -> T | None:
    """The value itself, or one made of the dict that a file would hold."""
    if given is None or isinstance(given, kind):
        return given
    return msgspec.convert(given, kind)
