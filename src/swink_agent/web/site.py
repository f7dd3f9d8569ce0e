"""The parts of one server: sessions and their channels, readers, uploads, evaluations, and the authorization of users.

Finds, creates, forks, renames and deletes sessions. The routes act on a `Site`; `server` serves it over HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from aiohttp import web

from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import ThinkingLevel
from swink_agent.memory import SessionInfo, SessionNotFound, SessionStore

from .access import Access
from .channels import OpenFn, SessionChannel, SessionChannels
from .histories import Histories, masked_info
from .problems import Problem, invalid
from .routes.asking import Action
from .streams import EventLog, Readers
from .uploads import Uploads

if TYPE_CHECKING:
    from swink_agent.evals import EvalStore

AuthorizeFn: TypeAlias = "Callable[[web.Request, Action, SessionInfo | None], str | None | Awaitable[str | None]]"
"""Returns the name of the user who sent the request, or `None` if they may not do this to this session. For lists and
new sessions, the session is `None`."""
API = "/api/v1"
_LOOK = 2.0
"""Least seconds between two checks for sessions that other programs have changed."""
_LONGEST_LOOK = 10.0
"""Most seconds between them, however slow the store is."""
_RECENT = 60.0
"""Seconds that a page may be older than the start of the watch; changes since then are reported too."""
_MOST_WATCHED = 50
_MOST_INFOS = 1000


class Site:
    """The parts of a server. Use it in the thread of one event loop only."""

    def __init__(
        self,
        *,
        access: Access,
        authorize: AuthorizeFn,
        store: SessionStore,
        open_talk: OpenFn,
        redactor: Redactor,
        folder: str = "",
        model: Callable[[], str | None] = lambda: None,
        models: Callable[[], Sequence[tuple[str, str, str]]] = tuple,
        commands: Callable[[], Sequence[str]] = lambda: ("/compact",),
        check_model: Callable[[str], None] = lambda _: None,
        durable: Callable[[], Any] = lambda: None,
        evals: EvalStore | None = None,
        max_upload: int,
        max_readers: int,
    ) -> None:
        self.access = access
        self.store = store
        self.redactor = redactor
        """Masks what was recorded, also in other programs."""
        self.histories = Histories(store, redactor)
        self.listed = EventLog()
        """Changes of the list of sessions: `row` for a new or changed session, `state`, `retitled`, `gone`, `bye`."""
        self.channels = SessionChannels(open_talk, self.list_state)
        self._watching: asyncio.Future[None] | None = None
        self.readers = Readers(max_readers)
        self.uploads = Uploads()
        self.folder = folder
        self.model = model
        self.models = models
        self.commands = commands
        """Returns the words that a page sends as commands. Call it in a thread."""
        self._durable = durable
        self.evals = evals
        self.max_upload = max_upload
        self._authorize = authorize
        self._owner_key: str | None = getattr(authorize, "owner_key", None)
        self._infos: OrderedDict[str, SessionInfo] = OrderedDict()
        """The sessions that were asked about last, for events about sessions that were deleted meanwhile."""
        self._check_model = check_model

    @property
    def durable(self) -> Any:
        """The `Durable` that has the runs; `None` without durable runs."""
        return self._durable()

    async def authorized(self, request: web.Request, action: Action, session: str | SessionInfo | None) -> str:
        """Returns the name of the user. Raises 403 if they may not do this, and `SessionNotFound` for a session that
        does not exist, or of which they may not know."""
        info = await self.info(session) if isinstance(session, str) else session
        by: Any
        try:
            name = self._authorize(request, action, info)
            by = await name if inspect.isawaitable(name) else name
        except (web.HTTPException, SessionNotFound):
            raise
        except Exception:
            by = None
        if not isinstance(by, str) or not by:  # `False` and an empty name refuse too
            raise Problem(403, "forbidden", "you may not do this")
        if session is not None and info is None:
            raise SessionNotFound(f"there is no session {session!r}")
        return by

    async def may(self, request: web.Request, action: Action, session: str | SessionInfo | None) -> bool:
        """Whether the user may do this. Lists leave out sessions that the user may not read."""
        try:
            await self.authorized(request, action, session)
        except (Problem, web.HTTPException, SessionNotFound):
            return False
        return True

    async def info(self, session_id: str) -> SessionInfo | None:
        """Returns what is known of a session, also of one that was deleted a moment ago; `None` for an unknown one."""
        channel = self.channels.find(session_id)
        info = None if channel is None or channel.talk is None else channel.talk.info
        if info is None:
            try:
                info = (await asyncio.to_thread(self.histories.load, session_id)).info
            except SessionNotFound:
                return self._infos.get(session_id)
        self._infos[session_id] = info
        while len(self._infos) > _MOST_INFOS:
            self._infos.popitem(last=False)
        return info

    async def find(self, session_id: str) -> str:
        """Returns the id of a session that exists. Raises `SessionNotFound`."""
        if self.channels.find(session_id) is not None:
            return session_id
        return (await asyncio.to_thread(self.histories.load, session_id)).id

    async def create(
        self,
        title: str,
        model: str | None,
        thinking: ThinkingLevel | None,
        session_id: str | None = None,
        *,
        by: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Creates an empty session of this user, and returns its id. Raises 422 for metadata that names the user."""
        if model is not None:
            self._check_model(model)
        kept, owner = dict(metadata or {}), self._owner_key
        if owner is not None:
            if owner in kept:
                raise invalid(f"metadata may not have the key {owner!r}: the server sets it")
            kept[owner] = by

        def make() -> SessionInfo:
            with self.store.create(self.folder or None, title=title, metadata=kept, id=session_id) as session:
                return session.info

        made = await asyncio.to_thread(make)
        channel = self.channels.of(made.id)
        channel.model, channel.thinking = model, None if thinking is None else str(thinking)
        self._list_row(made)
        return made.id

    async def fork(self, session_id: str, at: int | None) -> str:
        """Creates a copy of a session, or of its first messages, and returns its id."""
        forked = await asyncio.to_thread(self.store.fork, session_id, at)
        info = forked.info
        await forked.aclose()
        self._list_row(info)
        return info.id

    async def delete(self, channel: SessionChannel) -> None:
        """Deletes a session that is not busy. The caller holds the channel's `opening`."""
        await channel.close_talk()
        await asyncio.to_thread(self.store.delete, channel.id)
        channel.is_deleted = True
        await channel.close("deleted")
        self.channels.forget(channel.id)
        self._list("gone", session=channel.id)

    async def rename(self, channel: SessionChannel, title: str) -> None:
        """Renames a session. The caller holds the channel's `opening`."""
        if channel.talk is not None and channel.talk.holds_session:
            await channel.talk.rename(title)
        else:
            await asyncio.to_thread(self.store.rename, channel.id, title)
        channel.tell("renamed", {"title": title})
        self._list("retitled", session=channel.id, title=title)

    # -- the list of sessions, as pages show it ------------------------------------------------------------------

    def list_state(self, channel: SessionChannel) -> None:
        """Sends readers of the list the state of a session, with its whole row if the session is open."""
        info = None if channel.talk is None else channel.talk.info
        if info is None:
            self._list("state", session=channel.id, state=channel.word)
        else:
            self._list_row(info, channel.word)

    def watch_list(self) -> None:
        """Checks regularly for sessions that other programs create or change, while the list has readers."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        known: list[SessionInfo] = []
        since = time.time() - _RECENT
        while True:
            began = time.monotonic()
            with contextlib.suppress(Exception):  # an application's own store may fail; the next check may succeed
                at = self.listed.position
                newest = await asyncio.to_thread(self.store.list, limit=1)
                every = known if newest == known[:1] else await asyncio.to_thread(self.store.list, limit=_MOST_WATCHED)
                if at == self.listed.position:  # else the list may be older than an event that readers have
                    for info in reversed(every):  # the newest is reported last: pages put it first
                        channel = self.channels.find(info.id)
                        is_ours = channel is not None and channel.talk is not None and channel.talk.holds_session
                        if info not in known and info.updated / 1000 >= since and not is_ours:  # ours report themselves
                            self._list_row(info, self.channels.word(info.id))
                    known = every
            took = time.monotonic() - began
            await asyncio.sleep(min(max(_LOOK, 100 * took), _LONGEST_LOOK))  # a slow store is read less often
            if not self.listed.has_readers:
                return

    def _list_row(self, info: SessionInfo, state: str = "idle") -> None:
        self._list("row", session=info.id, state=state, info=masked_info(info, self.redactor))

    def _list(self, name: str, **fields: Any) -> None:
        self.listed.append(name, msgspec.json.encode(fields))

    def path_of(self, request: web.Request, path: str) -> str:
        """Returns a path of the API, with the prefix of the request's path."""
        before, found, _ = request.path.partition(API)
        return f"{before if found else ''}{API}/{path}"

    async def close(self) -> None:
        """Stops every run, tells readers, and deletes uploads."""
        if self._watching is not None:
            self._watching.cancel()
        await self.channels.close()
        self._list("bye")
        self.listed.close()
        self.readers.close()
        await asyncio.to_thread(self.uploads.close)
