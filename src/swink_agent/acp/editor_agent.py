"""The agent that editors talk to: sessions, prompts, questions and modes of the Agent Client Protocol.

Keeps the sessions of one connection. Each is a standard agent with a recorded session of `swink sessions`. Our own
tools read and write files and run commands in our own sandbox; the editor never does.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, schema
from acp.helpers import text_block, tool_content
from msgspec.structs import replace

from swink_agent import __version__
from swink_agent.app.agent.open_agent import OpenAgent
from swink_agent.app.agent.opening import Opening, OpeningOptions, Telemetry
from swink_agent.app.agent.servers import server_of
from swink_agent.app.errors import ApplicationError, NoModel
from swink_agent.app.runs.sessions import WantedSession, open_store, session_problems
from swink_agent.app.settings.mcp_servers import ServerSettings
from swink_agent.app.settings.settings import load_settings
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion, ApprovalsMode
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.encoding.media import image_of
from swink_agent.core.errors import Aborted, AuthError, ErrorKind
from swink_agent.core.types import AgentResult, Image, StopReason, Text, UserBlock, UserMessage, is_blank
from swink_agent.rendering.escaping import safe_line
from swink_agent.rendering.turns import formatted

from .updates import SessionUpdates, change_of, replayed, title_of

_MODES: dict[ApprovalsMode, str] = {
    "ask": "Every call that needs approval is asked about.",
    "smart": "Harmless calls run; other calls are asked about.",
    "auto": "Calls that the sandbox confines run unasked; calls that leave it are asked about.",
    "all": "Only access beyond the sandbox is asked about. Deny rules and the sandbox still apply.",
    "none": "Nothing that needs approval runs.",
}
_LIMITS = frozenset({"max_turns", "max_duration", "budget"})
_LISTED = 200
_CLOSING = 3.0  # seconds in which hooks can end when a session is closed


class _EditorSession:
    """One conversation: its agent, its recorded session, and whether a prompt runs."""

    def __init__(self, opened: OpenAgent) -> None:
        self.id = opened.session.coming_id or secrets.token_hex(12)
        self.folder = str(opened.opening.folder)
        self.made = opened.made
        self._opened = opened
        self.is_prepared = False
        self.is_running = False
        self.cancelled = CancellationToken()
        """The token of the running prompt, which may be cancelled before the agent begins."""
        self.questions: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Ends the session, its hooks and MCP servers, and the processes that its tools started."""
        await self.made.finish(_CLOSING)
        await asyncio.to_thread(self._opened.close)


