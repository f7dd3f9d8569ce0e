"""Every public value: can be made, shared, pickled and shown, and cannot be changed.

A public struct or exception that has no sample here fails the first test.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
from collections.abc import AsyncIterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

import swink_agent
from swink_agent import (
    Aborted,
    AgentContext,
    AgentEnd,
    AgentError,
    AgentLoopConfig,
    AgentResult,
    AgentStart,
    AgentToolResult,
    AlreadyRunning,
    Approve,
    ApproveWith,
    AssistantMessage,
    AssistantMessageEvent,
    AuthError,
    Base64Image,
    CallRecord,
    CompactionReport,
    ContentFiltered,
    ContextCompacted,
    ContextWindowOverflow,
    Cost,
    CustomMessage,
    Defer,
    DelegateEvent,
    Document,
    ErrorKind,
    Extension,
    FileImage,
    Grant,
    Image,
    Inject,
    InvalidContinue,
    MessageEnd,
    MessageRetry,
    MessagesInjected,
    MessageStart,
    MessageUpdate,
    MissingDeps,
    ModelFallback,
    ModelRequest,
    ModelSpec,
    ModelThrottled,
    NetworkError,
    NoMessages,
    NotPending,
    PendingCall,
    PolicyContext,
    PolicyFailed,
    PolicyStop,
    PolicyStopped,
    ProposedCall,
    ProviderMismatch,
    Redactor,
    Reject,
    Skip,
    Stop,
    StopReason,
    StreamDone,
    StreamError,
    StreamFailed,
    StreamOptions,
    StreamStart,
    StructuredOutputFailed,
    StructuredResult,
    TaskEnded,
    TaskStarted,
    Text,
    TextDelta,
    TextEnd,
    TextStart,
    Thinking,
    ThinkingBudgets,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingLevel,
    ThinkingStart,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolCall,
    ToolCallDeferred,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolError,
    ToolExecutionEnd,
    ToolExecutionRetry,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolOutcome,
    ToolResultMessage,
    TurnEnd,
    TurnEndReason,
    TurnRecord,
    TurnResumed,
    TurnStart,
    UnknownProvider,
    UrlImage,
    Usage,
    UsageAdded,
    UserMessage,
    tool,
)
from swink_agent.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion, Decision
from swink_agent.evals import (
    Attempt,
    CaseBudget,
    CaseResult,
    Comparison,
    EvalCase,
    EvalError,
    EvalGrid,
    EvalRun,
    EvalSet,
    EvalSetError,
    EvalStoreError,
    EvalTask,
    ExpectedCall,
    ExpectedFile,
    ExpectedTrajectory,
    Gate,
    GateResult,
    Invocation,
    JudgeRubric,
    NamedRubric,
    NotMeasured,
    Pair,
    Preference,
    Progress,
    ResponseCriteria,
    RunInfo,
    Score,
    Script,
    ScriptedCall,
    ScriptedReply,
    StoredTrajectory,
    ToolCallRecord,
    Verdict,
    Versions,
)
from swink_agent.evals import Summary as EvalSummary
from swink_agent.local import LocalModelError, LocalModelEvent, LocalState, Preset, StoredModel
from swink_agent.local.weights.presets import HubFile, IndexFile
from swink_agent.memory import (
    Divergence,
    LabelAdded,
    NoteAdded,
    ReplayReport,
    SearchHit,
    SessionAmbiguous,
    SessionDamaged,
    SessionError,
    SessionExists,
    SessionInfo,
    SessionInUse,
    SessionNotFound,
    SessionRecord,
    SessionStarted,
    TitleChanged,
    UnknownMessage,
    UnknownRecord,
)
from swink_agent.sandbox import (
    BackendReport,
    Name,
    ProcessLimits,
    Reached,
    SandboxClosed,
    SandboxError,
    SandboxProfile,
    SandboxUnavailable,
)
from swink_agent.tools import CheckpointError, TodoItem, WorkspaceError

SHORT = 400


class Notice(CustomMessage, tag="notice"):
    text: str


@tool
def look(where: str) -> str:
    """Looks."""
    return where


async def silent(model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[AssistantMessageEvent]:
    return
    yield


SPEC = ModelSpec("anthropic", "claude", ThinkingLevel.HIGH, ThinkingBudgets({ThinkingLevel.HIGH: 1024}))
CALL = ToolCall("call_1", "look", {"where": ["here", 1, None]}, None)
PICTURE = Image(Base64Image("image/png", "aGk="))
USER = UserMessage([Text("look"), PICTURE, Extension("x", {"y": [1]})], timestamp=1, origin="shell")
REPLY = AssistantMessage(
    [Thinking("hm", "signature"), Text("looking"), CALL],
    "anthropic",
    "claude",
    Usage(1, 2, 3, 4, 10, {"reasoning": 5}),
    Cost(0.5, total=0.5, extra={"search": 0.1}),
    StopReason.TOOL_USE,
    timestamp=2,
)
RESULT = ToolResultMessage("call_1", [Text("seen"), PICTURE], True, {"exit_code": 1}, "look", timestamp=3)

VALUES: list[msgspec.Struct] = [
    AgentContext("Be brief.", [USER, REPLY, RESULT], [look]),
    AgentEnd((USER, REPLY, Notice("a")), PolicyStop("budget", "spent"), AgentResult((USER, REPLY), StopReason.STOP)),
    AgentLoopConfig(model=SPEC, stream_fn=silent),
    AgentLoopConfig(
        model=SPEC, stream_fn=silent, stream_options=StreamOptions(temperature=0.5), fallbacks=[(SPEC, silent)]
    ),
    AgentResult(
        *((USER, REPLY), StopReason.STOP, Usage(1), Cost(0.5), "spent", None, PolicyStop("budget", "spent")),
        *(ErrorKind.NETWORK, {"a": [1]}, True, (), Usage(1), Cost(0.5)),
    ),
    AgentStart("run", "structured", {"type": "object"}, (USER,)),
    CallRecord(
        *("call_1", "look", {"where": "here"}, "approved", "mind", Grant("look", {"where": "here"}, {"in": "/"}), True),
        *(ToolOutcome.FAILED, "no", 0.5, AgentToolResult.error("no"), Usage(1), Cost(0.5)),
    ),
    DelegateEvent("call_1", "research", TurnStart(0)),
    TurnRecord((USER,), REPLY, (CallRecord("call_1", "look"),)),
    UsageAdded(Usage(1), Cost(0.5), "overflow"),
    StructuredResult(AgentResult((USER, REPLY), StopReason.STOP, value={"a": 1}, has_value=True), {"a": 1}, 2),
    AgentToolResult([Text("a"), PICTURE], {"x": 1}, True),
    Approve(),
    ApproveWith({"where": "there"}, "somewhere else"),
    REPLY,
    Base64Image("image/png", "aGk="),
    CompactionReport(1, 100, 50, True, Usage(1), Cost(0.5)),
    ContextCompacted(CompactionReport(1, 100, 50)),
    Cost(0.1, 0.2, 0.3, 0.4, 1.0, {"search": 0.5}),
    CustomMessage(),
    Notice("a"),
    Extension("x", {"y": [1, None]}),
    Document(Base64Image("application/pdf", "JVBERi0="), "report.pdf"),
    FileImage("/tmp/a.png", "image/png"),
    PICTURE,
    Inject([USER, "and this"]),
    MessageEnd(REPLY),
    MessageRetry(1, "busy", 1.5, Usage(1), Cost(0.5)),
    MessagesInjected((USER, Notice("a")), "steering"),
    MessageStart(),
    MessageUpdate(TextDelta(0, "a")),
    ModelFallback(SPEC, ModelSpec("a", "b"), "busy", Usage(1), Cost(0.5)),
    SPEC,
    ModelRequest("7", SPEC, AgentContext("Be brief.", (USER,)), StreamOptions(), Redactor, ErrorKind.NETWORK),
    PolicyContext(
        turn_index=1,
        messages=(USER, REPLY),
        usage=Usage(1),
        cost=Cost(0.5),
        state={"x": [1]},
        message=REPLY,
        tool_results=(RESULT,),
        model=ModelSpec("anthropic", "claude"),
        max_tokens=100,
        request_tokens=2000,
        run_id=7,
    ),
    PolicyStop("budget", "spent"),
    Reject("no"),
    Skip("not now"),
    Stop("enough"),
    StreamDone(StopReason.TOOL_USE, Usage(1), Cost(0.5), "model-2", "reply-1"),
    StreamFailed("busy", ErrorKind.THROTTLED, StopReason.ERROR, 1.5, Usage(1), Cost(0.5)),
    StreamOptions(temperature=0.5, max_tokens=10, api_key="key", headers={"a": "b"}, timeout=5.0, extra={"x": 1}),
    StreamStart(),
    Text("a"),
    TextDelta(0, "a"),
    TextEnd(0),
    TextStart(0),
    Thinking("hm", "signature"),
    ThinkingBudgets({ThinkingLevel.LOW: 512}),
    ThinkingDelta(0, "a"),
    ThinkingEnd(0, "signature"),
    ThinkingStart(0),
    ProposedCall("call_1", "look", {"where": "here"}, {"folder": "/home/ada"}, ("research",)),
    Grant("look", {"where": "here"}, {"folder": "/home/ada"}),
    Defer("ask Ada"),
    PendingCall("call_1", "look", {"where": "here"}, "external", "ask Ada", {"in": "/"}, ("research",), 3),
    ToolCallDeferred("call_1", "look", {"where": "here"}, "external", "ask Ada"),
    ToolExecutionRetry("call_1", "look", 1, "busy", 0.5),
    TaskStarted("b1", "make serve"),
    TaskEnded("b1", 3),
    TurnResumed(REPLY, (PendingCall("call_1", "look", {"where": "here"}),)),
    ToolApprovalRequested("call_1", "look", {"where": "here"}, {"in": "/"}),
    ToolApprovalResolved("call_1", "look", True, "why", "mind"),
    CALL,
    ToolCallDelta(0, "{"),
    ToolCallEnd(0),
    ToolCallStart(0, "call_1", "look"),
    ToolExecutionEnd(
        *("call_1", "look", AgentToolResult.error("no"), True, ToolOutcome.FAILED, "no", 0.5, {"where": "here"})
    ),
    ToolExecutionStart("call_1", "look", {"where": "here"}, {"in": "/"}),
    ToolExecutionUpdate("call_1", "look", AgentToolResult("half")),
    RESULT,
    TurnEnd(0, REPLY, (RESULT,), TurnEndReason.TOOLS_EXECUTED),
    TurnStart(0),
    UrlImage("https://example.org/a.png", "image/png"),
    Usage(1, 2, 3, 4, 10, {"reasoning": 5}),
    USER,
]

ERRORS: list[Exception] = [
    Aborted(),
    AgentError("anything"),
    AlreadyRunning(),
    AuthError("no key"),
    ContentFiltered("refused"),
    ContextWindowOverflow("claude"),
    InvalidContinue(),
    ModelThrottled("busy", model="claude", retry_after=1.5),
    NetworkError("gone"),
    NoMessages(),
    NotPending(["call_1"]),
    StreamError("broken", kind=ErrorKind.INVALID_REQUEST),
    StructuredOutputFailed(3, "x: not an integer", PolicyStop("budget", "spent")),
    PolicyStopped("budget", "spent"),
    PolicyFailed("audit", "post_turn", "KeyError: 'database'"),
    MissingDeps("lookup", "Deps"),
    ProviderMismatch("openai:gpt-5", "anthropic"),
    UnknownProvider("opnai"),
    ToolError("the file is locked"),
]

VALUES += [
    ApprovalAnswer(ApprovalChoice.ONCE, "fine", {"command": "ls"}),
    ApprovalQuestion(
        request=ProposedCall("call_1", "bash", {"command": "make"}),
        display="make",
        why="it is not on the list",
        warnings=("odd characters",),
        prefix="make",
        command="make",
        details={"path": "a"},
        shown=ProposedCall("call_1", "bash", {"command": "make"}),
        access={"network": ["example.org"]},
        reason="to fetch it",
    ),
    BackendReport(name="bubblewrap", works=True, reason="none", remedy="none"),
    Decision("ask", "it writes"),
    LocalModelEvent(LocalState.FETCHING, "small", "from the index", 1, 2),
    Preset(
        name="small",
        file="small.gguf",
        context_length=2048,
        licence="MIT",
        description="for tests",
        size=3,
        sha256="ab" * 32,
        hub=HubFile("owner/small", "small.gguf"),
        index=IndexFile((("small==1", ".gguf"),)),
        memory=4,
    ),
    Reached("example.org", 443, False, "is not allowed"),
    Name(".vimrc", "Vim", "when it starts", "protected"),
    ProcessLimits(processes=1, file_size=2, open_files=3, core=4),
    SandboxProfile(
        write=("/home/ada",),
        read=("/usr",),
        home=("/home/me/.cache",),
        hidden=("/root/.ssh",),
        protected=(".git/hooks",),
        opened=("/home/ada/.git/hooks",),
        network=True,
        hosts=("example.org",),
        environment={"PATH": "/bin"},
    ),
    StoredModel("small", Path("/models/small.gguf"), 3, True),
    LabelAdded("here", 3),
    NoteAdded("mood", {"good": [1]}),
    Divergence(position=3, expected=UserMessage("a", 1), actual=UserMessage("b", 1), reason="another", run=1),
    ReplayReport(divergence=Divergence(position=3), messages=3, total=4, runs=2),
    SearchHit(SessionInfo(id="20261115-172530-123-4f9c2a"), 3, "what was said"),
    SessionInfo(
        id="20261115-172530-123-4f9c2a",
        title="Sums",
        created=1,
        updated=2,
        cwd="/home/ada",
        model=SPEC,
        messages=3,
        usage=Usage(1),
        cost=Cost(0.5),
        parent="20261114-172530-123-4f9c2a",
        metadata={"who": "ada"},
        problems=("record 3 is missing",),
        damage=("record 3 is missing",),
    ),
    SessionRecord(1, 2, TitleChanged("Sums")),
    SessionStarted(id="a", created=1, cwd="/home/ada", title="Sums", metadata={"who": "ada"}, parent="b"),
    TitleChanged("Sums"),
    UnknownMessage({"role": "oracle", "says": "42"}),
    UnknownRecord("telepathy", {"of": [1]}),
]
ERRORS += [
    LocalModelError("no such model", model="small"),
    SessionAmbiguous("which?", path="/sessions"),
    SessionDamaged("nothing left", path="/sessions/a.jsonl"),
    SessionError("no room", path="/sessions/a.jsonl"),
    SessionExists("it is there", path="/sessions/a.jsonl"),
    SessionInUse("somebody has it", path="/sessions/a.jsonl"),
    SessionNotFound("no such", path="/sessions"),
    SandboxClosed(),
    SandboxError("no walls"),
    SandboxUnavailable(reports=[BackendReport(name="landlock", works=False, reason="old kernel")]),
    CheckpointError("no copy"),
    WorkspaceError("outside"),
]

CASE = EvalCase(
    "sum",
    "Adds",
    ["1+2?"],
    "Add.",
    "A sum",
    expected_trajectory=ExpectedTrajectory([ExpectedCall("add", {"a": 1})]),
    expected_response=ResponseCriteria(exact="3"),
    expected_files=[ExpectedFile("a.txt", content="3")],
    budget=CaseBudget(0.5, 100, 3, 9.0),
    judge=JudgeRubric("Is it 3?", votes=1),
    evaluators=["response"],
    setup={"b.txt": "1 2"},
    metadata={"owner": "ada"},
    tags=["sums"],
    verdict="any",
)
RUBRIC = NamedRubric("tone", "Is it kind?", 2.0, 0.5)
DONE = Invocation(
    messages=[USER],
    turns=1,
    tool_calls=[ToolCallRecord("add", {"a": 1}, "3", 0.1, True, call_id="call_1", turn=1)],
    response="3",
    usage=Usage(1),
    cost=Cost(0.5),
    seconds=0.1,
    error="stopped",
    folder=Path("/cases/sum"),
    stopped_by=PolicyStop("budget_guard", "no more"),
    error_kind=ErrorKind.NETWORK,
    value={"a": 1},
    has_value=True,
)
SCORED = Attempt(
    number=1,
    scores={"response": Score(1.0, 0.5, "it is 3", 0.1, 5)},
    error="stopped",
    usage=Usage(1),
    cost=Cost(0.5),
    turns=1,
    calls=1,
    seconds=0.1,
    started=1,
    versions=Versions("test:m", "0" * 64, {"add": "1" * 64}, "0.1.0"),
    chain=("2" * 64,),
    trajectory=DONE,
    case=CASE,
    tries=2,
    lost_cost=0.1,
    lost_tokens=3,
    is_measured=False,
)
ONE = CaseResult("sum", (SCORED,), "Adds", Verdict.ANY)
KEPT = EvalRun(
    "r",
    "sums",
    (ONE,),
    EvalSummary.of([ONE], 1.0),
    "Sums",
    "3" * 64,
    1,
    1,
    1,
    False,
    "4" * 64,
    "/results/r.json",
    Verdict.ANY,
    "small",
    "g",
    "q",
)
PAIR = Pair("sum", 1, "after", "It is 3.", 0.1, 5)
VALUES += [
    CASE,
    *(CASE.expected_trajectory, CASE.expected_response, CASE.expected_files[0], CASE.budget, CASE.judge),
    ExpectedCall("add", {"a": 1}),
    *(ResponseCriteria(contains="3"), ResponseCriteria(regex="3"), ResponseCriteria(schema={"type": "integer"})),
    ResponseCriteria(number=3, tolerance=0.1),
    ResponseCriteria(similar="It is 3", threshold=0.5, measure="sequence"),
    *(RUBRIC, JudgeRubric(rubrics=[RUBRIC])),
    ExpectedFile("a.txt", regex="3"),
    EvalSet("sums", "Sums", [CASE], "All of them", "any"),
    DONE,
    DONE.tool_calls[0],
    SCORED,
    SCORED.scores["response"],
    SCORED.versions,
    ONE,
    KEPT,
    EvalGrid("g", (KEPT,)),
    *(PAIR, Preference((PAIR,), ("other",))),
    EvalTask("r", "sums", CASE, 1),
    Progress(1, 2, 1, 0, 0.5, 1.0, 1, 2, 1, ("sum",), ONE, 1, "small"),
    RunInfo("r", "sums", "Sums", 1, EvalSummary.of([ONE], 1.0), 1, 1, False, "/results/r.json", "small", "g", "q"),
    StoredTrajectory("/results/r.json", 10, 20),
    EvalSummary.of([CaseResult("sum", (Attempt(1, {"x": Score(1.0, tokens=5)}, cost=Cost(total=1.0)),))], 1.0),
    EvalSummary(1, 1, 1, 1.0, 1, 1.0, 1, {"sums": EvalSummary(1)}),
    Comparison(
        **dict.fromkeys(("better", "worse", "same", "only_before", "only_after", "fixed", "broken"), ("sum",)),
        difference=0.1,
        low=0.05,
        high=0.2,
        is_significant=True,
        cases=5,
    ),
    Gate(0.9, 1.0, 60.0, EvalRun("r", "sums"), 0.8, 1),
    GateResult(False, ("no case was run",)),
    Script({"sum": ("3", ScriptedReply("3", "hm", (ScriptedCall("add", {"a": 1}),), "no", 1, 1, 0.1))}, "{}"),
    ScriptedReply("3", "hm", (ScriptedCall("add", {"a": 1}),), "no", 1, 1, 0.1),
    ScriptedCall("add", {"a": 1}),
    TodoItem("Read the code", "done"),
]
ERRORS += [
    EvalError("no"),
    EvalSetError("unknown field", path="/sets/a.yaml", line=3),
    NotMeasured("the judge is throttled"),
    EvalStoreError("is damaged", path="/results/r.json"),
]

MODULES = [
    swink_agent,
    *(
        import_module(f"swink_agent.{package}")
        for package in ("evals", "local", "memory", "policies", "sandbox", "tools")
    ),
]
PUBLIC = {name: getattr(module, name) for module in MODULES for name in module.__all__}
ENUMS: list[Any] = [value for value in PUBLIC.values() if inspect.isclass(value) and issubclass(value, Enum)]


def without_a_sample(namespace: Mapping[str, object]) -> list[str]:
    """The names of public structs and exceptions that the tables above do not know."""
    known = {type(sample) for sample in (*VALUES, *ERRORS)}
    return [
        name
        for name, value in namespace.items()
        if inspect.isclass(value) and issubclass(value, (msgspec.Struct, BaseException)) and value not in known
    ]


# -- the tables ------------------------------------------------------------------------------------------------


def test_every_public_struct_and_exception_has_a_sample() -> None:
    assert without_a_sample(PUBLIC) == []


def test_a_new_public_value_without_a_sample_would_be_noticed() -> None:
    class Newcomer(msgspec.Struct, frozen=True):
        name: str

    class NewError(Exception):
        pass

    assert without_a_sample({"Text": Text, "Newcomer": Newcomer, "NewError": NewError}) == ["Newcomer", "NewError"]


def test_the_samples_fill_every_field_that_can_be_left_out() -> None:
    """A sample with nothing in it would prove nothing about the field."""
    filled: dict[type, set[str]] = {}
    for sample in VALUES:
        names = filled.setdefault(type(sample), set())
        names |= {name for name in sample.__struct_fields__ if getattr(sample, name) not in (None, (), {}, "")}
    empty = {kind.__name__: set(kind.__struct_fields__) - names for kind, names in filled.items()}
    for kind in ("AgentLoopConfig", "AgentResult", "PolicyContext", "StreamOptions", "ToolCall", "AssistantMessage"):
        empty.pop(kind)  # hooks and failures, which have tests of their own
    assert {kind: names for kind, names in empty.items() if names} == {}


def _can_be_changed(value: object) -> bool:
    """Whether a default that all values share can be changed by one of them."""
    if isinstance(value, msgspec.Struct):
        held = [getattr(value, name) for name in value.__struct_fields__]
        return not value.__struct_config__.frozen or any(_can_be_changed(item) for item in held)
    if isinstance(value, tuple | frozenset):
        return any(_can_be_changed(item) for item in value)
    is_plain = value is None or isinstance(value, str | bytes | int | float | Enum) or callable(value)
    return not is_plain


PACKAGES = ("adapters", "approvals", "evals", "memory", "policies", "sandbox", "testing", "tools")


def test_no_two_values_share_a_default_that_can_be_changed() -> None:
    packages = [swink_agent, *[import_module(f"swink_agent.{package}") for package in PACKAGES]]
    kinds = {
        value for package in packages for name in dir(package) if inspect.isclass(value := getattr(package, name, None))
    }
    shared = [
        f"{kind.__name__}.{info.name}"
        for kind in kinds
        if issubclass(kind, msgspec.Struct)
        for info in msgspec.structs.fields(kind)
        if info.default is not msgspec.NODEFAULT and _can_be_changed(info.default)
    ]
    assert shared == []


# -- structs ---------------------------------------------------------------------------------------------------


def copies_of(value: Any) -> list[Any]:
    pickled = [pickle.loads(pickle.dumps(value, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    return [*pickled, copy.copy(value), copy.deepcopy(value)]


def test_every_value_equals_its_copies() -> None:
    unequal: list[str] = []
    for value in VALUES:
        for other in (*copies_of(value), msgspec.structs.replace(value)):
            assert type(other) is type(value)
            if other != value:
                unequal.append(f"{other!r} is not {value!r}")
    assert unequal == []


def test_no_value_can_be_changed() -> None:
    for value in VALUES:
        assert type(value).__struct_config__.frozen, value
        for name in (*value.__struct_fields__, "something_new"):
            with pytest.raises(AttributeError):
                setattr(value, name, None)
            with pytest.raises(AttributeError):
                delattr(value, name)


def test_every_value_shows_its_name_and_little_more() -> None:
    for value in VALUES:
        shown = repr(value)
        assert shown.startswith(type(value).__name__)
        assert len(shown) <= SHORT, shown
        assert "\n" not in shown, shown


def test_values_can_be_shared_between_threads() -> None:
    expected = [repr(value) for value in VALUES]
    barrier = threading.Barrier(4)
    seen: list[bool] = []

    def read() -> None:
        barrier.wait(30.0)
        for _ in range(5):
            seen.append([repr(value) for value in VALUES] == expected)
            seen.extend(copy.copy(value) == value for value in VALUES)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert len(seen) == 4 * 5 * (1 + len(VALUES))
    assert all(seen)


# -- exceptions ------------------------------------------------------------------------------------------------


def test_every_error_equals_its_copies_in_everything_that_shows() -> None:
    for error in ERRORS:
        for other in copies_of(error):
            assert type(other) is type(error)
            assert (str(other), repr(other), other.args) == (str(error), repr(error), error.args)
            assert vars(other) == vars(error)


def test_every_error_is_one_short_line() -> None:
    for error in ERRORS:
        assert 0 < len(str(error)) <= SHORT, error
        assert "\n" not in str(error), error
        assert type(error).__name__ in repr(error)


def test_a_result_with_an_error_in_it_can_be_pickled() -> None:
    result = AgentResult((USER,), StopReason.ERROR, error="busy", exception=ModelThrottled("busy", retry_after=1.5))
    other = pickle.loads(pickle.dumps(result))
    assert msgspec.structs.replace(other, exception=None) == msgspec.structs.replace(result, exception=None)
    with pytest.raises(ModelThrottled, match="busy") as caught:
        other.raise_for_error()
    assert caught.value.retry_after == 1.5


# -- enums -----------------------------------------------------------------------------------------------------


def test_the_list_of_public_enums_is_not_empty() -> None:
    assert {kind.__name__ for kind in ENUMS} >= {"StopReason", "ErrorKind", "ThinkingLevel", "TurnEndReason"}


@pytest.mark.table
@pytest.mark.parametrize("kind", ENUMS, ids=lambda kind: kind.__name__)
def test_the_members_of_an_enum_are_unique_and_are_strings_in_json(kind: Any) -> None:
    for member in kind:
        assert pickle.loads(pickle.dumps(member)) is member
        assert copy.deepcopy(member) is member
        assert member == member.value
        assert member.value == member.name.lower()
        assert msgspec.json.decode(msgspec.json.encode(member), type=kind) is member
        assert len(repr(member)) <= SHORT
        with pytest.raises(AttributeError):
            member.value = "changed"
