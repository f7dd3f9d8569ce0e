"""One attempt at a run: creates the agent, gives it the recorded history, and continues where the log ends.

    the prompt is not on record    prompt
    calls wait, some answered      resume, with the answers
    calls wait, none answered      the run keeps waiting
    the last reply has no calls    the run is done: a worker died before it recorded that
    else                           continue

Model, prompt, tools and policies come from the current factory; history, state and compacted context from the log.

Owns this choice, and what the end of an agent's run means for the durable run. `journal` writes the records, `worker`
starts attempts and ends them early.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from swink_agent.core.agent.agent import Agent
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.context.context import is_answered
from swink_agent.core.encoding.codec import decode_message
from swink_agent.core.errors import ErrorKind
from swink_agent.core.journal import ContextReplaced, MessageAdded, StateChanged
from swink_agent.core.policy import PolicyContext, Stop
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage, AgentResult, CustomMessage, UserMessage, extract_text
from swink_agent.core.values.checks import a_kind
from swink_agent.core.values.decoders import json_decoder
from swink_agent.memory import EntryDecoder, Fold, NoteAdded, past_of

from .errors import DurableError, StoreUnavailable
from .info import storable
from .journal import RunCancelled, RunJournal
from .registry import AgentEntry
from .store.gate import Claim
from .store.store import Store
from .store.writing import PATIENCE, Ending, RecordTooLarge, RunLost
from .waiting import answer_to, decoded_answers, encoded_questions, note_of, questions_in

log = logging.getLogger("swink_agent")

_UNREACHABLE = frozenset({ErrorKind.THROTTLED, ErrorKind.NETWORK})
_LONGEST_BACK_OFF = 3600.0
_PAUSE = 0.5


class DrainPolicy:
    """Stops a run before its next request when its worker drains."""

    def __init__(self, is_draining: Callable[[], bool]) -> None:
        self._is_draining = is_draining
        self.has_stopped = False

    def pre_turn(self, ctx: PolicyContext, /) -> Stop | None:
        if self._is_draining():
            self.has_stopped = True
            return Stop("the worker stops: another continues the run")
        return None


class Attempt:
    """An attempt in progress. `run` returns when the run has another status, or is lost."""

    def __init__(
        self,
        store: Store,
        claim: Claim,
        entry: AgentEntry,
        *,
        types: Sequence[type[CustomMessage]],
        clock: Callable[[], int],
        is_draining: Callable[[], bool],
    ) -> None:
        self.claim = claim
        self.entry = entry
        self._store = store
        self._types = tuple(types)
        self._clock = clock
        self._drain = DrainPolicy(is_draining)
        self._agent: Agent[Any] | None = None
        self._making: asyncio.Timeout | None = None
        """The wait for the factory. An abort makes it expire."""
        self._token = CancellationToken()
        self._is_over = False
        self.journal: RunJournal | None = None

    @property
    def progressed(self) -> float:
        """When something was last recorded, by the event loop's clock; 0 before the log is read."""
        return 0.0 if self.journal is None else self.journal.progressed

    def abort(self) -> None:
        """Ends the agent's run: the run was cancelled, or cannot be written."""
        self._token.cancel()
        if self._agent is not None:
            self._agent.abort()
        elif self._making is not None:
            self._making.reschedule(asyncio.get_running_loop().time())

    def leave(self) -> None:
        """Ends the attempt without another record: the run is handed on."""
        self._is_over = True
        if self.journal is not None:
            self.journal.close()
        self.abort()

    async def run(self) -> bool:
        """Returns whether the run was left in order. If not, its row still has the status `running`, unless another
        worker has taken it over."""
        try:
            ending = await self._ending()
            if ending is None or self._is_over or self.journal is None:
                return self._is_over
            await self.journal.finish(ending)
        except RecordTooLarge as error:
            return await self._fail(str(error))
        except RunLost:
            log.info("run %s was taken over", self.claim.id)
        except Exception as error:
            log.warning("the attempt at run %s ended early: %s", self.claim.id, error)
            return False
        return True

    async def _ending(self) -> Ending | None:
        """Runs the agent, and returns how the attempt ends; `None` if the attempt was left before that."""
        claim, entry = self.claim, self.entry
        fold = await self._folded(claim.id)
        loop = asyncio.get_running_loop()
        journal = self.journal = RunJournal(
            self._store.writer, claim.id, claim.epoch, fold, claim.position, self._clock
        )
        journal.on_failure = self.abort
        if self._is_over:
            return None
        if claim.fruitless > entry.max_attempts:
            return Ending(status="failed", error=f"{entry.max_attempts} attempts in a row brought no new reply")
        journal.progressed = loop.time()
        try:
            ending = await self._job(journal) if entry.job is not None else await self._agents(journal)
        except (RunLost, RunCancelled):
            raise
        except Exception as error:
            ending = Ending(status="failed", error=_words(error))
            log.warning("run %s has failed: %s (%s)", claim.id, self._redactor.redact(ending.error), _origin(error))
        failure = journal.failure
        if failure is not None and not isinstance(failure, RunCancelled):
            raise failure
        return msgspec.structs.replace(ending, error=self._redactor.redact(ending.error)) if ending.error else ending

    @property
    def _redactor(self) -> Redactor:
        """Masks data that is stored in addition to the agent's records, by the same rules."""
        own = None if self._agent is None else self._agent.redactor
        return Redactor() if own is None else own

    async def _fail(self, words: str) -> bool:
        """Marks a run as failed because a record is too large; earlier records stay. Returns whether that succeeded."""
        try:
            info = await self._store_call(self._store.info, self.claim.id)
            fold = await self._folded(self.claim.id)
            journal = RunJournal(self._store.writer, self.claim.id, self.claim.epoch, fold, info.position, self._clock)
            await journal.finish(Ending(status="failed", error=words))
        except DurableError as error:
            log.warning("run %s cannot be ended: %s", self.claim.id, error)
            return False
        return True

    async def _folded(self, run_id: str) -> Fold:
        fold = Fold()
        decoder = EntryDecoder(self._types)
        for line in await self._store_call(self._store.lines, run_id):
            stamp = _STAMPS.decode(line)
            fold.add(stamp.seq, decoder.decode(line, stamp.seq), stamp.at)
        return fold

    async def _store_call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a method of the store. While the store cannot be reached, it retries, as writing does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while True:
            try:
                return await loop.run_in_executor(self._store.threads, lambda: method(*arguments))
            except StoreUnavailable:
                if loop.time() > deadline or self._is_over:
                    raise
            await asyncio.sleep(_PAUSE)

    # -- an agent ----------------------------------------------------------------------------------------------

    async def _agents(self, journal: RunJournal) -> Ending:
        claim = self.claim
        agent = await self._made()
        if agent is None:
            return Ending(status="queued")
        if claim.position == 0 and claim.after is not None:
            await self._inherit(journal, claim.after)
        has_past = journal.fold.has_messages or bool(journal.fold.state)
        agent.attach_journal(journal, past_of(journal) if has_past else None, keep_model=True)
        agent.add_policy(self._drain)
        self._agent = agent
        if self._is_over or journal.failure is not None:
            return Ending(status="queued")
        result = await self._go_on(agent, journal)
        return self._judged(agent, journal, result)

    async def _made(self) -> Agent[Any] | None:
        """The agent from the factory; `None` if the attempt was aborted first. The factory runs in the attempt's task,
        so that the context variables that it sets are valid for the agent."""
        assert self.entry.factory is not None
        try:
            made: Any = self.entry.factory()
            if inspect.isawaitable(made):
                async with asyncio.timeout(None) as self._making:
                    if self._token.is_cancelled:
                        self._making.reschedule(asyncio.get_running_loop().time())
                    made = await made
        except TimeoutError:
            if self._making is None or not self._making.expired():
                raise
            return None
        except SystemExit as error:  # it would end this worker, and then each worker that takes over the run
            raise RuntimeError(f"the factory of agent {self.entry.name!r} exits: {error.code}") from error
        finally:
            self._making = None
        if not isinstance(made, Agent):
            raise TypeError(f"the factory of agent {self.entry.name!r} gave {a_kind(made)}, not an Agent")
        if made.journal is not None:
            raise TypeError(
                f"the factory of agent {self.entry.name!r} gave an agent that is recorded elsewhere already"
            )
        return cast("Agent[Any]", made)

    async def _inherit(self, journal: RunJournal, earlier: str) -> None:
        """Begins with the history, the context and the state of a run that is over."""
        past = await self._folded(earlier)
        if not past.has_messages:
            await self._store_call(self._store.info, earlier)  # raises if it was deleted
        numbers: dict[int, int] = {}
        for message in past.messages:
            numbers[id(message)] = journal.record(MessageAdded(message, "given"))
        if past.context is not None:
            journal.record(ContextReplaced(tuple([numbers.get(id(message), message) for message in past.context])))
        if past.state:
            journal.record(StateChanged(past.state))

    async def _go_on(self, agent: Agent[Any], journal: RunJournal) -> AgentResult | None:
        """Runs the agent; `None` if there is nothing to do."""
        if self.claim.prompt is not None:
            return await agent.prompt(decoded_prompt(self.claim.prompt, self._types))
        questions = questions_in(journal.fold)
        if questions:
            answers = decoded_answers(self.claim.answers)
            given = {one.call.call_id: (one, answer) for one in questions if (answer := answer_to(one, answers))}
            if not given:
                return None
            for question, answer in given.values():
                journal.record(NoteAdded("answer", note_of(question, answer)), self._redactor)
            return await agent.resume({call_id: answer.answer for call_id, (_, answer) in given.items()})
        if is_answered(agent.messages):
            return None
        return await agent.continue_loop()

    def _judged(self, agent: Agent[Any], journal: RunJournal, result: AgentResult | None) -> Ending:
        """How the attempt ends, given the result of the agent's run."""
        if agent.pending and (result is None or (result.error is None and result.stopped_by is None)):
            questions = questions_in(journal.fold)
            asked = frozenset([(question.reply, question.call.call_id) for question in questions])
            return Ending(status="waiting", pending=encoded_questions(questions, self._redactor), asked=asked)
        if result is None:
            return Ending(status="done")
        if result.error is not None:
            if result.error_kind in _UNREACHABLE:
                return self._back_off(journal, result.error)
            return Ending(status="failed", error=storable(result.error))
        if result.stopped_by is not None:
            if self._drain.has_stopped:
                return Ending(status="queued", is_free=True)
            return Ending(status="failed", error=storable(f"{result.stopped_by.policy}: {result.stopped_by.reason}"))
        return Ending(status="done")

    def _back_off(self, journal: RunJournal, error: str) -> Ending:
        fruitless = 1 if journal.has_replied else self.claim.fruitless
        failures = 0 if journal.has_replied else self.claim.failures
        if fruitless >= self.entry.max_attempts:
            return Ending(status="failed", error=storable(f"{error} (in {fruitless} attempts in a row)"))
        delay = min(self.entry.back_off * 2 ** min(failures, 20), _LONGEST_BACK_OFF)
        return Ending(status="queued", error=storable(error), delay=delay, has_failed=True)

    # -- a job -------------------------------------------------------------------------------------------------

    async def _job(self, journal: RunJournal) -> Ending:
        assert self.entry.job is not None
        prompt = decoded_prompt(self.claim.prompt or "[]", self._types)
        text = "".join(extract_text(message.content) for message in prompt if isinstance(message, UserMessage))
        work = asyncio.ensure_future(self.entry.job(_JobRun(self.claim.id, text, self._token, journal)))
        cancelled = asyncio.ensure_future(self._token.wait())
        try:
            await asyncio.wait({work, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancelled.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
        if work.cancelled():
            return Ending(status="queued")
        journal.record(NoteAdded("result", work.result()))
        return Ending(status="done")


class _JobRun:
    """The `JobRun` of this attempt."""

    def __init__(self, run_id: str, text: str, cancel: CancellationToken, journal: RunJournal) -> None:
        self.id = run_id
        self.text = text
        self.cancel = cancel
        self._journal = journal

    async def note(self, kind: str, data: Any) -> None:
        self._journal.record(NoteAdded(kind, data))
        await self._journal.durable()


def decoded_prompt(text: str, types: Sequence[type[CustomMessage]]) -> list[AgentMessage]:
    return [decode_message(bytes(raw), types) for raw in _RAWS.decode(text)]


def _words(error: Exception) -> str:
    words = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)  # its text is the key
    return storable(words or type(error).__name__)


def _origin(error: Exception) -> str:
    """The type of an error and the line that raised it, for the author of the factory."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f", {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


class _Stamp(msgspec.Struct):
    """The number and the time of a record."""

    seq: int
    at: int


_STAMPS = json_decoder(_Stamp)
_RAWS = json_decoder(list[msgspec.Raw])
