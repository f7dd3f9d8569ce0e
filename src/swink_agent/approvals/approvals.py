"""Asks a person before a tool runs, and remembers what the person trusts for this session.

`Approvals` is the `approve` callback of an `Agent`. `SessionTrust` holds what a person trusts, `ApprovalQuestion` what
they are asked. `commands/rules` decides which commands need no question, `display` how a call is shown. The core and
the tools check, before they act, that the approved call is the one that runs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast, get_args

import msgspec

from swink_agent.core.approval import (
    READS_ONLY,
    RUNS,
    UNKEPT,
    Approval,
    Approve,
    ApproveWith,
    Defer,
    PendingCall,
    ProposedCall,
    Reject,
)
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.values.checks import a_kind, is_function, is_not
from swink_agent.core.values.value import Choice, Value, copy_json
from swink_agent.rendering.escaping import display_warnings, safe_display
from swink_agent.rendering.texts.invisible import compatibility_form, is_deceptive

from .access import (
    access_of,
    access_warnings,
    asked_reason,
    asks_for_access,
    asks_no_more,
    changes_access,
    opened_hosts,
    place_of,
    run_warning,
    sentence_on,
    to_remember,
    what_opens,
)
from .call_rules import CallRules
from .commands.prefixes import prefix_covers, prefix_length
from .commands.rules import COMMAND_TOOLS, CommandRules, Decision
from .commands.shell_words import NotPlain, plain_words
from .display import render_request
from .modes import ApprovalsMode

_LOG = logging.getLogger("swink_agent")

_BY_RULES = ("smart", "auto")  # the modes in which rules and trust answer for a person
SAID_NO = "the user said no"
_NONE = "nothing that needs approval may run here (approvals are set to none)"
# Arguments that do not change what a command does.
_BESIDE_A_COMMAND = frozenset({"timeout", "background", "reason", "write"})
_CONFINING = frozenset({"bubblewrap", "landlock", "sandbox-exec"})
_WRITERS = frozenset({"write_file", "edit_file"})
_OF_TASKS = frozenset({"bash_output", "bash_stop"})
# Fields that do not describe where a call runs. Trust ignores them.
_BESIDE_A_PLACE = frozenset({"path", "version", UNKEPT, READS_ONLY})
# A file in one of these folders decides what other programs run: trust in a tool does not cover them.
_SETTINGS_FOLDERS = frozenset({".git", ".swink"})


class ApprovalChoice(Choice):
    """A person's answer."""

    ONCE = "once"
    """Yes, this call."""
    SESSION_TOOL = "session_tool"
    """Yes, and every call of this tool in this session."""
    SESSION_PREFIX = "session_prefix"
    """Yes, and every command in this session that begins with the words of `ApprovalQuestion.prefix`."""
    SESSION_ACCESS = "session_access"
    """Yes, and every command in this session that asks for no more than `ApprovalQuestion.access`."""
    ALWAYS = "always"
    """Yes, and the hosts of `ApprovalQuestion.access` are remembered for every command from now on."""
    NO = "no"


class ApprovalAnswer(Value, frozen=True):
    """An answer with a reason for the model, or with other arguments to run the call with."""

    hidden_fields = frozenset({"arguments"})

    choice: ApprovalChoice
    reason: str = ""
    arguments: dict[str, Any] | None = None


