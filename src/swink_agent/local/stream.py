"""The stream function of the on-device model.

Owns one call from the conversation to stream events: finding or fetching the file, loading it, fitting the prompt into the
window, decoding under the grammar, cancellation. The parts are in `store`, `worker`, `prompt`, `window` and `_reply`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from swink_agent.core.cancel import CancellationToken, call_in
from swink_agent.core.errors import Aborted, ErrorKind
from swink_agent.core.stream import AssistantMessageEvent, StreamOptions
from swink_agent.core.tool import Toolbox
from swink_agent.core.types import AgentContext, LlmMessage, ModelSpec, ThinkingLevel, Usage
from swink_agent.core.value import Value

from ._reply import ReplyParser
from ._worker import WorkerSettings
from .engine import Completion, Engine, EngineError, Finished, ModelInfo, Overflowed, Piece, Progress
from .events import LocalModelError, LocalModelEvent, LocalState, OnStateFn
from .presets import DEFAULT_MODEL, preset_named
from .prompt import Choice, ShownTool, Turn, choice_of, plain, render_chatml, shown, tools_text, turns
from .store import ModelStore, is_path
from .window import fitted
from .worker import WorkerEngine, Workers, shared_workers

__all__ = ["LocalStreamFn"]

T = TypeVar("T")
_WINDOW = 8_192
_SMALL_BYTES = 3_000_000_000
_REPLY_SHARE = 4  # of the window, at most one part in so many is kept free for the reply
_FITTING_ROUNDS = 4
_TRIES = 3
_FIRST_GUESS = 3.2  # characters to a token


class LocalStreamFn:
    """Models on this machine, through llama.cpp in a worker process that all agents of this process share.

    `model` is the name of a preset or the path of a GGUF file; without one, each call's own model is used. What is not
    there yet is fetched on first use, unless `fetch` is false. `on_state` hears of every change of state and of
    progress, `on_finished` of the tokens and seconds of each reply.
    """

    provider = "local"

    def __init__(
        self,
        model: str | None = None,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        on_state: OnStateFn | None = None,
        on_finished: Callable[[Finished], object] | None = None,
        fetch: bool = True,
        context_length: int = _WINDOW,
        max_tokens: int = 1_024,
        result_characters: int = 4_000,
        threads: int = 0,
        gpu_layers: int | None = None,
        brief: bool | None = None,
        idle_seconds: float = 900.0,
        store: ModelStore | None = None,
        workers: Workers | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.model = model
        self.store = store or ModelStore(cache_dir)
        self._on_state = on_state
        self._on_finished = on_finished
        self._may_fetch = fetch
        self._context_length = context_length
        self._max_tokens = max_tokens
        self._result_characters = result_characters
        self._threads = threads
        self._gpu_layers = gpu_layers
        self._brief = brief
        self._idle_seconds = idle_seconds
        self._workers = workers
        self._engine = engine

    def __repr__(self) -> str:
        return f"LocalStreamFn({self.model or 'the model of each call'!r})"

    # -- the stream ----------------------------------------------------------------------------------------------

    async def __call__(
        self, model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        call = _Call(self, self._named(model), context, options, cancel, model.thinking_level != ThinkingLevel.OFF)
        reply = ReplyParser()
        for event in reply.take():
            yield event
        try:
            async with aclosing(call.replies()) as replies:
                async for reply in replies:
                    for event in reply.take():
                        yield event
            return
        except Aborted:
            failure, kind = "the call was cancelled", ErrorKind.ABORTED
        except LocalModelError as error:
            failure, kind = str(error), ErrorKind.INVALID_REQUEST
            self._tell(LocalState.FAILED, call.name, failure)
        except EngineError as error:
            failure, kind = str(error), ErrorKind.NETWORK if error.is_gone else ErrorKind.STREAM
            self._tell(LocalState.FAILED, call.name, failure)
        except _CannotFit as error:
            failure, kind = str(error), ErrorKind.CONTEXT_OVERFLOW
        except ValueError as error:  # a tool whose schema cannot be made into a grammar
            failure, kind = str(error), ErrorKind.INVALID_REQUEST
        reply = call.reply or reply
        reply.fail(failure, kind, call.usage)
        for event in reply.take():
            yield event

    async def embed(self, texts: Sequence[str], model: str | None = None) -> list[list[float]]:
        """One vector per text, of length one, from the model's own states. Raises `LocalModelError`."""
        name = model or self.model or DEFAULT_MODEL
        if not texts:
            return []
        try:
            engine = await self._engine_for(name, CancellationToken(), embedding=True)
            await engine.load()
            return await engine.embed(list(texts))
        except EngineError as error:
            raise LocalModelError(f"{name} could not embed: {error}", model=name) from error

    def close(self) -> None:
        """Ends the workers that this function uses; other stream functions of this process start theirs again."""
        (self._workers or shared_workers()).close()

    # -- models --------------------------------------------------------------------------------------------------

    def _named(self, model: ModelSpec) -> str:
        return self.model or (model.model_id if model.provider == self.provider else DEFAULT_MODEL)

    async def _engine_for(self, name: str, cancel: CancellationToken, *, embedding: bool = False) -> Engine:
        """The engine that holds the model, its file found or fetched. Raises `LocalModelError` and `Aborted`."""
        if self._engine is not None:
            return self._engine
        path = await _in_thread(partial(self._file, name, cancel))
        settings = WorkerSettings(
            path=str(path),
            state_dir=str(self.store.folder / ".states"),
            context_length=min(self._context_length, self._longest(name)),
            threads=self._threads,
            gpu_layers=self._gpu_layers,
            embedding=embedding,
            idle_seconds=self._idle_seconds,
        )
        return (self._workers or shared_workers()).engine(settings)

    def _file(self, name: str, cancel: CancellationToken) -> Path:
        path = self.store.find(name)
        if path is not None:
            return path
        if not self._may_fetch:
            raise LocalModelError(f"{name} is not on this machine yet: swink models pull {name}", model=name)
        return self.store.fetch(name, self._on_state, cancel=cancel)

    def _longest(self, name: str) -> int:
        return self._context_length if is_path(name) else preset_named(name, self.store.presets).context_length

    def is_brief(self, engine: Engine) -> bool:
        """Whether tools are shown in brief: by choice, or because the model is small."""
        if self._brief is not None or not isinstance(engine, WorkerEngine):
            return self._brief is not False
        return os.path.getsize(engine.settings.path) < _SMALL_BYTES

    async def _loaded(self, engine: Engine, name: str) -> ModelInfo:
        if isinstance(engine, WorkerEngine) and engine.is_loaded:
            return await engine.load()
        self._tell(LocalState.LOADING, name)
        info = await engine.load()
        self._tell(LocalState.READY, name)
        return info

    def _tell(self, state: LocalState, name: str, message: str = "", done: int = 0, total: int = 0) -> None:
        if self._on_state is not None:
            try:
                self._on_state(LocalModelEvent(state, name, message, done, total))
            except Exception:  # what listens must not fail a reply
                logging.getLogger("swink_agent").exception("a listener of a local model failed")


