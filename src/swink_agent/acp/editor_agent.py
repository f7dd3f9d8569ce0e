"""The agent that editors talk to: the methods of the Agent Client Protocol, and the sessions of one connection.

Each session is a standard agent with a recorded session of `swink sessions`. Our own tools read and write files and run
commands in our own sandbox; the editor never does.
"""

from __future__ import annotations

import asyncio
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, schema
from msgspec.structs import replace

from swink_agent import __version__
from swink_agent.app.agent.models import choose_model, stream_fn_of
from swink_agent.app.agent.opening import Opening, OpeningOptions, Telemetry
from swink_agent.app.agent.servers import server_of
from swink_agent.app.agent.standard import redactor_for
from swink_agent.app.errors import ApplicationError, NoModel
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.runs.sessions import WantedSession, open_store, session_ids, session_problems
from swink_agent.app.settings.mcp_servers import ServerSettings
from swink_agent.app.settings.settings import load_settings
from swink_agent.core.errors import AuthError
from swink_agent.core.stream import StreamFn
from swink_agent.memory import SessionInfo
from swink_agent.rendering.turns import formatted

from .options import auth_methods
from .session import AUTH_REQUIRED, EditorSession

PAGE = 50
"""The most sessions in one answer."""


class EditorAgent:
    """Implements the protocol's agent for one connection. `flags` are settings, as the command line gives them.

    `warn` is called with messages for people that the protocol has no place for. `stream_fn` replaces the model's own
    stream function, for tests.
    """

    def __init__(
        self,
        flags: dict[str, Any],
        warn: Callable[[str], None] = lambda text: None,
        *,
        stream_fn: StreamFn | None = None,
    ) -> None:
        self._flags = flags
        self._stream_fn = stream_fn
        self._warn = warn
        self._sessions: dict[str, EditorSession] = {}
        self._telemetry = Telemetry()
        self._editor: Any = None
        self._has_forms = False
        self._auth_methods: list[Any] = auth_methods(has_terminal=False)
        self._introductions: set[asyncio.Task[None]] = set()

    def on_connect(self, conn: Any) -> None:
        self._editor = conn

    async def close(self) -> None:
        """Ends all sessions."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()
        if (problem := await asyncio.to_thread(self._telemetry.close)) is not None:
            self._warn(problem)

    # -- the connection --------------------------------------------------------------------------------------------

    async def initialize(
        self, protocol_version: int, client_capabilities: schema.ClientCapabilities | None = None, **_: Any
    ) -> schema.InitializeResponse:
        able = schema.ClientCapabilities() if client_capabilities is None else client_capabilities
        self._has_forms = able.elicitation is not None and able.elicitation.form is not None
        has_terminal = isinstance(able.auth, schema.AuthCapabilities) and bool(able.auth.terminal)
        self._auth_methods = auth_methods(has_terminal=has_terminal)
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                mcp_capabilities=schema.McpCapabilities(http=True),
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    delete=schema.SessionDeleteCapabilities(),
                    additional_directories=schema.SessionAdditionalDirectoriesCapabilities(),
                    fork=schema.SessionForkCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            agent_info=schema.Implementation(name="swink", title="Swink", version=__version__),
            auth_methods=self._auth_methods,
        )

    async def authenticate(self, method_id: str, **_: Any) -> schema.AuthenticateResponse:
        """Succeeds if there is a key now, however it was given."""
        if method_id not in [method.id for method in self._auth_methods]:
            raise _invalid(f"no way to authenticate is called {method_id[:40]!r}")
        try:
            await asyncio.to_thread(self._find_model)
        except ApplicationError as error:
            raise self._no_key(error) from error
        return schema.AuthenticateResponse()

    def _find_model(self) -> None:
        settings, credentials = load_settings(flags=self._flags), Credentials()
        stream_fn_of(choose_model(settings, credentials)[0], settings, credentials)

    def _no_key(self, error: Exception) -> RequestError:
        ways = "; ".join([f"{method.name} ({method.id})" for method in self._auth_methods])
        return RequestError(AUTH_REQUIRED, f"{error}; `swink keys set PROVIDER` stores a key. Ways to give one: {ways}")

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "session/delete":  # `transport` sends it here: the protocol's package does not know it yet
            await self.delete_session(schema.DeleteSessionRequest.model_validate(params).session_id)
            return {}
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        pass

    # -- sessions --------------------------------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **_: Any,
    ) -> schema.NewSessionResponse:
        session = await self._open(cwd, additional_directories, mcp_servers, WantedSession())
        self._introduce(session)
        return schema.NewSessionResponse(session_id=session.id, modes=session.modes, config_options=session.config)

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> schema.LoadSessionResponse:
        session = await self._open_again(cwd, additional_directories, mcp_servers, session_id)
        await session.replay()
        self._introduce(session)
        return schema.LoadSessionResponse(modes=session.modes, config_options=session.config)

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **_: Any,
    ) -> schema.ResumeSessionResponse:
        session = await self._open_again(cwd, additional_directories, mcp_servers, session_id)
        self._introduce(session)
        return schema.ResumeSessionResponse(modes=session.modes, config_options=session.config)

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **_: Any,
    ) -> schema.ForkSessionResponse:
        if (open_one := self._sessions.get(session_id)) is not None:
            self._refuse_busy(open_one)
            await open_one.flush()
        try:
            forked = await asyncio.to_thread(self._fork, session_id)
        except ApplicationError as error:
            raise _invalid(str(error)) from error
        session = await self._open(cwd, additional_directories, mcp_servers, WantedSession(id=forked))
        self._introduce(session)
        return schema.ForkSessionResponse(session_id=session.id, modes=session.modes, config_options=session.config)

    def _fork(self, session_id: str) -> str:
        with session_problems(), open_store(load_settings()).fork(session_id) as forked:
            return forked.id

    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        """Ends a session and its run. Its record stays."""
        session = self._session(session_id)
        del self._sessions[session_id]
        await session.close()
        return schema.CloseSessionResponse()

    async def delete_session(self, session_id: str) -> None:
        """Deletes a session. One that does not exist is gone already."""
        if (session := self._sessions.get(session_id)) is not None:
            self._refuse_busy(session)
            del self._sessions[session_id]
            await session.close()
        try:
            await asyncio.to_thread(_delete, session_id)
        except ApplicationError as error:
            raise _refused(str(error)) from error

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        return await asyncio.to_thread(_listed, cwd, cursor)

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> schema.SetSessionModeResponse:
        await self._set(session_id, "mode", mode_id)
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        session = await self._set(session_id, config_id, str(value))
        return schema.SetSessionConfigOptionResponse(config_options=session.config)

    async def _set(self, session_id: str, option: str, value: str) -> EditorSession:
        session = self._session(session_id)
        try:
            await session.set_option(option, value)
        except NoModel as error:
            raise self._no_key(error) from error
        except ApplicationError as error:
            raise _invalid(str(error)) from error
        return session

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> schema.PromptResponse:
        session = self._session(session_id)
        if not session.takes_prompts:
            raise _refused("a prompt of this session is running: cancel it first")
        return schema.PromptResponse(stop_reason=await session.prompt(prompt))

    async def cancel(self, session_id: str, **_: Any) -> None:
        if (session := self._sessions.get(session_id)) is not None:
            session.cancel()

    def _session(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise _invalid(f"no session {session_id[:100]!r} is open: session/new or session/load opens one")
        return session

    def _refuse_busy(self, session: EditorSession) -> None:
        if session.is_busy:
            raise _refused("a prompt of this session is running: cancel it first")

    def _introduce(self, session: EditorSession) -> None:
        """Tells the editor what a session has, after the answer with its id, which is written without another wait."""
        task = asyncio.ensure_future(session.introduce())
        self._introductions.add(task)
        task.add_done_callback(self._introductions.discard)

    async def _open_again(
        self, cwd: str, added: list[str] | None, servers: Sequence[Any] | None, session_id: str
    ) -> EditorSession:
        if (open_one := self._sessions.get(session_id)) is not None:
            self._refuse_busy(open_one)
            del self._sessions[session_id]
            await open_one.close()
        return await self._open(cwd, added, servers, WantedSession(id=session_id))

    async def _open(
        self, cwd: str, added: list[str] | None, servers: Sequence[Any] | None, wanted: WantedSession
    ) -> EditorSession:
        if not os.path.isabs(cwd) or not await asyncio.to_thread(os.path.isdir, cwd):
            raise _invalid(f"cwd is {cwd[:200]!r}; it must be the absolute path of a folder")
        if relative := next((place for place in added or () if not os.path.isabs(place)), None):
            raise _invalid(f"additionalDirectories has {relative[:200]!r}; it must have absolute paths of folders")
        options = OpeningOptions(
            flags=self._flags,
            cwd=cwd,
            added=tuple(added or ()),
            session=wanted,
            other_servers=_server_settings(servers or ()),
        )
        try:
            opening = await asyncio.to_thread(Opening, options)
            opening.telemetry = self._telemetry
            session = await EditorSession.open(
                self._editor, opening, has_forms=self._has_forms, stream_fn=self._stream_fn
            )
        except (NoModel, AuthError) as error:
            raise self._no_key(error) from error
        except ApplicationError as error:
            raise _invalid(str(error)) from error
        self._sessions[session.id] = session
        return session


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


def _listed(cwd: str | None, cursor: str | None) -> schema.ListSessionsResponse:
    """A page of the sessions with messages, most recently used first."""
    with session_problems():
        settings = load_settings()
        store, redactor = open_store(settings), redactor_for(settings, Credentials())
        after, limit = _place_in(cursor), 2 * PAGE
        while True:
            infos = store.list(limit=limit) if cwd is None else store.list(cwd=cwd, limit=limit)
            found = [info for info in infos if info.messages and (after is None or _place_of(info) < after)]
            if len(found) > PAGE or len(infos) < limit:
                break
            limit *= 8
    shown = [
        schema.SessionInfo(
            session_id=info.id,
            cwd=info.cwd or "/",
            title=redactor.redact(info.title) or None,
            # Without a time if a hostile file has an impossible one, or for a session without a record.
            updated_at=(formatted(info.updated, "%Y-%m-%dT%H:%M:%S.%f+00:00", UTC) or None) if info.updated else None,
        )
        for info in found[:PAGE]
    ]
    more = _cursor_to(found[PAGE - 1]) if len(found) > PAGE else None
    return schema.ListSessionsResponse(sessions=shown, next_cursor=more)


def _place_of(info: SessionInfo) -> tuple[int, str]:
    """The place of a session in the list, which goes down."""
    return info.updated, info.id


def _cursor_to(info: SessionInfo) -> str:
    return urlsafe_b64encode(f"{info.updated} {info.id}".encode()).decode()


def _place_in(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    try:
        moment, _, session_id = urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        return int(moment), session_id
    except ValueError:
        raise _invalid("the cursor is not one of session/list") from None


def _delete(session_id: str) -> None:
    with session_problems():
        store = open_store(load_settings())
        if session_id in session_ids(store.folder):
            store.delete(session_id)


def _invalid(words: str) -> RequestError:
    return RequestError(-32602, words)


def _refused(words: str) -> RequestError:
    return RequestError(-32600, words)
