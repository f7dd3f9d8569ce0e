"""The stream function of the on-device model.

Runs one call, from the conversation to stream events: fits the prompt into the window, decodes with a grammar, handles
cancellation. `loading` finds the model; `prompt` writes the prompt and reads the reply.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from swink_agent.core.cancel import CancellationToken, unless_cancelled
from swink_agent.core.context.context import new_document, refused_document
from swink_agent.core.errors import Aborted, AgentError, ErrorKind
from swink_agent.core.stream import (
    AssistantMessageEvent,
    StreamFailed,
    StreamOptions,
    StreamStart,
    prompt_text,
    resolved_prompt,
)
from swink_agent.core.tool import AgentTool, Toolbox
from swink_agent.core.types import AgentContext, LlmMessage, ModelSpec, ThinkingLevel, Usage

from .events import LocalModelError, LocalState, OnStateFn, notify
from .loading import EngineLoader
from .prompt.reply import ReplyParser
from .prompt.shown import ShownTool, shown, tools_text
from .prompt.text import AllowedReply, Turn, choice_of, fitted, last_complaint, plain, render_chatml, turns
from .weights.presets import DEFAULT_MODEL
from .weights.store import ModelStore
from .worker.engine import Engine, Workers
from .worker.values import (
    Chunk,
    Completion,
    EngineError,
    Finished,
    ModelInfo,
    Overflowed,
    Piece,
    Progress,
    WorkerSettings,
)

T = TypeVar("T")
DEFAULT_WINDOW = 8_192
"""Tokens. Small by default, because memory and reading time grow with the window."""
_REPLY_SHARE = 4  # at most this fraction of the window (1/4) is kept free for the reply
_FITTING_ROUNDS = 5
_TRIES = 3


class LocalStreamFn:
    """Runs models on this machine, with llama.cpp in a worker process that all agents of this process share.

    `model` is the name of a preset or the path of a GGUF file; if it is `None`, each call's model is used. A missing
    file is fetched on first use, unless `fetch` is false. `on_state` is called with every change of state and with
    progress, `on_finished` with the tokens and seconds of each reply. `brief` describes tools in few words, for small
    models; by default the size of the file decides.
    """

    provider = "local"
    is_bound = True

    def __init__(
        self,
        model: str | None = None,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        on_state: OnStateFn | None = None,
        on_finished: Callable[[Finished], object] | None = None,
        fetch: bool = True,
        context_length: int = DEFAULT_WINDOW,
        max_tokens: int = 1_024,
        result_characters: int = 4_000,
        threads: int = 0,
        gpu_layers: int | None = None,
        brief: bool | None = None,
        idle_seconds: float = 900.0,
        store: ModelStore | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.model = model
        self.store = store or ModelStore(cache_dir)
        self.max_tokens = max_tokens
        self.result_characters = result_characters
        self.brief = brief
        self.on_finished = on_finished
        settings = WorkerSettings(
            path="",
            state_dir=str(self.store.folder / ".states"),
            context_length=context_length,
            threads=threads,
            gpu_layers=gpu_layers,
            idle_seconds=idle_seconds,
        )
        self.engines = EngineLoader(self.store, settings, on_state=on_state, may_fetch=fetch, workers=workers)

    def __repr__(self) -> str:
        return f"LocalStreamFn({self.model or 'the model of each call'!r})"

    def check(self, model: ModelSpec, options: StreamOptions) -> None:
        """Raises `LocalModelError` if there is no model of that name. Does not fetch its file."""
        self.engines.check(self._named(model))

    async def __call__(
        self, model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        is_thinking = model.thinking_level != ThinkingLevel.OFF
        try:
            context = AgentContext(await resolved_prompt(context), context.messages, context.tools)
        except AgentError as error:
            yield StreamFailed(str(error), error.kind or ErrorKind.INVALID_REQUEST)
            return
        document = new_document(context.messages)
        if document is not None:
            yield StreamFailed(refused_document(self.provider, document), ErrorKind.INVALID_REQUEST)
            return
        call = _Call(self, self._named(model), context, options, cancel, is_thinking)
        yield StreamStart()
        try:
            async with aclosing(call.replies()) as replies:
                async for reply in replies:
                    for event in reply.take():
                        yield event
            return
        except Aborted:
            failure, kind = "the call was cancelled", ErrorKind.ABORTED
        except (LocalModelError, ValueError) as error:  # a ValueError: a schema that has no grammar
            failure, kind = str(error), ErrorKind.INVALID_REQUEST
        except EngineError as error:
            failure, kind = str(error), ErrorKind.NETWORK if error.is_gone else ErrorKind.STREAM
        except _CannotFit as error:
            failure, kind = str(error), ErrorKind.CONTEXT_OVERFLOW
        if kind in (ErrorKind.INVALID_REQUEST, ErrorKind.NETWORK, ErrorKind.STREAM):
            self.engines.tell(LocalState.FAILED, call.name, failure)
        call.reply.fail(failure, kind, call.usage)
        for event in call.reply.take():
            yield event

    async def embed(self, texts: str | Sequence[str], model: str | None = None) -> list[list[float]]:
        """Returns one unit vector per text: the mean of the model's states. One string is one text.

        Raises `LocalModelError`.
        """
        name = model or self.model or DEFAULT_MODEL
        if not texts:
            return []
        try:
            engine = await self.engines.engine(name, CancellationToken(), embedding=True)
            await self.engines.loaded(engine, name)
            return await engine.embed([texts] if isinstance(texts, str) else list(texts))
        except EngineError as error:
            raise LocalModelError(f"{name} could not embed: {error}", model=name) from error

    async def prepare(
        self, tools: Sequence[AgentTool], system_prompt: str = "", *, cancel: CancellationToken | None = None
    ) -> None:
        """Lets the model read the common beginning of all prompts, and keeps its state on disk for a quicker first run.

        The beginning is the tools and, if the system prompt has several paragraphs, the first one. Raises
        `LocalModelError`, and `Aborted` when cancelled.
        """
        context, token = AgentContext(system_prompt, (), tuple(tools)), cancel or CancellationToken()
        call = _Call(self, self.model or DEFAULT_MODEL, context, StreamOptions(), token, False)
        try:
            await call.prepare()
        except EngineError as error:
            raise LocalModelError(f"{call.name} could not read its tools: {error}", model=call.name) from error

    def close(self) -> None:
        """Ends the workers that this function uses, shared or not. The next call starts one again."""
        self.engines.close()

    def _named(self, model: ModelSpec) -> str:
        return self.model or (model.model_id if model.provider == self.provider else DEFAULT_MODEL)


class _CannotFit(Exception):
    """The parts of the prompt that must stay are longer than the window."""


class _Call(Struct, eq=False):
    """One call of the stream function."""

    owner: LocalStreamFn
    name: str
    context: AgentContext
    options: StreamOptions
    cancel: CancellationToken
    is_thinking: bool
    is_brief: bool = True
    reply: ReplyParser = field(default_factory=ReplyParser)
    usage: Usage | None = None

    async def replies(self) -> AsyncGenerator[ReplyParser, None]:
        """Yields the reply's parser whenever there are events to take from it."""
        engine, info, tools = await self._ready()
        thinks = "<think>" in info.template
        complaint = last_complaint(self.context)
        choice = choice_of(
            self.context,
            shown(self.context.tools, is_brief=self.is_brief, mentioned=complaint) if complaint else tools,
            self.options,
            is_brief=self.is_brief,
            thinks=thinks,
            is_thinking=self.is_thinking,
        )
        conversation = turns(
            cast("Sequence[LlmMessage]", self.context.messages),
            with_tools=bool(self.context.tools) and self.options.tool_choice != "none",
            result_characters=self.owner.result_characters,
        )
        # The longest reply in tokens. This part of the window is kept free for it.
        limit = max(1, min(self.options.max_tokens or self.owner.max_tokens, info.context_length // _REPLY_SHARE))
        kept: list[Turn] | None = conversation
        for _ in range(_FITTING_ROUNDS):
            request = await self._prompted(engine, info, tools, kept, choice)
            tokens = 0
            async with aclosing(self._decoded(engine, request, choice, limit, info)) as items:
                async for item in items:
                    if isinstance(item, Overflowed):
                        tokens = item.prompt_tokens
                    else:
                        yield item
            if not tokens:
                return
            # The overflow shows how many characters of this conversation make a token.
            length = len(request.prompt)
            most = int(length / tokens * (info.context_length - limit) * 0.97)
            others = length - sum(turn.length for turn in kept)
            kept = fitted(conversation, most - others)
            if kept is None:
                break
        raise _CannotFit(
            f"the system prompt, the last request and the newest turn are longer than the window of {self.name}, "
            f"{info.context_length:,} tokens: shorten them, or give LocalStreamFn a larger context_length"
        )

    async def prepare(self) -> None:
        engine, info, tools = await self._ready()
        request = await self._prompted(engine, info, tools, [], AllowedReply())
        if request.prefixes:
            request = replace(request, prompt=request.prompt[: request.prefixes[-1]], max_tokens=0)
            async for chunk in self._chunks(engine, request):
                if isinstance(chunk, Progress):
                    self.owner.engines.tell(LocalState.READY, self.name, "", chunk.done, chunk.total)

    async def _ready(self) -> tuple[Engine, ModelInfo, list[ShownTool]]:
        """The engine with its model in memory, and the tools as they are shown to it."""
        engines = self.owner.engines
        engine = await unless_cancelled(self.cancel, engines.engine(self.name, self.cancel))
        info = await unless_cancelled(self.cancel, engines.loaded(engine, self.name))
        self.is_brief = engines.is_small(engine) if self.owner.brief is None else self.owner.brief
        return engine, info, shown(self.context.tools, is_brief=self.is_brief)

    # -- the prompt ------------------------------------------------------------------------------------------

    async def _prompted(
        self, engine: Engine, info: ModelInfo, offered: Sequence[ShownTool], kept: Sequence[Turn], choice: AllowedReply
    ) -> Completion:
        """The request, with only its prompt and prefixes.

        The prompt begins with the parts that are the same in every folder, so that the model's state after them can be
        kept on disk: the tools, and the first of several paragraphs of the system prompt, as later ones change.
        """
        tools = tools_text(offered, is_brief=self.is_brief) if offered else ""
        system = plain(prompt_text(self.context.system_prompt))
        whole = "\n\n".join(part for part in (tools, system) if part)
        if "<|im_start|>" in info.template or not info.template:
            text = render_chatml(whole, kept)
        else:
            roles = [("system", whole)] if whole else []
            roles += [pair for turn in kept for pair in turn.texts]
            text = await unless_cancelled(self.cancel, engine.render(_alternating(roles)))
        return Completion(prompt=text + choice.start, prefixes=_stable(text, tools, system) if tools else ())

    # -- decoding --------------------------------------------------------------------------------------------

    async def _decoded(
        self, engine: Engine, request: Completion, choice: AllowedReply, limit: int, info: ModelInfo
    ) -> AsyncGenerator[ReplyParser | Overflowed, None]:
        """Yields the parser when it has events. If the grammar is not exact, calls are decoded until one is valid."""
        toolbox = (
            Toolbox(cast("Sequence[AgentTool]", self.context.tools)) if choice.is_call and not choice.is_exact else None
        )
        problem: str | None = None
        for attempt in range(1, _TRIES + 1):
            self.reply = ReplyParser(in_call=choice.is_call and choice.start != "", is_held=toolbox is not None)
            finished: Finished | None = None
            read, pieces = Progress(0, 0), 0
            async with aclosing(self._chunks(engine, self._try(request, choice, limit, attempt))) as chunks:
                async for chunk in chunks:
                    match chunk:
                        case Overflowed():
                            yield chunk
                            return
                        case Progress(done, total, _):
                            read = chunk
                            if total > info.context_length - limit:
                                yield Overflowed(total, info.context_length)
                                return
                            self.owner.engines.tell(LocalState.READY, self.name, "", done, total)
                        case Piece(text):
                            self.reply.feed(text)
                            yield self.reply
                            pieces += 1
                            if self.reply.is_looping:
                                finished = Finished(True, read.total, read.cached, pieces)
                                break
                        case Finished():
                            finished = chunk
            if finished is None:
                raise EngineError("the worker's answer broke off", is_gone=True)
            self._count(finished)
            problem = None if toolbox is None else _problem(toolbox, self.reply)
            if problem is None:
                self.reply.release()
                self.reply.done(self.usage or Usage(), is_cut=finished.is_cut)
                yield self.reply
                return
        raise EngineError(f"{self.name} did not write a valid call in {_TRIES} tries: {problem}")

    def _try(self, request: Completion, choice: AllowedReply, limit: int, attempt: int) -> Completion:
        """The request of one try. A second try is not greedy: a greedy one would write the same again."""
        temperature = self.options.temperature if self.options.temperature is not None else 0.0
        return replace(
            request,
            grammar=choice.grammar,
            max_tokens=limit,
            temperature=temperature if attempt == 1 else max(0.6, temperature),
            seed=cast("int | None", self.options.extra.get("seed")) if attempt == 1 else attempt,
        )

    async def _chunks(self, engine: Engine, request: Completion) -> AsyncGenerator[Chunk, None]:
        async with aclosing(engine.complete(request)) as chunks:
            while True:
                try:
                    chunk = await unless_cancelled(self.cancel, anext(chunks))
                except StopAsyncIteration:
                    return
                yield chunk

    def _count(self, finished: Finished) -> None:
        usage = Usage(
            input=finished.prompt_tokens - finished.cached_tokens,
            output=finished.output_tokens,
            cache_read=finished.cached_tokens,
            total=finished.prompt_tokens + finished.output_tokens,
        )
        self.usage = usage if self.usage is None else self.usage + usage
        notify(self.owner.on_finished, finished)


def _stable(text: str, tools: str, system: str) -> tuple[int, ...]:
    """The positions in the text where the tools end, and where the system prompt's first paragraph after them ends."""
    end = text.find(tools) + len(tools)
    if end < len(tools):  # the template changed the text of the tools
        return ()
    paragraph, blank, _ = system.partition("\n\n")
    longer = text.find(paragraph, end) + len(paragraph) if blank else 0
    return (end, longer) if longer > end + len(paragraph) else (end,)


def _problem(toolbox: Toolbox, reply: ReplyParser) -> str | None:
    """The first problem with the calls, if the grammar could not ensure that they are valid."""
    for name, arguments in reply.calls:
        problem: Any = toolbox.problems(name, msgspec.json.decode(arguments))
        if problem is not None:
            return f"invalid arguments for {name}: {problem}"
    return None


def _alternating(roles: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Joins consecutive messages of one role: many templates refuse them."""
    merged: list[tuple[str, str]] = []
    for role, text in roles:
        if merged and merged[-1][0] == role:
            merged[-1] = (role, f"{merged[-1][1]}\n\n{text}")
        else:
            merged.append((role, text))
    return merged