class _CannotFit(Exception):
    """What has to stay in the prompt is longer than the window."""


class _Prompt(Value, frozen=True):
    text: str
    prefix: int = 0


class _Call:
    """One call of the stream function."""

    def __init__(
        self,
        owner: LocalStreamFn,
        name: str,
        context: AgentContext,
        options: StreamOptions,
        cancel: CancellationToken,
        is_thinking: bool,
    ) -> None:
        self.owner = owner
        self.name = name
        self.context = context
        self.options = options
        self.cancel = cancel
        self.is_thinking = is_thinking
        self.reply: ReplyParser | None = None
        self.usage: Usage | None = None

    async def replies(self) -> AsyncIterator[ReplyParser]:
        """The reply's parser, again whenever there are events to take from it."""
        owner = self.owner
        engine = await self._unless_cancelled(owner._engine_for(self.name, self.cancel))
        info = await self._unless_cancelled(owner._loaded(engine, self.name))
        tools = shown(self.context.tools, is_brief=owner.is_brief(engine))
        choice = choice_of(
            self.context, tools, self.options, thinks="<think>" in info.template, is_thinking=self.is_thinking
        )
        conversation = self._conversation()
        limit = self._reply_tokens(info)
        most = int((info.context_length - limit) * _FIRST_GUESS)
        for attempt in range(_FITTING_ROUNDS):
            kept = fitted(conversation, most - len(self._system())) if attempt else conversation
            if kept is None:
                raise _CannotFit(self._too_long(info))
            prompt = await self._prompt(engine, info, tools, kept, choice)
            tokens = 0
            async with aclosing(self._decoded(engine, prompt, choice, limit, info)) as parsers:
                async for item in parsers:
                    if isinstance(item, Overflowed):
                        tokens = item.prompt_tokens
                        break
                    yield item
                else:
                    return
            # Known now: how many characters of this very conversation make a token.
            most = int(len(prompt.text) / tokens * (info.context_length - limit) * 0.97)
        raise _CannotFit(self._too_long(info))

    def _too_long(self, info: ModelInfo) -> str:
        return (
            f"the system prompt, the last request and the newest turn are longer than the window of {self.name}, "
            f"{info.context_length:,} tokens: shorten them, or give LocalStreamFn a larger context_length"
        )

    def _reply_tokens(self, info: ModelInfo) -> int:
        """How long the reply may get; so much of the window is kept free for it."""
        return max(1, min(self.options.max_tokens or self.owner._max_tokens, info.context_length // _REPLY_SHARE))

    # -- the prompt ----------------------------------------------------------------------------------------------

    def _system(self) -> str:
        prompt = self.context.system_prompt
        return plain(prompt if isinstance(prompt, str) else prompt())

    def _with_tools(self) -> bool:
        return bool(self.context.tools) and self.options.tool_choice != "none"

    def _conversation(self) -> list[Turn]:
        messages = cast("Sequence[LlmMessage]", self.context.messages)
        return turns(messages, with_tools=self._with_tools(), result_characters=self.owner._result_characters)

    async def _prompt(
        self, engine: Engine, info: ModelInfo, offered: Sequence[ShownTool], kept: Sequence[Turn], choice: Choice
    ) -> _Prompt:
        """The tools come first: they are the same from folder to folder, so their state can be kept on disk."""
        tools = tools_text(offered, with_answer=True) if offered else ""
        whole = "\n\n".join(part for part in (tools, self._system()) if part)
        if "<|im_start|>" in info.template or not info.template:
            text = render_chatml(whole, kept)
        else:
            roles = [("system", whole)] if whole else []
            roles += [pair for turn in kept for pair in turn.texts]
            text = await self._unless_cancelled(engine.render(_alternating(roles)))
        end = text.find(tools) + len(tools) if tools and tools in text else 0
        return _Prompt(text + choice.start, end)

    # -- decoding ------------------------------------------------------------------------------------------------

    async def _decoded(
        self, engine: Engine, prompt: _Prompt, choice: Choice, limit: int, info: ModelInfo
    ) -> AsyncIterator[ReplyParser | Overflowed]:
        """The parser, whenever it has events; a call that only a validator can judge is decoded until it is valid."""
        toolbox = Toolbox(self.context.tools) if choice.is_call and not choice.is_exact else None
        for attempt in range(1, _TRIES + 1):
            reply = ReplyParser(in_call=choice.is_call and choice.start != "", is_held=toolbox is not None)
            reply.take()  # the start was passed on already
            temperature = self.options.temperature if self.options.temperature is not None else 0.0
            request = Completion(
                prompt=prompt.text,
                prefix=prompt.prefix,
                grammar=choice.grammar,
                max_tokens=limit,
                temperature=temperature if attempt == 1 else max(0.5, temperature),
                seed=None if attempt == 1 else attempt,
            )
            self.reply = reply
            finished: Finished | None = None
            async with aclosing(self._chunks(engine, request)) as chunks:
                async for chunk in chunks:
                    match chunk:
                        case Overflowed():
                            yield chunk
                            return
                        case Progress(done, total, _):
                            if total > info.context_length - limit:
                                yield Overflowed(total, info.context_length)
                                return
                            self.owner._tell(LocalState.READY, self.name, "", done, total)
                        case Piece(text):
                            reply.feed(text)
                            yield reply
                        case Finished():
                            finished = chunk
            if finished is None:
                raise EngineError("the worker ended its answer without saying so", is_gone=True)
            self._count(finished)
            problems = _problems(toolbox, reply)
            if problems is None or finished.is_cut:
                reply.release()
                reply.done(self.usage or Usage(), is_cut=finished.is_cut)
                yield reply
                return
        raise EngineError(f"{self.name} wrote no call that its tool's schema accepts in {_TRIES} tries: {problems}")

    async def _chunks(self, engine: Engine, request: Completion) -> AsyncIterator[Any]:
        async with aclosing(cast("Any", engine.complete(request))) as chunks:
            while True:
                try:
                    chunk = await self._unless_cancelled(anext(chunks))
                except StopAsyncIteration:
                    return
                yield chunk

    def _count(self, finished: Finished) -> None:
        if self.owner._on_finished is not None:
            self.owner._on_finished(finished)
        usage = Usage(
            input=finished.prompt_tokens - finished.cached_tokens,
            output=finished.output_tokens,
            cache_read=finished.cached_tokens,
            total=finished.prompt_tokens + finished.output_tokens,
        )
        self.usage = usage if self.usage is None else self.usage + usage

    async def _unless_cancelled(self, work: Awaitable[T]) -> T:
        """The outcome of the work, unless the token is cancelled first: then the work is stopped and `Aborted` raised."""
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        key = self.cancel.add_callback(lambda: call_in(loop, task.cancel))
        try:
            return await task
        except asyncio.CancelledError:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
            if self.cancel.is_cancelled and not _is_being_cancelled():
                raise Aborted from None
            raise
        finally:
            self.cancel.remove_callback(key)


def _is_being_cancelled() -> bool:
    """Whether somebody cancels the caller's own task, token or not."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _problems(toolbox: Toolbox | None, reply: ReplyParser) -> str | None:
    """What is wrong with the calls that a grammar alone could not keep right."""
    for name, arguments in reply.calls if toolbox is not None else ():
        assert toolbox is not None
        problem = toolbox.problems(name, msgspec.json.decode(arguments))
        if problem is not None:
            return str(problem)
    return None


def _alternating(roles: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Messages of one role behind each other as one: many templates refuse them."""
    merged: list[tuple[str, str]] = []
    for role, text in roles:
        if merged and merged[-1][0] == role:
            merged[-1] = (role, f"{merged[-1][1]}\n\n{text}")
        else:
            merged.append((role, text))
    return merged


async def _in_thread(function: Callable[[], T]) -> T:
    """The function's outcome, from a thread of its own: a fetch may take minutes, and must not keep a program alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(outcome: T | None, error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(cast("T", outcome))
            else:
                future.set_exception(error)

    def run() -> None:
        try:
            outcome = function()
        except BaseException as error:
            call_in(loop, deliver, None, error)
        else:
            call_in(loop, deliver, outcome, None)

    threading.Thread(target=run, name="swink-local-file", daemon=True).start()
    return await future
