"""One session: the recorded conversation of an agent, to continue (`Session`) or to read (`LoadedSession`).

Owns attaching to an agent, also after a crash, and the entries that an application adds. `log` and `opening` read and
write the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from swink_agent.core.agent.agent import Agent
from swink_agent.core.errors import AlreadyRunning
from swink_agent.core.journal import ContextReplaced, HistoryCut, Journal, MessageAdded, Past
from swink_agent.core.record import RunRecord
from swink_agent.core.secrets.placeholders import holds_placeholder
from swink_agent.core.types import AgentMessage, CustomMessage
from swink_agent.core.values.checks import is_not
from swink_agent.core.values.data import checked_json_data
from swink_agent.core.values.nesting import is_too_deep, too_deep
from swink_agent.core.values.value import copy_json

from ..errors import SessionError
from ..log.fold import Fold
from ..log.reading import read_records
from ..log.records import LabelAdded, NoteAdded, SessionRecord, SessionStarted, TitleChanged
from ..log.runs import StoredRun
from ..log.session_log import SessionLog
from ..storage.protocols import LogName
from .info import Problem, SessionInfo
from .opening import SessionOnDisk

log = logging.getLogger("swink_agent")

_CLOSING = 30.0  # seconds that `close` waits for the disk at most
_LONGEST_NAME = 10_000


class _SessionView(ABC):
    """The readable part of a session, open or loaded."""

    id: str

    @abstractmethod
    def _folded(self) -> AbstractContextManager[Fold]:
        """The fold of the records. Nothing is recorded inside the context, so that the fold is consistent."""

    @abstractmethod
    def _described(self) -> tuple[SessionStarted, Sequence[Problem]]: ...

    @property
    def info(self) -> SessionInfo:
        with self._folded() as fold:
            start, problems = self._described()
            return info_of(self.id, start, fold, problems)

    @property
    def messages(self) -> tuple[AgentMessage, ...]:
        """The history, in which every call has a result."""
        with self._folded() as fold:
            return fold.messages

    @property
    def context(self) -> tuple[AgentMessage, ...] | None:
        """The messages that the model is sent since a compaction; `None` for the whole history."""
        with self._folded() as fold:
            return fold.context

    @property
    def state(self) -> dict[str, Any]:
        with self._folded() as fold:
            return copy_json(fold.state)

    @property
    def labels(self) -> tuple[LabelAdded, ...]:
        with self._folded() as fold:
            return tuple(fold.labels)

    @property
    def notes(self) -> tuple[NoteAdded, ...]:
        with self._folded() as fold:
            return tuple(fold.notes)

    @abstractmethod
    def records(self) -> tuple[SessionRecord, ...]:
        """All records in order, as they are on disk."""

    @abstractmethod
    def _stored_runs(self) -> Sequence[StoredRun]: ...

    def runs(self) -> tuple[RunRecord, ...]:
        """One record for each run, in order, equal to the record of its events. A run that broke off is not over."""
        return tuple([run.record for run in self._stored_runs()])


class LoadedSession(_SessionView):
    """A session as it was when it was read. It holds no file open, and cannot be changed."""

    def __init__(self, name: LogName, contents: SessionOnDisk) -> None:
        self.id = name.id
        self.path = name.path
        self.fold = contents.fold
        """The fold of the records; for the rest of this package."""
        self._contents = contents
        self._messages = contents.fold.messages

    def __repr__(self) -> str:
        return f"<LoadedSession {self.id}, {len(self._messages)} messages>"

    def _folded(self) -> AbstractContextManager[Fold]:
        return nullcontext(self.fold)

    def _described(self) -> tuple[SessionStarted, Sequence[Problem]]:
        return self._contents.start, self._contents.reading.problems

    @property
    def messages(self) -> tuple[AgentMessage, ...]:
        """The history, in which every call has a result."""
        return self._messages

    def records(self) -> tuple[SessionRecord, ...]:
        """All records in order."""
        return tuple(self._contents.reading.records)

    def _stored_runs(self) -> Sequence[StoredRun]:
        return self.fold.runs


def session_from_lines(
    session_id: str, data: bytes, start: SessionStarted, types: Sequence[type[CustomMessage]] = (), *, place: Path
) -> LoadedSession:
    """Loads a session whose records are kept elsewhere: `data` are its lines, `start` is its description.

    `place` names where the lines are kept. The lines need not include a `SessionStarted`.
    """
    reading = read_records(data, types, is_whole=False)
    fold = Fold()
    for record in reading.records:
        fold.add(record.number, record.entry, record.at)
    return LoadedSession(LogName(session_id, place, is_shared=True), SessionOnDisk(reading, fold, start))


class Session(_SessionView):
    """A session that is open for writing. It is the only writer of its log until it is closed."""

    def __init__(
        self,
        log: SessionLog,
        start: SessionStarted,
        read: Callable[[], SessionOnDisk],
        *,
        problems: Sequence[Problem] = (),
    ) -> None:
        self.id = log.id
        self.log = log
        """The open log; for the rest of this package."""
        self._start = start
        self._read = read  # reads all of it again
        self._problems = tuple(problems)
        self._agent: Agent | None = None

    def __repr__(self) -> str:
        return f"<Session {self.id}, {'closed' if self.log.is_closed else 'open'}>"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        try:
            self.close()
        except SessionError:
            if error is None:  # else the caller should see the first error
                raise

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        try:
            await self.aclose()
        except SessionError:
            if error is None:
                raise

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        return self.log.path

    @contextmanager
    def _folded(self) -> Generator[Fold]:
        with self.log.guard:
            yield self.log.fold

    def _described(self) -> tuple[SessionStarted, Sequence[Problem]]:
        return self._start, self._problems

    def records(self) -> tuple[SessionRecord, ...]:
        """All records in order, as they are on disk."""
        return tuple(self._on_disk().reading.records)

    def _stored_runs(self) -> Sequence[StoredRun]:
        return self._on_disk().fold.runs

    def _on_disk(self) -> SessionOnDisk:
        if not self.log.is_closed:
            self.log.flush(_CLOSING)
        return self._read()

    # -- an agent ----------------------------------------------------------------------------------------------

    def attach(self, agent: Agent) -> None:
        """Records what the agent does from now on.

        A new session records the agent's history. A session with a past gives the agent its history, model, thinking
        level, state and compacted context.

        Warning: these replace the agent's own, which are not kept anywhere.

        Raises `AlreadyRunning` during a run, and `SessionError` if the session or the agent is attached already, the
        session can no longer be written, or the agent's state is not JSON.
        """
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise is_not("attach", agent, "given an Agent")
        self.log.check()
        if self._agent is not None:
            whose = "this" if self._agent is agent else "another"
            raise SessionError(
                f"session {self.id} is attached to {whose} agent already: detach() it first", path=str(self.path)
            )
        if agent.is_running:
            raise AlreadyRunning()
        other = agent.journal
        if other is not None and not (isinstance(other, SessionLog) and other.is_closed):
            what = f"session {other.id}" if isinstance(other, SessionLog) else "another journal"
            raise SessionError(
                f"the agent is attached to {what} already: detach it before you attach session {self.id}",
                path=str(self.path),
            )
        if self._has_a_past:
            with self.log.guard:
                past = past_of(self.log)
            agent.attach_journal(self.log, past)
            self._tell_of_masks(agent)
        else:
            self._refuse_odd_state(agent)
            agent.attach_journal(self.log)
        self._agent = agent

    def _tell_of_masks(self, agent: Agent) -> None:
        """Warns of placeholders in the state: a tool would take them for its own data."""
        masked = [key for key, value in agent.state.items() if holds_placeholder(msgspec.json.encode(value).decode())]
        if masked:
            words = "the state of session %s was masked on its way to disk, and holds placeholders: %s"
            log.warning(words, self.id, ", ".join(masked))

    def _refuse_odd_state(self, agent: Agent) -> None:
        """Refuses a state that cannot be recorded, before anything is recorded."""
        try:
            checked_json_data(dict(agent.state))
        except ValueError as error:
            raise SessionError(
                f"the agent's state cannot be recorded in session {self.id}, since not all of it is JSON: {error}",
                path=str(self.path),
            ) from error

    @property
    def _has_a_past(self) -> bool:
        fold = self.log.fold
        return fold.has_messages or bool(fold.state)

    def detach(self) -> None:
        """Stops recording the agent. Raises `AlreadyRunning` during a run."""
        agent = self._agent
        if agent is not None:
            if agent.journal is self.log:
                agent.detach_journal()
            self._agent = None

    # -- what an application adds --------------------------------------------------------------------------------

    def rename(self, title: str) -> None:
        """Changes the session's title. It is synced with the next run's records, at the latest when it is closed."""
        self.log.add(TitleChanged(checked_text(title, "a title")))

    def label(self, text: str, at: int | None = None) -> None:
        """Names a place in the history: after the first `at` messages, or its current end.

        Raises `ValueError` if the history has fewer messages, or the text is empty.
        """
        with self.log.guard:
            count = self.log.fold.count
        position = count if at is None else at
        if not checked_text(text, "a label"):
            raise ValueError("a label must not be empty: it names a place")
        if type(position) is not int or not 0 <= position <= count:
            raise ValueError(f"session {self.id} has {count} messages: a label cannot be at {position}")
        self.log.add(LabelAdded(text, position))

    def note(self, kind: str, data: Any = None) -> None:
        """Adds an entry of the application. `data` must be JSON. Raises `TypeError` if it is not, and `ValueError` if
        it is nested too deep."""
        kind = checked_text(kind, "the kind of a note")
        self.log.add(NoteAdded(kind, checked_json(data, "the data of a note")))

    # -- the end -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Waits for the disk, 30 s at most, closes the log and detaches the agent.

        A run in progress ends with an error, because the rest of it could not be recorded. Raises `SessionError` if
        something could not be written, which the last run reports too.
        """
        try:
            self._let_go()
        finally:
            self.log.close(_CLOSING)

    async def aclose(self) -> None:
        """The same without blocking the event loop: it waits for the disk in a thread.

        If it is cancelled, the session is still closed.
        """
        try:
            self._let_go()
        finally:
            await asyncio.to_thread(self.log.close, _CLOSING)

    def _let_go(self) -> None:
        with suppress(AlreadyRunning):  # it finds the session closed at its next step
            self.detach()


