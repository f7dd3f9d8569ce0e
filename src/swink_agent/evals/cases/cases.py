"""The cases of a set: what the agent is asked, and what is expected of it.

Owns the values and their validation, whether they come from Python or from a file. `loading` reads files, `types` has
the results of running a case, `scoring` compares results with expectations.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from swink_agent.core.values.checks import a_kind
from swink_agent.core.values.data import as_json_data
from swink_agent.core.values.decoders import converted
from swink_agent.core.values.several import several_texts
from swink_agent.core.values.value import Choice, Value

_LONGEST_ID = 128
_LONGEST_TAG = 60
T = TypeVar("T", bound=Struct)

Identifier = Annotated[str, Meta(min_length=1, max_length=_LONGEST_ID)]
Amount = Annotated[float, Meta(ge=0)]
Part = Annotated[float, Meta(ge=0, le=1)]
Duration = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Votes = Annotated[int, Meta(ge=1, le=99)]


class BadValue(ValueError):
    """A value is invalid. `at` is the path to it, so that a loader can report its line."""

    def __init__(self, message: str, *at: str | int) -> None:
        super().__init__(message)
        self.at = at


class TrajectoryMatch(Choice):
    """How the agent's calls are compared with the expected ones."""

    IN_ORDER = "in_order"
    """The expected calls in order; others may be between them."""
    EXACT = "exact"
    """The expected calls in order, and no others."""
    ANY_ORDER = "any_order"
    """The expected calls in any order; others may be among them."""


class Verdict(Choice):
    """How the attempts at a case become one verdict. Attempts that were not measured are ignored."""

    ALL = "all"
    """Every attempt passes."""
    ANY = "any"
    """At least one attempt passes."""
    MAJORITY = "majority"
    """More than half of the attempts pass."""
    MEAN = "mean"
    """For each metric, the mean over the attempts reaches the threshold; an attempt with an error counts as 0."""


class SimilarityMeasure(Choice):
    """How the similarity of two texts is computed, from 0 to 1. Case and punctuation are ignored."""

    WORDS = "words"
    """F1 over the words in any order: twice the common words over the words of both."""
    SEQUENCE = "sequence"
    """ROUGE-L: the same over the longest common subsequence of words."""