class EditorAgent:
    """Implements the protocol's agent for one connection. `flags` are settings, as the command line gives them.

    `warn` is called with messages for people that the protocol has no place for, such as an MCP server that is not
    used.
    """

    def __init__(self, flags: dict[str, Any], warn: Callable[[str], None] = lambda text: None) -> None:
        self._flags = flags
        self._warn = warn
        self._sessions: dict[str, _EditorSession] = {}
        self._telemetry = Telemetry()
        self._editor: Any = None

    def on_connect(self, conn: Any) -> None:
        self._editor = conn

    async def close(self) -> None:
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.made.agent.abort()
            await session.made.agent.wait_for_idle()
            await session.close()
        if (problem := await asyncio.to_thread(self._telemetry.close)) is not None:
            self._warn(problem)

    # -- the protocol's methods --------------------------------------------------------------------------------

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                mcp_capabilities=schema.McpCapabilities(http=True),
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
                session_capabilities=schema.SessionCapabilities(list=schema.SessionListCapabilities()),
            ),
            agent_info=schema.Implementation(name="swink", title="Swink", version=__version__),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        raise RequestError.invalid_params({"message": "keys are stored with `swink keys set PROVIDER`"})

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **_: Any,
    ) -> schema.NewSessionResponse:
        session = await self._opened(cwd, additional_directories or [], mcp_servers or (), WantedSession())
        return schema.NewSessionResponse(session_id=session.id, modes=_modes(session))

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> schema.LoadSessionResponse:
        if (open_one := self._sessions.get(session_id)) is not None:
            if open_one.is_running:
                raise _refused("a prompt of this session is running")
            del self._sessions[session_id]
            await open_one.close()
        wanted = WantedSession(id=session_id)
        session = await self._opened(cwd, additional_directories or [], mcp_servers or (), wanted)
        for update in replayed(tuple(session.made.agent.messages), session.folder):
            await self._tell(session, update)
        return schema.LoadSessionResponse(modes=_modes(session))

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        return schema.ListSessionsResponse(sessions=await asyncio.to_thread(_listed, cwd))

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> schema.SetSessionModeResponse:
        session = self._session(session_id)
        if mode_id not in (offered := _offered(session)):
            raise _invalid(f"no mode is called {mode_id[:40]!r}: there are {', '.join(offered)}")
        session.made.approvals.mode = mode_id
        return schema.SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> schema.PromptResponse:
        session = self._session(session_id)
        if session.is_running:
            raise _refused("a prompt of this session is running: cancel it first")
        message = UserMessage(_blocks(prompt))
        if is_blank((message,)):
            raise _invalid("the prompt has no content")
        session.is_running, session.cancelled = True, CancellationToken()
        try:
            return schema.PromptResponse(stop_reason=_stop_reason(await self._run(session, message)))
        finally:
            session.is_running = False

    async def cancel(self, session_id: str, **_: Any) -> None:
        session = self._sessions.get(session_id)
        if session is not None:
            session.cancelled.cancel()
            session.made.agent.abort()
            for question in session.questions:
                question.cancel()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        pass

    # -- sessions ------------------------------------------------------------------------------------------------

    def _session(self, session_id: str) -> _EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise _invalid(f"no session {session_id[:100]!r} is open: session/new or session/load opens one")
        return session

    async def _opened(
        self, cwd: str, added: list[str], servers: Sequence[Any], wanted: WantedSession
    ) -> _EditorSession:
        if not os.path.isabs(cwd) or not await asyncio.to_thread(os.path.isdir, cwd):
            raise _invalid(f"cwd is {cwd[:200]!r}; it must be the absolute path of a folder")
        try:
            session = await asyncio.to_thread(self._open, cwd, added, _server_settings(servers), wanted)
        except (NoModel, AuthError) as error:
            raise RequestError(-32000, f"{error}; `swink keys set PROVIDER` stores a key") from error
        except ApplicationError as error:
            raise _invalid(str(error)) from error
        self._sessions[session.id] = session
        return session

    def _open(
        self, cwd: str, added: list[str], servers: tuple[ServerSettings, ...], wanted: WantedSession
    ) -> _EditorSession:
        options = OpeningOptions(flags=self._flags, cwd=cwd, added=tuple(added), session=wanted, other_servers=servers)
        opening = Opening(options)
        opening.telemetry = self._telemetry

        async def ask(question: ApprovalQuestion) -> ApprovalAnswer:
            return await self._ask(session, question)

        opened = OpenAgent.open(opening, {"ask": ask, "is_attended": True})
        for warning in opened.made.warnings:
            self._warn(opened.redactor.redact(warning))
        session = _EditorSession(opened)
        return session

    # -- a run ---------------------------------------------------------------------------------------------------

    async def _run(self, session: _EditorSession, message: UserMessage) -> AgentResult:
        made = session.made
        if made.prepare is not None and not session.is_prepared:
            try:
                await asyncio.to_thread(made.prepare, session.cancelled)
            except Aborted:
                return AgentResult(messages=(), stop_reason=StopReason.ABORTED)
            except ApplicationError as error:
                raise RequestError(-32603, str(error)) from error
            session.is_prepared = True
        if session.cancelled.is_cancelled:
            return AgentResult(messages=(), stop_reason=StopReason.ABORTED)
        updates, masked = SessionUpdates(session.folder), made.redactor.events()
        stream = made.agent.prompt_stream(message)
        async for event in stream:
            for shown in masked.feed(event):
                for update in updates.of(shown):
                    await self._tell(session, update)
        result = await stream.result()
        if result.error is not None and result.stop_reason is not StopReason.ABORTED:
            if result.error_kind is ErrorKind.AUTH:
                raise RequestError(-32000, f"{made.redactor.redact(result.error)}; `swink keys` shows and stores keys")
            if result.error_kind is not ErrorKind.CONTENT_FILTERED:
                raise RequestError(-32603, made.redactor.redact(result.error))
        return result

    async def _tell(self, session: _EditorSession, update: Any) -> None:
        await self._editor.session_update(session_id=session.id, update=update)

    async def _ask(self, session: _EditorSession, question: ApprovalQuestion) -> ApprovalAnswer:
        """Asks the editor. Anything but a yes counts as no, also if the editor fails or the prompt is cancelled."""
        request = question.shown or question.request
        names = {
            ApprovalChoice.SESSION_ACCESS: "For this session, allow commands that ask for no more access",
            ApprovalChoice.SESSION_PREFIX: f"Always allow {safe_line(question.prefix or '')}",
            ApprovalChoice.SESSION_TOOL: f"Always allow {safe_line(request.name)}",
        }
        always = next((one for one in names if one in question.choices), None)
        kinds: dict[Any, str] = {"allow_once": "Allow"}
        kinds |= {} if always is None else {"allow_always": names[always]}
        kinds["reject_once"] = "Reject"
        options = [schema.PermissionOption(option_id=kind, name=name, kind=kind) for kind, name in kinds.items()]
        asking = asyncio.ensure_future(
            self._editor.request_permission(
                session_id=session.id,
                tool_call=schema.ToolCallUpdate(
                    tool_call_id=request.call_id,
                    title=title_of(request.name, request.arguments),
                    content=_shown(question, session.folder),
                    # The access in its normal form, never as the model wrote it.
                    raw_input={**request.arguments, **({"access": request.scope["access"]} if question.access else {})},
                ),
                options=options,
            )
        )
        session.questions.add(asking)
        try:
            outcome = (await asking).outcome
        except (asyncio.CancelledError, Exception):
            return ApprovalAnswer(ApprovalChoice.NO, "the question was not answered")
        finally:
            session.questions.discard(asking)
        chosen = outcome.option_id if isinstance(outcome, schema.AllowedOutcome) else ""
        if chosen == "allow_once":
            return ApprovalAnswer(ApprovalChoice.ONCE)
        if chosen == "allow_always" and always is not None:
            return ApprovalAnswer(always)
        return ApprovalAnswer(ApprovalChoice.NO)