class ApprovalQuestion(Value, frozen=True, kw_only=True):
    """A call to decide on, ready to be shown: all texts but those of the request contain no hidden characters.

    `choices` are the answers that make sense; the others count as `once`. The request is as the model wrote it: show
    `display`, or `render()` for the whole call, and never the arguments.
    """

    request: ProposedCall
    display: str
    why: str
    warnings: tuple[str, ...] = ()
    prefix: str | None = None
    choices: tuple[ApprovalChoice, ...] = (
        ApprovalChoice.ONCE,
        ApprovalChoice.SESSION_TOOL,
        ApprovalChoice.SESSION_PREFIX,
        ApprovalChoice.NO,
    )
    command: str | None = None
    details: dict[str, Any] | None = None
    shown: ProposedCall | None = None
    """The request with secrets masked, if it has any."""
    can_wait: bool = False
    """Whether the call waits already and may continue to wait: then the answer `Defer` changes nothing."""
    access: dict[str, Any] | None = None
    """What opens beyond the sandbox, exactly: `network` (hosts, or true), `write` and `read` (folders), or `sandbox`
    (false: the command runs without one)."""
    reason: str = ""
    """Why the model asks for that access, in its words, in one line of at most 500 characters."""

    def __repr__(self) -> str:
        return f"ApprovalQuestion(request={self.request!r})"  # any shown text may contain a secret

    def render(self, limit: int | None = None) -> str:
        """The call as text, with at most `limit` characters of it, or all of it."""
        return render_request(self.shown or self.request, command=self.command, details=self.details, limit=limit)


AskFn: TypeAlias = Callable[
    [ApprovalQuestion],
    "ApprovalAnswer | ApprovalChoice | Defer | str | Awaitable[ApprovalAnswer | ApprovalChoice | Defer | str]",
]
PreviewFn: TypeAlias = Callable[[ProposedCall], "Mapping[str, Any] | None"]
RememberFn: TypeAlias = Callable[[list[str]], "Awaitable[None] | None"]


# -- trust ---------------------------------------------------------------------------------------------------