def checked_text(text: object, what: str) -> str:
    """A short text. Raises `TypeError` or `ValueError` for anything else."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a string, not {type(text).__name__}")
    if len(text) > _LONGEST_NAME:
        raise ValueError(f"{what} must have at most {_LONGEST_NAME} characters, not {len(text)}")
    return text


def checked_json(data: Any, what: str) -> Any:
    """A copy of JSON data. Raises `TypeError` for anything else, such as NaN, and `ValueError` for data that is nested
    deeper than readers of JSON accept."""
    if is_too_deep(data):
        raise ValueError(f"{what} cannot be {too_deep()}, or contain themselves: store a text or a file instead")
    try:
        encoded = msgspec.json.encode(data)
        json.dumps(msgspec.to_builtins(data, str_keys=True), allow_nan=False)  # msgspec would encode NaN as null
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TypeError(f"{what} must be JSON: {error}") from error
    return msgspec.json.decode(encoded)


def info_of(session_id: str, start: SessionStarted, fold: Fold, problems: Sequence[Problem]) -> SessionInfo:
    """Describes the session as a list shows it."""
    known = [*problems, *fold.problems]
    return SessionInfo(
        id=session_id,
        title=fold.title or fold.first,
        created=start.created,
        updated=max(fold.updated, start.created),
        cwd=start.cwd,
        model=fold.model,
        messages=fold.count,
        usage=fold.usage,
        cost=fold.cost,
        pending=fold.pending,
        parent=start.parent,
        version=start.version,
        metadata=copy_json(start.metadata),
        problems=tuple([problem.words for problem in known]),
        damage=tuple([problem.words for problem in known if problem.is_damage]),
    )


class FoldedJournal(Journal, Protocol):
    """A journal that folds its entries."""

    @property
    def fold(self) -> Fold:
        """The fold of all recorded entries, including the last one."""
        ...


def past_of(journal: FoldedJournal) -> Past:
    """What an agent continues from: for `agent.attach_journal(journal, past_of(journal))`.

    Records a result for each call whose result was lost in a crash.
    """
    # Results at the end are recorded first, and the others name the call that they answer: ids may recur, and an open
    # call would take the result of another.
    for one in journal.fold.recovered()[1]:
        journal.record(MessageAdded(one.message, "result", one.call))
    inside, _ = journal.fold.recovered()
    if inside:
        recorded = {id(one.message): journal.record(MessageAdded(one.message, "given", one.call)) for one in inside}
        history, context = journal.fold.history_numbers(recorded), journal.fold.context_parts(recorded)
        journal.record(HistoryCut(tuple(history)))
        if context is not None:
            journal.record(ContextReplaced(tuple(context)))
    return journal.fold.past()