def _shown(question: ApprovalQuestion, folder: str) -> list[Any]:
    """The question with the whole call, as nothing that was cut can be allowed, and the diff of a write for editors
    that draw one."""
    words = "\n".join([question.render(), *question.warnings, question.why])
    change = change_of(question.details, folder)
    return [tool_content(text_block(words)), *([] if change is None else [change])]


def _blocks(prompt: Sequence[Any]) -> list[UserBlock]:
    blocks: list[UserBlock] = []
    for block in prompt:
        match block:
            case schema.TextContentBlock():
                blocks.append(Text(block.text))
            case schema.ImageContentBlock():
                blocks.append(_picture(block.data))
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as resource):
                blocks.append(Text(f'<resource uri="{safe_line(resource.uri)}">\n{resource.text}\n</resource>'))
            case schema.ResourceContentBlock():
                blocks.append(Text(f"[{safe_line(block.name)}]({safe_line(block.uri)})"))
            case _:
                raise _invalid(f"a prompt cannot have a part of the type {getattr(block, 'type', '?')}")
    return blocks


def _picture(data: str) -> Image:
    """The picture, of the kind that it has, whatever the editor calls it. One that no model takes would stay in the
    history, and every later prompt would fail."""
    try:
        return image_of(b64decode(data))
    except ValueError as error:
        raise _invalid(f"an image cannot be sent: {error}") from error


def _server_settings(servers: Sequence[Any]) -> tuple[ServerSettings, ...]:
    """The editor's MCP servers as settings. They run in our sandbox, without a network, like those of a project."""
    found: dict[str, ServerSettings] = {}
    for server in servers:
        plain = re.sub(r"[^a-z0-9-]+", "-", server.name.lower()).strip("-")[:20] or "editor"
        names = (plain, *[f"{plain[:17]}-{number}" for number in range(2, 100)])
        name = next((name for name in names if name not in found), plain)
        described = ServerSettings(name=name, source="editor")
        if isinstance(server, schema.McpServerStdio):
            env = {variable.name: variable.value for variable in server.env}
            described = replace(described, command=server.command, args=tuple(server.args), env=env)
        elif isinstance(server, schema.HttpMcpServer):
            headers = {header.name: header.value for header in server.headers}
            described = replace(described, url=server.url, headers=headers)
        else:
            described = replace(described, problem="only stdio and HTTP servers are used")
        try:
            if not described.problem:
                server_of(described, folder=Path(os.sep))
        except ValueError as error:
            described = replace(described, problem=str(error))
        found[name] = described
    return tuple(found.values())


def _offered(session: _EditorSession) -> dict[ApprovalsMode, str]:
    """The modes to choose from: `auto` only if the folder or the user's flag chose it."""
    has_auto = session.made.approval_mode.mode == "auto"
    return {name: words for name, words in _MODES.items() if has_auto or name != "auto"}


def _modes(session: _EditorSession) -> schema.SessionModeState:
    current = session.made.approvals.mode
    offered = _offered(session).items()
    modes = [schema.SessionMode(id=name, name=name.capitalize(), description=words) for name, words in offered]
    return schema.SessionModeState(current_mode_id=current, available_modes=modes)


def _listed(cwd: str | None) -> list[schema.SessionInfo]:
    with session_problems():
        store = open_store(load_settings())
        infos = store.list(limit=_LISTED) if cwd is None else store.list(cwd=cwd, limit=_LISTED)
    return [
        schema.SessionInfo(
            session_id=info.id,
            cwd=info.cwd or "/",
            title=info.title or None,
            # Without a time if a hostile file has an impossible one, or for a session without a record.
            updated_at=(formatted(info.updated, "%Y-%m-%dT%H:%M:%S.%f+00:00", UTC) or None) if info.updated else None,
        )
        for info in infos
        if info.messages
    ]


def _stop_reason(result: AgentResult) -> Any:
    if result.stop_reason is StopReason.ABORTED:
        return "cancelled"
    if result.error_kind is ErrorKind.CONTENT_FILTERED:
        return "refusal"
    if result.stopped_by is not None and result.stopped_by.policy in _LIMITS:
        return "max_turn_requests"
    return "max_tokens" if result.stop_reason is StopReason.LENGTH else "end_turn"


def _invalid(words: str) -> RequestError:
    return RequestError(-32602, words)


def _refused(words: str) -> RequestError:
    return RequestError(-32600, words)