class SessionTrust:
    """The tools, command prefixes and access that a person trusts, for as long as this object lives.

    Trust applies only to requests with the same `scope` (folder and sandbox, without a file tool's `path` and
    `version`). A trusted prefix matches commands that consist of plain words only, if no option after it is known
    to run something else. Trust in a tool does not cover the files that decide what other programs run (`.git`,
    `.swink`). Calls that ask for access beyond the sandbox are covered by trust in such access alone. Thread-safe.
    """

    def __init__(self, *, tools: Mapping[str, str] = COMMAND_TOOLS) -> None:
        self._command_tools = dict(tools)
        self._lock = threading.Lock()
        self._tools: set[tuple[str, bytes]] = set()
        self._prefixes: set[tuple[str, tuple[str, ...], bytes]] = set()
        self._access: list[tuple[bytes, dict[str, Any]]] = []

    def __repr__(self) -> str:
        with self._lock:
            return f"<SessionTrust {len(self._tools)} tools, {len(self._prefixes)} command prefixes>"

    def trust_tool(self, name: str, *, scope: Mapping[str, Any] | None = None) -> None:
        """Lets calls of this tool within the scope run without a question from now on."""
        with self._lock:
            self._tools.add((name, _key(scope)))

    def trust_command(self, prefix: str, *, tool: str = "bash", scope: Mapping[str, Any] | None = None) -> None:
        """Lets commands that begin with these words run without a question from now on.

        Raises `ValueError` if the words are not a plain command.
        """
        try:
            words = plain_words(prefix)
        except NotPlain as problem:
            raise ValueError(f"{safe_display(prefix, 80)!r} cannot be trusted as a command: {problem}") from None
        with self._lock:
            self._prefixes.add((tool, words, _key(scope)))

    def trust_access(self, request: ProposedCall) -> None:
        """Lets calls that ask for no more access than this one run without a question, in its folder and sandbox."""
        place, access = place_of(request, self._command_tools.get(request.name, "")), access_of(request)
        if place is not None and access is not None:
            with self._lock:
                self._access.append((place, copy_json(access)))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that trusted access opens; `*` also stands for the whole network."""
        with self._lock:
            trusted = [access for _, access in self._access]
        return tuple(dict.fromkeys(host for access in trusted for host in opened_hosts(access)))

    def forget(self) -> None:
        """Ends all trust."""
        with self._lock:
            self._tools.clear()
            self._prefixes.clear()
            self._access.clear()

    def covers(self, request: ProposedCall) -> bool:
        """Whether the call is trusted, by tool, by prefix or by access, in its scope."""
        if request.name in self._command_tools and asks_for_access(request):
            place, access = place_of(request, self._command_tools[request.name]), access_of(request)
            if place is None or access is None:
                return False
            with self._lock:
                trusted = [each for where, each in self._access if where == place]
            return any(asks_no_more(access, each) for each in trusted)
        with self._lock:
            by_tool = (request.name, _key(request.scope)) in self._tools
        if by_tool and not _is_of_settings(request):
            return True
        command = _command(request, self._command_tools.get(request.name))
        if command is None:
            return False
        try:
            words = plain_words(command)
        except NotPlain:
            return False
        return any(prefix_covers(prefix, words) for prefix in self.prefixes(request))

    def prefixes(self, request: ProposedCall) -> list[tuple[str, ...]]:
        """The trusted first words of commands for this tool, in the scope of the request."""
        scope = _key(request.scope)
        with self._lock:
            return [words for tool, words, where in self._prefixes if tool == request.name and where == scope]


def _key(scope: Mapping[str, Any] | None) -> bytes:
    """The scope without the file: a tool is trusted with all files of its folder."""
    place = {key: value for key, value in (scope or {}).items() if key not in _BESIDE_A_PLACE}
    return msgspec.json.encode(place, order="sorted")


def _command(request: ProposedCall, argument: str | None) -> str | None:
    """The shell command of the call, if the call has no other arguments that matter."""
    if argument is None or not request.arguments.keys() <= {argument, *_BESIDE_A_COMMAND}:
        return None
    command = request.arguments.get(argument)
    return command if isinstance(command, str) else None


def _is_beneath_folder(scope: Mapping[str, Any]) -> bool:
    """Whether a file tool resolved the path, with its links, to a file of the folder."""
    folder, path = scope.get("folder"), scope.get("path")
    if not isinstance(folder, str) or not folder or not isinstance(path, str) or not path:
        return False
    return not path.startswith("/") and ".." not in path.split("/")


def _is_of_settings(request: ProposedCall) -> bool:
    return any(_is_in_settings(part.get("path")) for part in (request.arguments, request.scope))


def _is_in_settings(path: object) -> bool:
    if not isinstance(path, str):
        return False
    # A file system may ignore case, skip invisible characters, or use another Unicode form.
    shown = "".join(character for character in path if not is_deceptive(character))
    parts = compatibility_form(shown).casefold().split("/")
    return not _SETTINGS_FOLDERS.isdisjoint(parts)


# -- asking --------------------------------------------------------------------------------------------------


class _View(NamedTuple):
    """What a person is shown of a call."""

    shown: ProposedCall
    """The request with secrets masked."""
    details: dict[str, Any] | None
    """The preview, if there is one."""


class Approvals:
    """An `approve` callback: `Agent(..., approve=Approvals(ask))`.

    `ask(question)` shows an `ApprovalQuestion` to a person, sync or async, and returns an `ApprovalChoice`, an
    `ApprovalAnswer`, or `Defer` to answer later; anything else, and an exception, counts as no. Without `ask`, calls
    that need a question are rejected.

    `mode`: "smart" approves commands that a sandbox lets only read, and what the rules allow or the session trusts, and
    asks about the rest. "auto" also approves what can be taken back: commands whose scope names a back end that
    confines them, and files written beneath the folder; if the scope reports that no checkpoint can be kept, it is like
    "smart". "ask" asks about every call, "all" approves every call, "none" rejects every call. Deny rules reject in
    every mode. `calls` are rules for tools that do not take commands; they contain rules for commands too. `tools` maps
    tools that take a shell command to the argument with it. `preview` may return the details of a write before it
    happens (path, old, new, is_new), so that it is shown as a diff; it runs in a thread, and `tools.change_preview`
    makes one. `redactor` masks secrets.

    A command that asks for access beyond its sandbox is asked about in every mode but "none": no rule allows it, only
    trust of this session, which "ask" ignores. `remember(hosts)`, sync or async, stores hosts permanently; only
    with it, and if the call asks for hosts alone, is `always` an answer to such a question.

    Several agents may share one object; they may then ask at the same time.
    """

    def __init__(
        self,
        ask: AskFn | None = None,
        *,
        rules: CommandRules | None = None,
        trust: SessionTrust | None = None,
        mode: ApprovalsMode = "smart",
        tools: Mapping[str, str] = COMMAND_TOOLS,
        preview: PreviewFn | None = None,
        redactor: Redactor | None = None,
        calls: CallRules | None = None,
        remember: RememberFn | None = None,
    ) -> None:
        for name, hook in (("ask", ask), ("preview", preview), ("remember", remember)):
            if hook is not None and not is_function(hook):
                raise is_not(name, hook, "a function, or None")
        for name, given, kind in (("rules", rules, CommandRules), ("calls", calls, CallRules)):
            if given is not None and not isinstance(given, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise is_not(name, given, f"{kind.__name__}(…), or None")
        self.calls = calls
        self._remember = remember
        self.rules = rules or (CommandRules.standard() if calls is None else calls.commands)
        self.trust = SessionTrust(tools=tools) if trust is None else trust
        self._ask = ask
        self._tools = dict(tools)
        self._preview = preview
        self._redactor = redactor
        self._is_plain = preview is None and redactor is None  # then a view is made at once
        self.mode = mode

    def __repr__(self) -> str:
        return f"<Approvals {self.mode}{'' if self._ask else ', asks no one'}>"

    @property
    def mode(self) -> ApprovalsMode:
        """How calls are decided. A change applies to the calls that follow."""
        return self._mode

    @mode.setter
    def mode(self, mode: ApprovalsMode) -> None:
        if mode not in get_args(ApprovalsMode):
            raise ValueError(f"the mode of Approvals must be one of {', '.join(get_args(ApprovalsMode))}, not {mode!r}")
        self._mode: ApprovalsMode = mode

    async def __call__(self, request: ProposedCall) -> Approval | Defer:
        if self._is_plain and request.name not in self._tools:
            answer = self.prepare_approval(request)
        else:
            answer = await asyncio.to_thread(self.prepare_approval, request)
        return await answer() if callable(answer) else answer

    def prepare_approval(self, request: ProposedCall) -> Approval | Callable[[], Awaitable[Approval | Defer]]:
        """Applies the rules. Returns the answer, or, if the rules do not decide, a function that asks the person.

        An agent calls it in a thread, because the rules and the preview look at the disk.
        """
        decision = self._decide(request)
        answer = self._answer_without_asking(decision, request)
        if not isinstance(answer, str):
            return answer
        return partial(self._answer_by, decision, request, self._view(request))

    async def _answer_by(self, decision: Decision, request: ProposedCall, view: _View) -> Approval | Defer:
        answer = self._answer_without_asking(decision, request)  # again: mode and trust may have changed
        if self._ask is None or not isinstance(answer, str):
            return cast("Approval", answer)
        return await self._put(self._ask, request, answer, view)

    def _answer_without_asking(self, decision: Decision, request: ProposedCall) -> Approval | str:
        """Returns the answer of mode, rules and trust, or why the person must be asked."""
        mode = self._mode
        if mode == "none":
            return Reject(f"{_NONE}; do without it")
        if decision.verdict == "deny":
            return Reject(decision.reason)
        if self._asks_for_access(request):
            return self._decide_access(request)
        if RUNS in request.scope:
            return self._decide_name(request.scope[RUNS])
        if mode == "all":
            return Approve()
        if mode in _BY_RULES and self.trust.covers(request):
            return Approve()
        if mode in _BY_RULES and decision.verdict == "allow":
            return Approve(reads_only=decision.reads_only)
        why = decision.reason
        if mode == "auto" and self._is_confined(request):
            if UNKEPT not in request.scope:
                return Approve()
            why = f"no checkpoint can be kept, so it could not be taken back ({why})"
        if mode in _BY_RULES and request.scope.get(READS_ONLY) is True and self._is_confined_command(request):
            return Approve(reads_only=True)
        if self._ask is None:
            return Reject(f"{why}, and no one can answer a question here; {self._instead(request)}")
        return why

    def _instead(self, request: ProposedCall) -> str:
        """What a model can do if no one can be asked."""
        if request.name in self._tools and self._mode in _BY_RULES:
            if self._has_confining_back_end(request):
                return "use a command that only reads, without write, or another tool"
            return "use a command that the rules allow, alone and with plain words, or another tool"
        return "work without it, and say in the answer what is left to do"

    def _decide_name(self, name: object) -> Approval | str:
        """Decides on a file that a program runs by itself: the person is asked in every mode."""
        why = " ".join(_run_warnings(name)) or "it is not known which program runs the file"
        if self._ask is None:
            return Reject(f"a person must allow this, and no one can answer a question here; {why}")
        return why.partition(": ")[0]

    def _asks_for_access(self, request: ProposedCall) -> bool:
        return request.name in self._tools and asks_for_access(request)

    def _decide_access(self, request: ProposedCall) -> Approval | str:
        """Decides on access beyond the sandbox: the person is asked, unless the trust of this session covers it."""
        if self._mode != "ask" and self.trust.covers(request):
            return Approve()
        if self._ask is None:
            access = access_of(request)
            what = "" if access is None else f" ({what_opens(access)})"
            return Reject(
                f"a person must allow access beyond the sandbox{what}, and no one can answer a question here; work "
                "without it, and say in the answer what is left to do"
            )
        return ""

    def denial(self, call: PendingCall) -> str | None:
        """Returns why a deny rule or the mode "none" forbids a call that waits, or `None`. `resume` checks neither.

        The rules look at the disk: call it in a thread.
        """
        if self._mode == "none":
            return _NONE
        decision = self._decide(_proposed(call))
        return decision.reason if decision.verdict == "deny" else None

    async def ask_later(self, call: PendingCall) -> Approval | Defer:
        """Asks a person about a call that waits, and returns the answer for `resume`.

        Rejects a call that `denial` forbids. All others are asked about in every mode, because the caller wants a
        person to decide. Without `ask`, the call continues to wait.
        """
        denial = await asyncio.to_thread(self.denial, call)
        if denial is not None:
            return Reject(denial)
        if self._ask is None:
            return Defer(call.reason)
        why = safe_display(call.reason, 400) or "it waits for an approval"
        return await self._put(self._ask, _proposed(call), why, can_wait=True)

    async def _put(
        self, ask: AskFn, request: ProposedCall, why: str, view: _View | None = None, *, can_wait: bool = False
    ) -> Approval | Defer:
        """Asks the person and acts on the answer."""
        if view is None:
            view = self._view(request) if self._is_plain else await asyncio.to_thread(self._view, request)
        question = self._question(request, view.shown, why, self._mode, view.details)
        if can_wait:
            question = msgspec.structs.replace(question, can_wait=True)
        answer = await self._answer(ask, question)
        return answer if isinstance(answer, Defer) else await self._settle(request, question, answer)

    def _decide(self, request: ProposedCall) -> Decision:
        if self.calls is not None and (by_rule := self.calls.decide(request)) is not None:
            return by_rule
        argument = self._tools.get(request.name)
        if argument is None:
            return Decision("ask", f"{safe_display(request.name, 80)} needs approval")
        command = request.arguments.get(argument)
        if not isinstance(command, str):
            return Decision("ask", f"the call has no text in {argument}")
        folder = request.scope.get("folder")
        trusted = self.trust.prefixes(request) if self._mode in _BY_RULES else ()
        decision = self.rules.decide(command, folder=folder if isinstance(folder, str) else None, trusted=trusted)
        if decision.verdict != "allow":
            return decision
        if request.name in COMMAND_TOOLS and "server" in request.scope:
            name, server = safe_display(request.name, 80), safe_display(str(request.scope["server"]), 80)
            return Decision("ask", f"{name} is a tool of the MCP server {server}, which chose that name itself")
        beside = sorted(request.arguments.keys() - {argument, *_BESIDE_A_COMMAND})
        if beside:
            return Decision(
                "ask", f"the rules check {argument} only, and the call also has {safe_display(', '.join(beside), 80)}"
            )
        return decision

    def _is_confined(self, request: ProposedCall) -> bool:
        """Whether the call changes only what a checkpoint can bring back: in a sandbox, or beneath the folder."""
        if request.name in _OF_TASKS:
            return "server" not in request.scope  # an MCP server chooses the names of its tools itself
        if request.name in _WRITERS:
            return _is_beneath_folder(request.scope) and not _is_of_settings(request)
        return self._is_confined_command(request)

    def _is_confined_command(self, request: ProposedCall) -> bool:
        argument = self._tools.get(request.name)
        if argument is None or not isinstance(request.arguments.get(argument), str):
            return False
        is_plain = request.arguments.keys() <= {argument, *_BESIDE_A_COMMAND}
        return is_plain and self._has_confining_back_end(request)

    @staticmethod
    def _has_confining_back_end(request: ProposedCall) -> bool:
        backend = request.scope.get("backend")
        return isinstance(backend, str) and backend in _CONFINING

    def _question(
        self, request: ProposedCall, shown: ProposedCall, why: str, mode: ApprovalsMode, details: dict[str, Any] | None
    ) -> ApprovalQuestion:
        argument = self._tools.get(request.name)
        access = access_of(request) if self._asks_for_access(request) else None
        reason = asked_reason(shown.arguments) if self._asks_for_access(request) else ""
        prefix: str | None = None
        choices = [ApprovalChoice.ONCE]
        if self._asks_for_access(request):
            why = sentence_on(access_of(shown), reason)
            if access is not None and mode != "ask" and place_of(request, argument or "") is not None:
                choices.append(ApprovalChoice.SESSION_ACCESS)
            if access is not None and self._remember is not None and to_remember(access):
                choices.append(ApprovalChoice.ALWAYS)
        elif mode in _BY_RULES and RUNS not in request.scope:
            if not _is_of_settings(request):  # trust in a tool does not cover these
                choices.append(ApprovalChoice.SESSION_TOOL)
            command = _command(request, argument)
            if command is not None and (prefix := _suggested_prefix(command)) is not None:
                choices.append(ApprovalChoice.SESSION_PREFIX)
        return ApprovalQuestion(
            # A copy, so that changes to the question do not change what is approved and trusted.
            request=msgspec.structs.replace(
                request, arguments=copy_json(request.arguments), scope=copy_json(request.scope)
            ),
            display=render_request(shown, command=argument, details=details),
            why=why,
            warnings=(
                *(access_warnings(access) if access is not None else ()),
                *_run_warnings(request.scope.get(RUNS)),
                *_warnings(request),
            ),
            prefix=prefix,
            choices=(*choices, ApprovalChoice.NO),
            command=argument,
            details=details,
            shown=None if shown is request else shown,
            access=copy_json(access),
            reason=reason,
        )

    def _view(self, request: ProposedCall) -> _View:
        """Makes the view in a thread: the preview may read and compare a whole file, and masking takes time too."""
        details: dict[str, Any] | None = None
        if self._preview is not None:
            with suppress(Exception):  # without a preview the arguments are shown
                asked = msgspec.structs.replace(request, arguments=copy_json(request.arguments))
                given = self._preview(asked)
                details = None if given is None else dict(given)
        return _View(request if self._redactor is None else self._shown(request, self._redactor), details)

    @staticmethod
    def _shown(request: ProposedCall, redactor: Redactor) -> ProposedCall:
        """The request with secrets masked, before anything is cut, so that no part of a secret is shown."""
        arguments = redactor.redact_value(request.arguments)
        scope = request.scope
        if (access := access_of(request)) is not None:
            scope = {**scope, "access": redactor.redact_value(access)}
        if arguments == request.arguments and scope == request.scope:
            return request
        return msgspec.structs.replace(request, arguments=arguments, scope=scope)

    @staticmethod
    async def _answer(ask: AskFn, question: ApprovalQuestion) -> ApprovalAnswer | Defer:
        """The answer; anything that is not an answer counts as no."""
        answer: object = ask(question)
        if inspect.isawaitable(answer):
            answer = await cast("Awaitable[object]", answer)
        if isinstance(answer, Defer):
            return answer
        if isinstance(answer, ApprovalAnswer) and answer.choice in tuple(ApprovalChoice):
            return answer
        if isinstance(answer, str) and answer in tuple(ApprovalChoice):
            return ApprovalAnswer(ApprovalChoice(answer))
        what = f"the question was answered with {a_kind(answer)}, which is not an answer"
        return ApprovalAnswer(ApprovalChoice.NO, what)

    async def _settle(self, request: ProposedCall, question: ApprovalQuestion, answer: ApprovalAnswer) -> Approval:
        if answer.choice == ApprovalChoice.NO:
            return Reject(answer.reason or SAID_NO)
        if answer.arguments is not None and answer.arguments != request.arguments:
            # A person trusts what the model asked for, not arguments that they changed themselves.
            changed = msgspec.structs.replace(request, arguments=copy_json(answer.arguments))
            if request.name in self._tools and changes_access(request.arguments, changed.arguments):
                return Reject("an answer cannot change the access that was asked about: call it again to ask for other")
            if (decision := self._decide(changed)).verdict == "deny":
                return Reject(decision.reason)
            return ApproveWith(changed.arguments, answer.reason)
        if answer.choice in question.choices:
            if answer.choice == ApprovalChoice.SESSION_TOOL:
                self.trust.trust_tool(request.name, scope=request.scope)
            elif answer.choice == ApprovalChoice.SESSION_PREFIX and question.prefix is not None:
                self.trust.trust_command(question.prefix, tool=request.name, scope=request.scope)
            elif answer.choice in (ApprovalChoice.SESSION_ACCESS, ApprovalChoice.ALWAYS):
                self.trust.trust_access(request)
                if answer.choice == ApprovalChoice.ALWAYS and self._remember is not None:
                    await _keep(self._remember, to_remember(access_of(request) or {}))
        return Approve()


async def _keep(remember: RememberFn, hosts: list[str]) -> None:
    """Lets the application remember the hosts. If it cannot, they are trusted for this session."""
    try:
        kept: object = remember(hosts)
        if inspect.isawaitable(kept):
            await cast("Awaitable[object]", kept)
    except Exception:
        _LOG.exception("the hosts could not be remembered: they are trusted for this session")


def _proposed(call: PendingCall) -> ProposedCall:
    return ProposedCall(call.call_id, call.name, call.arguments, call.scope, call.delegates)


def _run_warnings(name: object) -> list[str]:
    """The warning about a file that a program runs by itself, from the scope of a call."""
    fields = cast("dict[str, object]", name) if isinstance(name, dict) else {}
    known = [safe_display(str(fields[key]), 100) for key in ("name", "program", "when") if key in fields]
    return [run_warning(*known)] if len(known) == 3 else []


def _warnings(request: ProposedCall) -> tuple[str, ...]:
    found: dict[str, None] = {}
    stack: list[Any] = [request.name, request.arguments]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            found.update(dict.fromkeys(display_warnings(value)))
        elif isinstance(value, Mapping):
            mapping = cast("Mapping[Any, Any]", value)
            stack.extend([*mapping.keys(), *mapping.values()])
        elif isinstance(value, list):
            stack.extend(cast("list[Any]", value))
    return tuple(found)


def _suggested_prefix(command: str) -> str | None:
    """The first words to trust for commands like this one, or `None` if that would trust any command."""
    try:
        words = plain_words(command)
    except NotPlain:
        return None
    count = prefix_length(words)
    if count == 0 or any(not word.strip() for word in words[:count]) or not prefix_covers(words[:count], words):
        return None  # trusting it would not even cover this command
    import shlex  # on use: most sessions never trust a prefix

    return shlex.join(words[:count])  # as a person would type it, and as it is read back
