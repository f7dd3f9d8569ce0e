"""The application's sessions: where they are, which one is meant, and the one that a run is recorded in.

Sessions themselves are in `swink_agent.memory`.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swink_agent.core.stream import AssistantMessageEvent, StreamFailed
from swink_agent.core.values.value import Value

from ..errors import ApplicationError, UsageProblem
from ..settings.paths import beneath_home, data_folder
from ..settings.settings import Settings

if TYPE_CHECKING:
    from swink_agent.core.agent.agent import Agent
    from swink_agent.core.approval import PendingCall
    from swink_agent.core.secrets.redaction import Redactor
    from swink_agent.core.types import AgentMessage
    from swink_agent.memory import JsonlSessionStore, Session, SessionInfo
    from swink_agent.memory.sessions.store import SessionStore

_LISTED = "`swink sessions list --all` lists them"
_MORE_OF_IT = "write more of the id"
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,127})\.jsonl")
_AGE = re.compile(r"(\d{1,6})([hdw])")
_UNITS = {"h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_SHORTEST_ID = len("20260131-235959")
"""A date and a time, which are never shortened."""
_LONGEST_NAME = 200


class SessionProblem(ApplicationError):
    """A session that cannot be found, read or written."""


class WantedSession(Value, frozen=True, kw_only=True):
    """The session that the command line asks for: a new one, the newest of the folder, one by its id, or none."""

    is_kept: bool = True
    newest: bool = False
    id: str | None = None

    @property
    def goes_on(self) -> bool:
        return self.newest or self.id is not None


def sessions_folder(settings: Settings) -> Path:
    """The folder of sessions: the setting, else in the user's data folder."""
    given = settings.value("sessions_folder")
    return beneath_home(given, "sessions_folder").absolute() if given else data_folder() / "sessions"


def open_store(settings: Settings) -> JsonlSessionStore:
    from swink_agent.memory import JsonlSessionStore

    return JsonlSessionStore(sessions_folder(settings))


@contextmanager
def session_problems() -> Generator[None]:
    """Turns an error of a session into one line and an exit code."""
    from swink_agent.memory import SessionAmbiguous, SessionError, SessionNotFound

    try:
        yield
    except SessionNotFound as error:
        raise UsageProblem(f"{error}: {_LISTED}") from error
    except SessionAmbiguous as error:
        raise UsageProblem(f"{error}; {_MORE_OF_IT}") from error
    except SessionError as error:
        raise SessionProblem(str(error)) from error


def newest_and_unknown(store: JsonlSessionStore, folder: Path) -> tuple[SessionInfo, list[SessionInfo]]:
    """The last used session of the folder that is not empty, and later used sessions whose folder is unknown.

    Raises `UsageProblem`.
    """
    from swink_agent.memory.sessions.info import folder_name

    unknown: list[SessionInfo] = []
    for info in _newest_first(store):
        if info.messages and info.cwd == folder_name(folder):
            return info, unknown
        if not info.cwd and (info.messages or info.damage):
            unknown.append(info)
    also = f", but {len(unknown)} of unknown folders, the newest {unknown[0].id}" if unknown else ""
    raise UsageProblem(f"there is no session of {folder} to continue{also}: {_LISTED}")


def _newest_first(store: JsonlSessionStore) -> Iterator[SessionInfo]:
    """The sessions, most recently used first. Reads them in growing batches, as the caller needs more."""
    seen, limit = 0, 20
    while True:
        infos = store.list(limit=limit)
        yield from infos[seen:]
        if len(infos) < limit:
            return
        seen, limit = limit, limit * 10


def session_ids(folder: Path, wanted: Sequence[str] | None = None) -> list[str]:
    """The ids in file names, newest first; or the full ids of the wanted sessions, each given by its beginning.

    Reads no session. Raises `UsageProblem` and `SessionProblem`.
    """
    from swink_agent.memory.storage.files import is_file

    try:
        with os.scandir(folder) as entries:
            names = [match[1] for entry in entries if (match := _NAME.fullmatch(entry.name)) and is_file(entry)]
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise SessionProblem(f"{folder} cannot be read: {error.strerror or error}") from error
    names.sort(reverse=True)
    return names if wanted is None else list(dict.fromkeys([_whole_id(names, one, folder) for one in wanted]))


def is_of_folder(settings: Settings, session_id: str, folder: Path) -> bool:
    """Whether this is the whole id of a readable session of the folder."""
    from swink_agent.memory import SessionError
    from swink_agent.memory.sessions.info import folder_name

    try:
        store = open_store(settings)
        is_known = session_id in session_ids(store.folder)
        return is_known and store.load(session_id).info.cwd == folder_name(folder.resolve())
    except (ApplicationError, SessionError, OSError):
        return False