class ExpectedCall(Value, frozen=True, forbid_unknown_fields=True):
    """A call that the agent should make."""

    name: Annotated[str, Meta(min_length=1, description="The tool's name.")]
    arguments: Annotated[
        dict[str, Any] | None,
        Meta(description="The arguments, compared as JSON. If left out, any fit; {} is a call without arguments."),
    ] = None

    def __post_init__(self) -> None:
        _check_texts(self, "name")
        if not self.name:
            raise BadValue("a call needs the name of a tool", "name")
        if self.arguments is not None and not isinstance(self.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadValue(f"arguments is {a_kind(self.arguments)}; give a dict, or leave it out", "arguments")
        force_setattr(self, "arguments", as_json_data(self.arguments))


class ExpectedTrajectory(Value, frozen=True, forbid_unknown_fields=True):
    """The calls that the agent should make, and how strictly they are compared."""

    calls: Annotated[tuple[ExpectedCall, ...], Meta(description="The calls; an empty list expects none.")]
    match: Annotated[
        TrajectoryMatch, Meta(description="in_order (the default), exact (and no other calls) or any_order.")
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
    """What the agent's last reply should be: exactly one of the six kinds."""

    later_fields: ClassVar = ("number", "tolerance", "similar", "threshold", "measure")
    kinds: ClassVar = ("exact", "contains", "regex", "schema", "number", "similar")

    exact: Annotated[str | None, Meta(description="The exact text of the reply.")] = None
    contains: Annotated[str | None, Meta(description="A text that the reply contains.")] = None
    regex: Annotated[
        str | None, Meta(description="A Python regular expression, searched in the reply in limited time.")
    ] = None
    schema: Annotated[
        dict[str, Any] | None, Meta(description="A JSON Schema for the reply, which is read as JSON.")
    ] = None
    number: Annotated[float | None, Meta(description="The last number in the reply.")] = None
    tolerance: Annotated[Amount | None, Meta(description="The allowed difference from the number. Default: 0.")] = None
    similar: Annotated[str | None, Meta(description="A text that the reply should be similar to.")] = None
    threshold: Annotated[Part | None, Meta(description="The least similarity. Default: 0.8.")] = None
    measure: Annotated[
        SimilarityMeasure | None, Meta(description="words (F1 over words, the default) or sequence (ROUGE-L).")
    ] = None

    def __post_init__(self) -> None:
        _check_texts(self, "exact", "contains", "regex", "similar", or_none=True)
        _check_numbers(self, "number", "tolerance", "threshold")
        given = [name for name in self.kinds if getattr(self, name) is not None]
        if len(given) != 1:
            said = f"has {', '.join(given)}" if given else "is empty"
            raise BadValue(f"a response criterion {said}; give one of {', '.join(self.kinds)}", *given[1:2])
        for name, kind in (("tolerance", "number"), ("threshold", "similar"), ("measure", "similar")):
            if getattr(self, name) is not None and kind != given[0]:
                raise BadValue(f"{name} belongs to {kind}, but the criterion is {given[0]}; leave it out", name)
        for name in ("number", "tolerance"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and (name == "number" or value >= 0)):
                raise BadValue(f"{name} is {value}; give a finite number", name)
            force_setattr(self, name, None if value is None else float(value))
        if self.similar is not None and not re.search(r"\w", self.similar):
            raise BadValue("similar must be a text with at least one word", "similar")
        if self.threshold is not None:
            _check_threshold(self, self.threshold)
        if self.measure is not None:
            force_setattr(self, "measure", SimilarityMeasure(self.measure))
        _check_pattern(self.regex)
        _check_schema(self.schema)
        force_setattr(self, "schema", as_json_data(self.schema))


class ExpectedFile(Value, frozen=True, forbid_unknown_fields=True):
    """A file that should be in the case's folder at the end, with any content if none is given."""

    path: Annotated[str, Meta(min_length=1, description="Relative to the case's folder, with forward slashes.")]
    content: Annotated[str | None, Meta(description="The exact content.")] = None
    regex: Annotated[
        str | None, Meta(description="A Python regular expression, searched in the file in limited time.")
    ] = None

    def __post_init__(self) -> None:
        _check_texts(self, "path")
        _check_texts(self, "content", "regex", or_none=True)
        force_setattr(self, "path", checked_path(self.path, "path"))
        if self.content is not None and self.regex is not None:
            raise BadValue("an expected file has content and regex; give one of them", "regex")
        _check_pattern(self.regex)


class CaseBudget(Value, frozen=True, forbid_unknown_fields=True):
    """The most that a case may use; `None` sets no limit."""

    cost: Annotated[Amount | None, Meta(description="US dollars.")] = None
    tokens: Annotated[Count | None, Meta(description="Tokens in and out, including cached ones.")] = None
    turns: Annotated[Positive | None, Meta(description="Replies of the model; also the ideal for efficiency.")] = None
    seconds: Annotated[Duration | None, Meta(description="From the first message to the last reply.")] = None

    def __post_init__(self) -> None:
        _check_numbers(self, "cost", "seconds")
        _check_numbers(self, "tokens", "turns", are_whole=True)
        for name in self.__struct_fields__:
            limit = getattr(self, name)
            least = 1 if name == "turns" else 0
            if limit is not None and not (least <= limit < float("inf")):
                raise BadValue(f"a budget of {limit} {name} is impossible; give a number from {least} up", name)
        if self.seconds == 0:
            raise BadValue("a budget of 0 seconds is impossible; give more", "seconds")
        for name in ("cost", "seconds"):  # 1 and 1.0 must have the same digest
            limit = getattr(self, name)
            force_setattr(self, name, None if limit is None else float(limit))


class NamedRubric(Value, frozen=True, forbid_unknown_fields=True):
    """One of several rubrics by which a model judges the agent's work."""

    name: Annotated[str, Meta(min_length=1, max_length=60, description="Its score is called judge.NAME.")]
    rubric: Annotated[str, Meta(min_length=1, description="What is good and what is bad, in words.")]
    weight: Annotated[float, Meta(gt=0, description="How much it counts in the mean.")] = 1.0
    threshold: Annotated[
        Part | None, Meta(description="The score that this rubric must reach. If left out, only the mean decides.")
    ] = None

    def __post_init__(self) -> None:
        _check_texts(self, "name", "rubric")
        _check_numbers(self, "weight", "threshold")
        if not self.name.strip() or not self.name.isprintable():
            raise BadValue("a rubric among several needs a name of printable characters", "name")
        if not self.rubric.strip():
            raise BadValue("a rubric must say what is good and what is bad; this one is empty", "rubric")
        if not 0 < self.weight < math.inf:
            raise BadValue(f"weight is {self.weight}; give a number above 0", "weight")
        force_setattr(self, "weight", float(self.weight))
        if self.threshold is not None:
            _check_threshold(self, self.threshold)


class JudgeRubric(Value, frozen=True, forbid_unknown_fields=True):
    """The rubric by which a model judges the agent's work, or several rubrics with names and weights."""

    later_fields: ClassVar = ("rubrics",)

    rubric: Annotated[str, Meta(description="What is good and what is bad, in words.")] = ""
    threshold: Annotated[float, Meta(ge=0, le=1, description="The least score with which the case passes.")] = 0.5
    votes: Annotated[
        Votes | None, Meta(description="How often the model is asked. Default: as the evaluator says (3).")
    ] = None
    rubrics: Annotated[
        tuple[NamedRubric, ...], Meta(description="Several rubrics instead of one; their weighted mean counts.")
    ] = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            rubric: str = ...,
            threshold: float = ...,
            votes: int | None = ...,
            rubrics: Sequence[NamedRubric | Mapping[str, Any]] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        _check_texts(self, "rubric")
        _check_numbers(self, "threshold")
        _check_numbers(self, "votes", are_whole=True)
        force_setattr(self, "rubrics", tuple([_made(rubric, NamedRubric) for rubric in self.rubrics]))
        if self.rubrics and self.rubric:
            raise BadValue("a judge has both rubric and rubrics; give one of them", "rubrics")
        if not self.rubrics and not self.rubric.strip():
            raise BadValue("a rubric must say what is good and what is bad; this one is empty", "rubric")
        names = [rubric.name for rubric in self.rubrics]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise BadValue(f"two rubrics are called {name!r}; give each its own name", "rubrics", position, "name")
        _check_threshold(self, self.threshold)
        if self.votes is not None and not 1 <= self.votes <= 99:
            raise BadValue(f"votes is {self.votes}; ask for 1 to 99", "votes")


class EvalCase(Value, frozen=True, forbid_unknown_fields=True):
    """One task for an agent, and what is expected of it.

    The parts may be given as plain dicts, as in a file. Raises `ValueError` for invalid values.
    """

    later_fields: ClassVar = ("tags", "verdict")

    id: Annotated[Identifier, Meta(description="Unique in the set; printable characters on one line.")]
    name: Annotated[str, Meta(description="For people.")]
    user_messages: Annotated[
        tuple[str, ...], Meta(min_length=1, description="Sent in turn, each after the last answer.")
    ]
    system_prompt: Annotated[str, Meta(description="The agent's instructions. If empty, the factory decides.")] = ""
    description: str = ""
    expected_trajectory: Annotated[
        ExpectedTrajectory | None, Meta(description="The tool calls that the agent should make.")
    ] = None
    expected_response: Annotated[ResponseCriteria | None, Meta(description="What the last reply should be.")] = None
    expected_files: Annotated[
        tuple[ExpectedFile, ...], Meta(description="Files that should be in the case's folder at the end.")
    ] = ()
    budget: Annotated[CaseBudget | None, Meta(description="The most that the case may use.")] = None
    judge: Annotated[JudgeRubric | None, Meta(description="By what a model judges the agent's work.")] = None
    evaluators: Annotated[
        tuple[str, ...] | None, Meta(description="Names of the evaluators that count. If left out, all that apply.")
    ] = None
    setup: Annotated[
        dict[str, str], Meta(description="Files to put into the case's folder first: path to content.")
    ] = {}
    metadata: Annotated[dict[str, Any], Meta(description="Any other data of the case.")] = {}
    tags: Annotated[tuple[str, ...], Meta(description="Words to select cases by; each has its own figures.")] = ()
    verdict: Annotated[
        Verdict | None, Meta(description="How several attempts become one verdict: all, any, majority or mean.")
    ] = None

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
            tags: Sequence[str] = ...,
            verdict: Verdict | str | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        _check_id(self.id, "case")
        _check_texts(self, "name", "system_prompt", "description")
        force_setattr(self, "user_messages", _strings(self.user_messages, "user_messages"))
        if not self.user_messages:
            raise BadValue("user_messages is empty; give at least one message", "user_messages")
        for position, message in enumerate(self.user_messages):
            if not message.strip():
                raise BadValue("a message is empty; give it a text", "user_messages", position)
        force_setattr(self, "expected_trajectory", _made(self.expected_trajectory, ExpectedTrajectory))
        force_setattr(self, "expected_response", _made(self.expected_response, ResponseCriteria))
        force_setattr(self, "budget", _made(self.budget, CaseBudget))
        force_setattr(self, "judge", _made(self.judge, JudgeRubric))
        force_setattr(self, "expected_files", tuple([_made(file, ExpectedFile) for file in self.expected_files]))
        if self.evaluators is not None:
            force_setattr(self, "evaluators", _strings(self.evaluators, "evaluators"))
        setup: dict[str, str] = {}
        for path, content in _json_object(self.setup, "setup").items():
            place = checked_path(path, "setup", path)
            if place in setup:
                raise BadValue(f"{place} occurs twice, once as {path!r}; keep one of them", "setup", path)
            if not isinstance(content, str):
                raise BadValue(f"the content of {place} is {a_kind(content)}; give a text", "setup", path)
            setup[place] = content
        for path in setup:
            parent = path
            while "/" in parent:
                parent = parent.rpartition("/")[0]
                if parent in setup:
                    raise BadValue(f"{parent} cannot be a file and the folder of {path}", "setup", path)
        force_setattr(self, "setup", as_json_data(setup))
        force_setattr(self, "metadata", as_json_data(_json_object(self.metadata, "metadata")))
        force_setattr(self, "tags", tuple(dict.fromkeys(_strings(self.tags, "tags"))))
        for position, tag in enumerate(self.tags):
            if not tag or tag != tag.strip() or len(tag) > _LONGEST_TAG or "," in tag or not tag.isprintable():
                told = f"give 1 to {_LONGEST_TAG} printable characters without a comma"
                raise BadValue(f"{tag[:80]!r} cannot be a tag: {told}", "tags", position)
        if self.verdict is not None:
            force_setattr(self, "verdict", Verdict(self.verdict))

    @property
    def digest(self) -> str:
        """SHA-256 of the whole case: equal cases have equal digests."""
        return hashlib.sha256(_said(self)).hexdigest()


class EvalSet(Value, frozen=True, forbid_unknown_fields=True):
    """Cases that are run together. Raises `ValueError` if an id occurs twice."""

    later_fields: ClassVar = ("verdict",)

    id: Annotated[Identifier, Meta(description="Names the set and the folder of its results.")]
    name: Annotated[str, Meta(description="For people.")]
    cases: Annotated[tuple[EvalCase, ...], Meta(min_length=1)]
    description: str = ""
    verdict: Annotated[
        Verdict | None, Meta(description="How several attempts become one verdict, unless the case or the run says it.")
    ] = None

    if TYPE_CHECKING:

        def __init__(
            self,
            id: str,  # noqa: A002
            name: str,
            cases: Sequence[EvalCase | Mapping[str, Any]],
            description: str = ...,
            verdict: Verdict | str | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        _check_id(self.id, "set")
        _check_texts(self, "name", "description")
        cases: Sequence[Any] = self.cases
        force_setattr(self, "cases", tuple([_made(case, EvalCase) for case in cases]))
        seen: set[str] = set()
        for position, case in enumerate(self.cases):
            if case.id in seen:
                raise BadValue(f"the id {case.id!r} occurs twice; give every case its own", "cases", position, "id")
            seen.add(case.id)
        if self.verdict is not None:
            force_setattr(self, "verdict", Verdict(self.verdict))

    @property
    def digest(self) -> str:
        """SHA-256 of the whole set."""
        return hashlib.sha256(_said(self)).hexdigest()

    def tagged(self, tags: str | Iterable[str] = (), not_tags: str | Iterable[str] = ()) -> EvalSet:
        """The set with only the cases that have one of `tags` (if none are given: any) and none of `not_tags`.

        Raises `ValueError` for a tag that no case has, and if no case is left.
        """
        wanted = frozenset(several_texts(tags, "tagged(tags=…)"))
        unwanted = frozenset(several_texts(not_tags, "tagged(not_tags=…)"))
        known = {tag for case in self.cases for tag in case.tags}
        for tag in sorted((wanted | unwanted) - known):
            there = f"there are {', '.join(sorted(known))}" if known else "no case has a tag"
            raise ValueError(f"no case of {self.id!r} has the tag {tag!r}; {there}")
        cases = [case for case in self.cases if not wanted or not wanted.isdisjoint(case.tags)]
        cases = [case for case in cases if unwanted.isdisjoint(case.tags)]
        if not cases:
            raise ValueError(f"no case of {self.id!r} has one of the chosen tags and none of the excluded ones")
        return replace(self, cases=tuple(cases))


# -- validation ----------------------------------------------------------------------------------------------


def checked_path(path: str, *at: str | int) -> str:
    """A path inside a folder, with single forward slashes. Raises `BadValue` for one that leads out of it."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith(("/", "~")) or "\\" in path or "\0" in path or re.match(r"[A-Za-z]:", path):
        raise BadValue(f"{path!r} is not in the case's folder: give a relative path with forward slashes", *at)
    if ".." in parts:
        raise BadValue(f"{path!r} leads out of the case's folder", *at)
    if not parts or path.endswith("/"):
        raise BadValue(f"{path!r} names no file", *at)
    return "/".join(parts)


def _said(value: Struct) -> bytes:
    """The bytes of a value for its digest: JSON of its fields in order.

    Fields that were added after the first version are left out if they have their default, so that a case keeps the
    digest that runs of earlier versions recorded.
    """
    later: Sequence[str] = getattr(type(value), "later_fields", ())
    defaults = dict(zip(reversed(value.__struct_fields__), reversed(value.__struct_defaults__), strict=False))
    parts: list[bytes] = []
    for name in value.__struct_fields__:
        item = getattr(value, name)
        if name in later and item == defaults[name]:
            continue
        if isinstance(item, Struct):
            data = _said(item)
        elif isinstance(value, EvalSet) and name == "cases":
            data = b"[%b]" % b",".join([_said(case) for case in item])
        else:
            data = msgspec.json.encode(item, order="deterministic")
        parts.append(b'"%b":%b' % (name.encode(), data))
    return b"{%b}" % b",".join(parts)


def _check_threshold(criteria: ResponseCriteria | NamedRubric | JudgeRubric, threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise BadValue(f"threshold is {threshold}; it must be between 0 and 1", "threshold")
    force_setattr(criteria, "threshold", float(threshold))


def _check_id(value: str, what: str) -> None:
    if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadValue(f"the id of a {what} is {a_kind(value)}; give a text", "id")
    if not value.strip() or value != value.strip() or len(value) > _LONGEST_ID or not value.isprintable():
        told = f"give 1 to {_LONGEST_ID} printable characters on one line"
        raise BadValue(f"{value[:80]!r} cannot be the id of a {what}: {told}", "id")
    if what == "set" and (value in (".", "..") or re.search(r"[/\\]", value)):
        raise BadValue(f"{value!r} cannot be the id of a set: its results are in a folder of that name", "id")


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
    from swink_agent.core.schemas.validation import InvalidSchema, compile_schema

    try:
        compile_schema(schema)
    except InvalidSchema as error:
        raise BadValue(f"the JSON Schema is invalid: {error.reason}", "schema") from error


def _check_texts(value: Struct, *names: str, or_none: bool = False) -> None:
    """Raises `BadValue` for other kinds: msgspec checks them in files only, and a run with one could not be loaded."""
    for name in names:
        item: object = getattr(value, name)
        if not isinstance(item, str) and not (or_none and item is None):
            raise BadValue(f"{name} is {a_kind(item)}; give a text", name)


def _check_numbers(value: Struct, *names: str, are_whole: bool = False) -> None:
    """As `_check_texts`. `None` is accepted."""
    for name in names:
        item: object = getattr(value, name)
        if item is not None and (isinstance(item, bool) or not isinstance(item, int if are_whole else (int, float))):
            raise BadValue(f"{name} is {a_kind(item)}; give a {'whole ' if are_whole else ''}number", name)


def _json_object(given: object, name: str) -> dict[str, Any]:
    """A mapping from texts as a dict. Raises `BadValue` for anything else, and for what is not JSON."""
    if not isinstance(given, Mapping):
        raise BadValue(f"{name} is {a_kind(given)}; give a dict", name)
    data = dict(cast("Mapping[Any, Any]", given))
    for key in data:
        if not isinstance(key, str):
            raise BadValue(f"{name} has {a_kind(key)} as a key; give texts", name)
    try:
        msgspec.json.encode(data)
    except UnicodeEncodeError:
        pass  # half of a character, which reports replace
    except (TypeError, ValueError, RecursionError) as error:
        raise BadValue(f"{name} is not JSON: {error}", name) from error
    return data


def _strings(given: object, name: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise BadValue(f"{name} is a single text; give a list of them", name)
    values = tuple(cast("Sequence[Any]", given))
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise BadValue(f"{name} contains {a_kind(value)}; give a list of texts", name, position)
    return values


def _made(given: Any, kind: type[T]) -> T | None:
    """The value itself, or one converted from a plain dict."""
    return given if given is None or isinstance(given, kind) else converted(given, kind)