def illegible_ids(store: JsonlSessionStore, listed: Sequence[SessionInfo]) -> list[str]:
    """The sessions whose files have content that cannot be read. Stores leave them out of lists."""
    from swink_agent.memory import SessionDamaged, SessionError
    from swink_agent.memory.sessions.opening import created_from

    def is_illegible(session_id: str) -> bool:
        with suppress(SessionError, OSError):  # created or deleted meanwhile
            try:
                store.load(session_id)
            except SessionDamaged as error:
                return os.path.getsize(error.path) > 0
        return False

    known = {info.id for info in listed}
    return [one for one in session_ids(store.folder) if one not in known and created_from(one) and is_illegible(one)]


def _whole_id(names: Sequence[str], wanted: str, folder: Path) -> str:
    found = [name for name in names if wanted and name.startswith(wanted)]
    if wanted in found:
        return wanted
    if not found:
        raise UsageProblem(f"there is no session {wanted[:100]!r} in {folder}: {_LISTED}")
    if len(found) > 1:
        some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        raise UsageProblem(f"{wanted!r} is the beginning of {len(found)} sessions: {some}; {_MORE_OF_IT}")
    return found[0]


def short_ids(wanted: Sequence[str], all_ids: Sequence[str]) -> dict[str, str]:
    """The shortest beginning of each id that is unique, but at least day and time."""
    ordered = sorted({*all_ids, *wanted})
    place = {name: index for index, name in enumerate(ordered)}
    short: dict[str, str] = {}
    for name in wanted:
        index = place[name]
        beside = [*ordered[max(0, index - 1) : index], *ordered[index + 1 : index + 2]]
        shared = max([_shared(name, other) for other in beside], default=0)
        short[name] = name[: max(shared + 1, _SHORTEST_ID)]
    return short


def _shared(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def age_of(text: str) -> int:
    """A time such as `12h`, `30d` or `8w`, in milliseconds. Raises `UsageProblem`."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise UsageProblem(f"{text[:40]!r} is not an age: write hours, days or weeks, such as 12h, 30d or 8w")
    return int(match[1]) * _UNITS[match[2]]


def _doubts(info: SessionInfo, unknown: Sequence[SessionInfo]) -> str:
    """Warnings about the session to continue, or about the choice of it."""
    doubts: list[str] = []
    if problems := list(info.damage):
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        doubts.append(f"session {info.id} was damaged: {problems[0]}{more}")
    if unknown:
        other = unknown[0].id
        doubts.append(f"session {other} was used later, in an unknown folder: --resume {other} continues it")
    return "; ".join(doubts)


class RunSession:
    """The session that one run is recorded in, if any; a context manager.

    A session to continue is opened when the block is entered, and belongs to this process from then on. A new one is
    created when an agent is attached, and deleted if it stays empty. Raises `UsageProblem` and `SessionProblem`.
    """

    def __init__(self, settings: Settings, folder: Path, wanted: WantedSession) -> None:
        if wanted.goes_on and not settings.value("sessions"):
            raise UsageProblem(
                "with the setting sessions = false nothing is recorded, but a continued session must be: leave "
                "--continue or --resume out, or set sessions to true (`swink config` shows where it is set)"
            )
        self.is_kept = wanted.goes_on or (wanted.is_kept and settings.value("sessions"))
        self.warning = ""
        """Why the run is not recorded, or what is wrong with the session that it continues."""
        self._folder = folder.resolve()
        self._settings = settings
        self._wanted = wanted
        self._session: Session | None = None
        self._id: str | None = None
        place = Path(os.path.realpath(sessions_folder(settings)))
        if self.is_kept and self._folder.is_relative_to(place):
            raise UsageProblem(f"{place}, where sessions are kept, holds the folder to work in: change sessions_folder")

    def __enter__(self) -> RunSession:
        if self._wanted.goes_on:
            with session_problems():
                store = open_store(self._settings)
                wanted = self._wanted.id
                unknown: Sequence[SessionInfo] = ()
                if wanted is None:
                    info, unknown = newest_and_unknown(store, self._folder)
                    wanted = info.id
                self._session = store.open(wanted, cwd=self._folder)
                self.warning = _doubts(self._session.info, unknown)
        elif self.is_kept:
            self._make_folder()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def coming_id(self) -> str | None:
        """The id of the session, even while it is empty."""
        return self._id if self._session is None else self._session.id

    @property
    def id(self) -> str | None:
        """The id of the session; `None` while it is empty."""
        session = self._session
        return session.id if self._id is None and session is not None and session.messages else self._id

    @property
    def short_id(self) -> str | None:
        """The shortest beginning of the id that is unique now."""
        whole = self.id
        if whole is None:
            return None
        try:
            return short_ids([whole], session_ids(sessions_folder(self._settings)))[whole]
        except SessionProblem:
            return whole

    @property
    def info(self) -> SessionInfo | None:
        return None if self._session is None else self._session.info

    @property
    def context(self) -> tuple[AgentMessage, ...] | None:
        """The messages that replace the history for the model after a compaction; `None` for the whole history."""
        return None if self._session is None else self._session.context

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        from swink_agent.core.run.pending import pending_calls  # on use: few sessions have any

        return () if self._session is None else pending_calls(self._session.messages)

    def rename(self, title: str) -> None:
        """Sets the session's title, if there is a session. Raises `SessionProblem`."""
        if self._session is not None:
            with session_problems():
                self._session.rename(title)

    def flush(self) -> str | None:
        """Writes everything to disk for a reader. Returns the id if there is a session. Call it in a thread."""
        if self._session is None:
            return None
        with session_problems():
            self._session.records()
        return self._session.id

    @property
    def came_from(self) -> str:
        """The folder of the session, if it differs from this one; else empty."""
        from swink_agent.memory.sessions.info import folder_name

        cwd = "" if self._session is None else self._session.info.cwd
        return cwd if cwd != folder_name(self._folder) else ""

    def attach(self, agent: Agent) -> None:
        """Records the agent from now on, and gives it the session's history. Its model stays."""
        from swink_agent.memory import SessionError

        model = agent.model
        if self._session is None and self.is_kept and not self.warning:
            try:
                self._session = open_store(self._settings).create(self._folder)
            except SessionError as error:
                self._do_without(str(error))
        if self._session is not None:
            with session_problems():
                self._session.attach(agent)
            agent.model = model

    def detach(self) -> None:
        """Stops recording the agent, so that another may take its place. Raises `AlreadyRunning`."""
        if self._session is not None:
            self._session.detach()

    def close(self) -> str:
        """Closes the session. Returns a message if records could not be written, else an empty text."""
        session = self._session
        if session is None:
            return ""
        from swink_agent.memory import SessionError

        is_blank = not session.log.fold.has_messages  # a session that was rewound to its beginning is not
        if session.messages:
            self._id = session.id  # before it is closed: a thread that ends the program may need it meanwhile
        self._session = None
        problem = ""
        try:
            session.close()
        except SessionError as error:
            problem = str(error)
            if not is_blank and not self._is_on_disk(session.id):
                is_blank, self._id = True, None
        if is_blank and not self._wanted.goes_on:
            try:
                open_store(self._settings).delete(session.id)
            except SessionError:
                pass  # an extra empty session does no harm
        return problem

    def _is_on_disk(self, session_id: str) -> bool:
        """Whether part of an incompletely written session is on disk. `True` if that cannot be checked."""
        from swink_agent.memory import SessionDamaged, SessionError, SessionNotFound

        try:
            return open_store(self._settings).load(session_id).fold.has_messages
        except (SessionDamaged, SessionNotFound):
            return False
        except SessionError:
            return True

    def _make_folder(self) -> None:
        """Creates the folder now: a folder that does not exist cannot be hidden from commands."""
        from swink_agent.memory import SessionError
        from swink_agent.memory.storage.folder import make_folder

        try:
            make_folder(sessions_folder(self._settings))
        except SessionError as error:
            self._do_without(str(error))

    def _do_without(self, reason: str) -> None:
        self.is_kept = False
        self.warning = f"this run is not recorded, and cannot be resumed: {reason}"


def import_atif(data: bytes, name: str, store: SessionStore, redactor: Redactor) -> tuple[str, tuple[str, ...]]:
    """Records another agent's trajectory as a session. Returns its id and the parts left out. Raises `UsageProblem`."""
    from swink_agent.core.agent.agent import Agent
    from swink_agent.memory.export import TrajectoryError, read_atif

    try:
        read = read_atif(data)
    except TrajectoryError as error:
        raise UsageProblem(f"{name} cannot be imported: {error}") from error
    if not read.messages:
        raise UsageProblem(f"{name} cannot be imported: it contains no messages of a user or an agent")
    agent = Agent(read.model, stream_fn=_never_asked, messages=read.messages, redactor=redactor)
    about = {"imported_from": redactor.redact(read.agent[:_LONGEST_NAME]) or "ATIF"}
    with store.create(title=redactor.redact(read.title)[:_LONGEST_NAME], metadata=about) as session:
        session.attach(agent)
        session.detach()
        return session.id, read.left_out


async def _never_asked(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
    """Always fails: the agent exists only to be recorded."""
    yield StreamFailed("this agent cannot be asked")
