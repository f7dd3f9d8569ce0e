"""The AG-UI protocol at `/agui`: each request begins or continues a run, and streams its events in the protocol's form.

Owns the client's tools and answers, and the translation of our events; `threads` compares messages. The protocol's
events and encoder come from `ag-ui-protocol` (extra `agui`). Sessions, questions and runs are the same as in all other
routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from aiohttp import web

from swink_agent.app.shown.changes import (
    Begun,
    Call,
    Change,
    Changes,
    Delegate,
    Discarded,
    Notice,
    delegate_words,
    stopped_words,
)
from swink_agent.app.shown.changes import Text as Shown
from swink_agent.core.agent.agent import Agent
from swink_agent.core.encoding.codec import decode_event
from swink_agent.core.events import AgentEvent, MessageEnd, MessageRetry, MessageStart, MessageUpdate, ModelFallback
from swink_agent.core.machine.extras import MissingExtra, require
from swink_agent.core.policy import PolicyContext
from swink_agent.core.run.turn import Tools, takes_context
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import ToolCallDelta
from swink_agent.core.tool import AgentTool, AgentToolResult
from swink_agent.core.types import AgentMessage, PolicyStop, Text, ToolCall
from swink_agent.core.values.data import as_json_data
from swink_agent.core.values.decoders import converted
from swink_agent.mcp.schemas import UnusableSchema, tame_schema
from swink_agent.memory import SessionNotFound

from .channels import SessionChannel
from .client import instruct
from .problems import NotBegun, Problem, invalid
from .questions import Question
from .routes.asking import MOST_JSON, read_bytes
from .site import Site
from .streams import write_in_time
from .talks import Talk
from .threads import Place, as_history, data_of, has_content, linked, news, session_of, text_of

_MOST_BYTES = 32 * MOST_JSON
_MOST_TOOLS = 128
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_READ = frozenset(
    {
        *("message_start", "message_update", "message_retry", "model_fallback", "message_end"),
        *("context_compacted", "delegate_event", "tool_execution_end"),
    }
)
"""Events of a run that are read as in every front end. Its end may have messages of the application's types."""
_REPLIES = frozenset({"message_start", "message_retry", "model_fallback"})
"""Events that begin a reply, or begin it anew."""
_MAY_CHANGE_STATE = frozenset({"tool_execution_end", "turn_end", "agent_end"})
_LOOK = 0.25
"""Seconds between two checks whether the client has left."""


class _ClientTool:
    """A tool of the client: its calls wait until the client sends their results."""

    requires_approval = False
    external = True

    def __init__(self, name: str, description: str, schema: dict[str, Any]) -> None:
        self.name = self.label = name
        self.description = description
        self.parameters_schema = schema

    async def execute(self, arguments: dict[str, Any], ctx: Any) -> AgentToolResult:
        raise AssertionError("a tool of the client is never executed here")


class _WithClientTools:
    """The tools of each turn: the agent's own, which may change, and the client's. The agent's own win.

    `by` is the user whose request offers the client's tools.
    """

    def __init__(self, own: Tools, added: Sequence[_ClientTool], by: str) -> None:
        self.own = own
        self.by = by
        self.names: frozenset[str] = frozenset()
        """The names of the client's tools that the agent has in this turn."""
        self._added = added
        self.known = self._joined(getattr(own, "known", ()) if callable(own) else own)
        """The tools before the first turn."""

    async def __call__(self, ctx: PolicyContext) -> Iterable[AgentTool]:
        own: Any = self.own
        if callable(own):
            own = own(ctx) if takes_context(own, "tools") else own()
        return self._joined(await own if inspect.isawaitable(own) else own)

    def _joined(self, tools: Iterable[AgentTool]) -> list[AgentTool]:
        own = [tool for tool in tools if not isinstance(tool, _ClientTool)]
        names = {tool.name for tool in own}
        added = [tool for tool in self._added if tool.name not in names]
        self.names = frozenset([tool.name for tool in added])
        return [*own, *added]


async def serve(site: Site, request: web.Request) -> web.StreamResponse:
    """Answers one request of the protocol."""
    try:
        core, encoding = require("ag_ui.core", extra="agui"), require("ag_ui.encoder", extra="agui")
    except MissingExtra as error:
        raise Problem(501, "no_agui", str(error)) from None
    data = await read_bytes(request, _MOST_BYTES)
    if request.content_type != "application/json":
        raise Problem(415, "media_type", "the body must be sent as application/json")
    given = _read(core, data)
    tools = _client_tools(given.tools or ())
    session = session_of(given.thread_id)
    known = await site.info(session)  # a thread that we do not know becomes a session of this user
    by = await site.authorized(request, "write", known)
    if given.resume:
        await site.authorized(request, "answer", known)
    site.readers.refuse_if_full()
    channel = await _channel(site, session, given, by)
    if known is None:  # another request may have made it meanwhile
        await site.authorized(request, "write", session)
    encoder: Any = encoding.EventEncoder(request.headers.get("accept", ""))
    with contextlib.ExitStack() as stack:
        async with channel.opening:
            talk = await _opened(channel, given, by)
            position, calls = channel.log.position, StreamedCalls(talk.agent)
            state = _encoded(talk.agent.state)
            stack.enter_context(talk.agent.subscribe(calls.hear))
            await _begin(site, request, channel, talk, given, tools, by)
        run = Translation(core, given.thread_id, given.run_id, calls, state)
        stack.enter_context(site.readers.counted())
        return await _stream(request, channel, talk, run, position, encoder)


def _read(core: Any, data: bytes) -> Any:
    """Returns the parsed request. Raises 400 and 422."""
    try:
        return core.RunAgentInput.model_validate_json(data)
    except ValueError as error:
        problems: Any = cast("Any", error).errors(include_input=False, include_url=False)
    if any(each["type"] == "json_invalid" for each in problems):
        raise Problem(400, "not_json", "the body is not JSON")
    raise invalid("; ".join([f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in problems[:5]]))


def _client_tools(given: Sequence[Any]) -> list[_ClientTool]:
    """The client's tools, with schemas for every provider. Raises 422 for a tool that a provider would refuse: it
    would refuse the whole request, and every later one."""
    names = [tool.name for tool in given]
    if len(names) > _MOST_TOOLS or len(set(names)) < len(names):
        raise invalid(f"tools has at most {_MOST_TOOLS} tools, each with its own name")
    tools: list[_ClientTool] = []
    for tool in given:
        if not _TOOL_NAME.fullmatch(tool.name):
            raise invalid(f"the name of a tool has 1 to 64 of A-Z, a-z, 0-9, '_' and '-', not {tool.name[:80]!r}")
        try:
            schema = tame_schema(tool.parameters or {"type": "object"})
        except UnusableSchema as error:
            raise invalid(f"the tool {tool.name!r} cannot be offered: its schema {error}") from None
        tools.append(_ClientTool(tool.name, tool.description, schema))
    return tools


async def _channel(site: Site, session: str, given: Any, by: str) -> SessionChannel:
    try:
        return site.channels.of(await site.find(session))
    except SessionNotFound:
        if given.resume or not any(message.role == "user" and has_content(message) for message in given.messages):
            raise invalid("a new thread begins with a user's message") from None
        return site.channels.of(await site.create("", None, None, session, by=by))


async def _opened(channel: SessionChannel, given: Any, by: str) -> Talk:
    if not given.resume:
        if channel.is_busy:
            raise Problem(409, "running", "a run of this session is active: answer its question, or stop it")
        channel.client.take(given)
        talk = await channel.opened(by)
        instruct(talk.agent, channel.client, talk.redact)
        return talk
    if channel.talk is None:
        raise Problem(409, "answered", "no run of this session waits for an answer")
    return channel.talk


async def _begin(
    site: Site,
    request: web.Request,
    channel: SessionChannel,
    talk: Talk,
    given: Any,
    tools: Sequence[_ClientTool],
    by: str,
) -> None:
    """Begins the run that the request asks for, or answers the questions that a run waits for."""
    if given.resume:
        for entry in given.resume:
            choice, reason = _chosen(entry)
            channel.questions.answer(entry.interrupt_id, choice, reason, None, by)
        return
    channel.questions.close_offers()
    waiting = {call.call_id for call in talk.agent.pending if call.kind == "external"}
    results = {
        message.tool_call_id: AgentToolResult((Text(message.error or text_of(message)),), None, bool(message.error))
        for message in given.messages
        if message.role == "tool" and message.tool_call_id in waiting
    }
    if any(channel.client_calls.get(call_id) != by for call_id in results):  # else the tool is this client's own
        await site.authorized(request, "answer", channel.id)
    channel.offered = _offer(talk, tools, by)
    try:
        if results:
            await talk.resume(results)
        else:
            await _prompt(site, request, channel, talk, given.messages)
    except BaseException:
        channel.offered = None  # no run has begun with them
        raise


async def _prompt(
    site: Site, request: web.Request, channel: SessionChannel, talk: Talk, messages: Sequence[Any]
) -> None:
    """Starts a run with the messages that the session does not have yet."""
    agent = talk.agent
    found = await asyncio.to_thread(news, messages, tuple(agent.messages), channel.client_messages, talk.redact)
    if not any(has_content(message) for message in found.prompts):
        raise invalid("messages ends with neither a prompt nor a result that this session does not have yet")
    texts = [text_of(message) for message in found.prompts]
    prompt = "\n\n".join([words for words in texts if words])
    if len(prompt) > MOST_JSON:
        raise Problem(413, "too_large", f"the prompt is longer than {MOST_JSON:,} characters")
    redactor = agent.redactor or Redactor()

    def read() -> tuple[list[AgentMessage], list[str]]:
        earlier = [redactor.redact_message(message) for message in as_history(found.earlier, site.max_upload)]
        return earlier, _files(site, channel, found.prompts)

    earlier, files = await asyncio.to_thread(read)
    attached = [each for message in found.prompts for each in linked(message)]
    if found.cut is not None:
        await _fork(site, request, channel, talk, found.cut)
    if earlier:
        agent.messages.extend(earlier)
        channel.tell("reset", {})
    position = len(agent.messages)
    channel.client_messages |= found.places
    channel.client_messages |= {
        message.id: Place(position, talk.redact(text)) for message, text in zip(found.prompts, texts, strict=True)
    }
    try:
        await talk.prompt(prompt, files, attached)
    except NotBegun:
        pass  # the session's readers were told, and so is the client: as the error of its run


async def _fork(site: Site, request: web.Request, channel: SessionChannel, talk: Talk, cut: int) -> None:
    """Keeps the whole session as another, and goes on in this one behind its first messages."""
    if not await site.may(request, "write", None):
        raise Problem(
            403, "forbidden", "an edited message keeps the old thread as a new session, which you may not make"
        )
    await site.fork(channel.id, None)
    talk.agent.messages = talk.agent.messages[:cut]
    channel.tell("reset", {})


def _offer(talk: Talk, tools: Sequence[_ClientTool], by: str) -> _WithClientTools | None:
    """Gives the agent the client's tools instead of those of the previous request, and returns them."""
    agent = talk.agent
    given = agent.given_tools
    own = given.own if isinstance(given, _WithClientTools) else given
    offered = _WithClientTools(own, tools, by) if tools else None
    if offered is not None or own is not given:
        agent.tools = own if offered is None else offered
    return offered


def _chosen(entry: Any) -> tuple[str, str]:
    if entry.status == "cancelled":
        return "no", ""
    payload = entry.payload
    if isinstance(payload, str):
        return payload, ""
    if isinstance(payload, dict):
        known = cast("dict[str, Any]", payload)
        if isinstance(known.get("choice"), str) and isinstance(known.get("reason", ""), str):
            return known["choice"], known.get("reason", "")
    raise invalid("the payload of an answer is a choice, or {choice, reason}")


def _files(site: Site, channel: SessionChannel, messages: Sequence[Any]) -> list[str]:
    """Stores the pictures and documents of messages and returns their paths. Raises 413, 415 and 422."""
    kept = [
        site.uploads.keep(channel.id, content).id
        for message in messages
        for content in data_of(message, site.max_upload)
    ]
    return site.uploads.paths(channel.id, kept)


# -- the events of a run -------------------------------------------------------------------------------------------


async def _stream(
    request: web.Request, channel: SessionChannel, talk: Talk, run: Translation, position: int, encoder: Any
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": encoder.get_content_type(), "x-accel-buffering": "no"})
    wake = asyncio.Event()
    unlisten = channel.log.listen(wake.set)

    async def send(told: Sequence[Any]) -> None:
        await write_in_time(request, response, "".join([encoder.encode(event) for event in told]).encode())

    try:
        await response.prepare(request)
        await send(run.begin())
        while not run.is_over:
            wake.clear()
            if not channel.log.holds(position):
                raise ConnectionResetError("the client does not read")
            new = channel.log.events_after(position)
            position += len(new)
            told: list[Any] = []
            for event in new:
                if event.name in _MAY_CHANGE_STATE:
                    told += run.state_is(talk.agent)
                told += run.translate(event.name, event.data)
            if told:
                await send(told)
            elif not new:
                transport = request.transport
                if transport is None or transport.is_closing():
                    raise ConnectionResetError("the client has left")
                try:
                    await asyncio.wait_for(wake.wait(), _LOOK)
                except TimeoutError:
                    continue
    except ConnectionError:
        pass  # the client has left, or does not read
    finally:
        unlisten()
        if not run.is_over:
            channel.later(talk.stop())
    return response


def _encoded(state: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(as_json_data(dict(state), cuts_deep=True))


class StreamedCalls:
    """The ids and names of calls whose arguments stream: their events have neither. `hear` subscribes to the agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._replies: list[dict[int, ToolCall]] = []

    def hear(self, event: AgentEvent) -> None:
        if type(event) in (MessageStart, MessageRetry, ModelFallback):
            self._replies.append({})
        elif type(event) is MessageUpdate and type(event.delta) is ToolCallDelta and self._replies:
            index, known = event.delta.index, self._replies[-1]
            reply = None if index in known else self._agent.streaming_message
            block = None if reply is None else reply.content[index]
            if type(block) is ToolCall:
                known[index] = block

    def of(self, reply: int, index: int) -> ToolCall | None:
        """Returns a call of a reply, as far as it was known when its arguments began."""
        return self._replies[reply].get(index) if 0 <= reply < len(self._replies) else None


class Translation:
    """Translates our events into those of the protocol, for one request.

    Without `calls`, a call is told whole at the end of its reply.
    """

    def __init__(
        self, core: Any, thread_id: str, run_id: str, calls: StreamedCalls | None = None, state: bytes = b"{}"
    ) -> None:
        self._core = core
        self._ids: dict[str, str] = {"thread_id": thread_id, "run_id": run_id}
        self._message = ""
        self._open = ""
        """`text` or `thinking`, while such a message is open."""
        self._said = False
        self._error = ""
        self._thought = ""
        self._state = state
        self._calls = calls
        self._reply = -1
        """The number of the reply under way, counted as `calls` counts them."""
        self._streaming: list[str] = []
        """The calls whose arguments stream now."""
        self._streamed: set[str] = set()
        """The calls of this reply whose arguments streamed."""
        self._step = ""
        self._changes = Changes()
        self.is_over = False

    def begin(self) -> list[Any]:
        return [self._core.RunStartedEvent(**self._ids)]

    def state_is(self, agent: Agent) -> list[Any]:
        """Tells the agent's state if it has changed."""
        state = _encoded(agent.state)
        if self.is_over or state == self._state:
            return []
        self._state = state
        redactor = agent.redactor or Redactor()
        return [self._core.StateSnapshotEvent(snapshot=redactor.redact_value(msgspec.json.decode(state)))]

    def translate(self, name: str, data: bytes) -> list[Any]:
        """Returns the protocol's events for one of ours."""
        handle: Callable[[dict[str, Any]], list[Any]] | None = getattr(self, f"_on_{name}", None)
        if self.is_over:
            return []
        if name in _REPLIES:
            self._reply += 1
        if name in _READ:
            return self._read(decode_event(data))
        return [] if handle is None else handle(msgspec.json.decode(data))

    def _read(self, event: AgentEvent) -> list[Any]:
        if type(event) is MessageUpdate and type(event.delta) is ToolCallDelta:
            return self._arguments(event.delta.index, event.delta.delta)
        told = [shown for change in self._changes.of(event) for shown in self._shown(change)]
        return [*told, *self._closed()] if type(event) is MessageEnd else told

    def _shown(self, change: Change) -> list[Any]:
        """The protocol's events for a change; custom ones for what it has no word for."""
        match change:
            case Begun():
                self._begin_message()
            case Shown(kind=kind, piece=piece):
                return [*self._opened(kind), self._content(kind, piece)]
            case Discarded(why=why):
                told = [*self._closed(), self._custom("discarded", message=self._message, why=why)]
                self._begin_message()
                return told
            case Call(state="pending"):
                return [*self._closed(), *self._call(change)]
            case Call(result=AgentToolResult() as result):
                words = "\n".join([block.text for block in result.content if isinstance(block, Text)])
                ids = {"message_id": secrets.token_hex(8), "tool_call_id": change.id}
                return [self._core.ToolCallResultEvent(**ids, content=words, role="tool")]
            case Notice(kind=kind, words=words):
                return [*self._closed(), self._custom("notice", kind=kind, text=words)]
            case Delegate(call_id=call_id, progress=progress):
                return [self._custom("delegate", call=call_id, text=delegate_words(progress))]
            case _:
                pass
        return []

    def _call(self, call: Call) -> list[Any]:
        """A call with its arguments, unless they streamed."""
        if call.id in self._streamed:
            return []
        ids = {"tool_call_id": call.id}
        arguments = msgspec.json.encode(call.arguments).decode()
        return [
            self._call_start(call.id, call.name),
            self._core.ToolCallArgsEvent(**ids, delta=arguments),
            self._core.ToolCallEndEvent(**ids),
        ]

    def _custom(self, name: str, **value: Any) -> Any:
        return self._core.CustomEvent(name=name, value=value)

    def _on_turn_start(self, event: dict[str, Any]) -> list[Any]:
        told = self._stepped()
        self._step = f"turn {event['turn_index'] + 1}"
        return [*told, self._core.StepStartedEvent(step_name=self._step)]

    def _on_turn_end(self, _: dict[str, Any]) -> list[Any]:
        return [*self._closed(), *self._stepped()]

    def _stepped(self) -> list[Any]:
        name, self._step = self._step, ""
        return [self._core.StepFinishedEvent(step_name=name)] if name else []

    def _begin_message(self) -> None:
        self._message, self._said = secrets.token_hex(8), False
        self._streamed.clear()

    def _arguments(self, index: int, words: str) -> list[Any]:
        """A piece of a call's arguments. A call that is not known yet is told whole at the end of its reply."""
        call = None if self._calls is None else self._calls.of(self._reply, index)
        if call is None or not words:
            return []
        told: list[Any] = []
        if call.id not in self._streamed:
            told = [*self._ended_words(), self._call_start(call.id, call.name)]
            self._streamed.add(call.id)
            self._streaming.append(call.id)
        return [*told, self._core.ToolCallArgsEvent(tool_call_id=call.id, delta=words)]

    def _call_start(self, call_id: str, name: str) -> Any:
        parent = self._message if self._said else None
        return self._core.ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name, parent_message_id=parent)

    def _on_question(self, event: dict[str, Any]) -> list[Any]:
        question = converted({key: value for key, value in event.items() if key != "type"}, Question)
        if question.kind != "call":
            return []  # an offer of the program, not a question of this run
        interrupt = self._core.Interrupt(
            id=question.id,
            reason="tool_call",
            message=question.display,
            tool_call_id=question.call_id,
            response_schema={
                "anyOf": [
                    {"enum": question.choices},
                    {
                        "type": "object",
                        "properties": {"choice": {"enum": question.choices}, "reason": {"type": "string"}},
                        "required": ["choice"],
                    },
                ]
            },
            metadata={"why": question.why, "warnings": question.warnings, "labels": question.labels},
        )
        return self._finished(self._core.RunFinishedInterruptOutcome(interrupts=[interrupt]))

    def _on_notice(self, event: dict[str, Any]) -> list[Any]:
        if event["kind"] == "error":
            self._error = event["text"]
            return []
        return [self._custom("notice", kind=event["kind"], text=event["text"])]

    def _on_agent_end(self, event: dict[str, Any]) -> list[Any]:
        result: dict[str, Any] = event.get("result") or {}
        if result.get("stop_reason") == "aborted":
            return self._finished(self._core.RunFinishedCancelledOutcome())
        if result.get("error"):
            return self._failed(result["error"], result.get("error_kind"))
        if stopped := event.get("stopped_by"):
            return self._failed(stopped_words(PolicyStop(**stopped)), "stopped")
        pending = [call["call_id"] for call in result.get("pending", ())]
        usage: dict[str, Any] = result.get("usage") or {}
        used = self._core.TokenUsage(
            input_tokens=usage.get("input"), output_tokens=usage.get("output"), total_tokens=usage.get("total")
        )
        outcome = self._core.RunFinishedSuccessOutcome(pending_tool_call_ids=pending or None)
        return self._finished(outcome, usage=[used])

    def _on_state(self, event: dict[str, Any]) -> list[Any]:
        if event["state"] != "idle" or not self._error:
            return []
        return self._failed(self._error, None)  # it failed before a run began

    def _on_bye(self, _: dict[str, Any]) -> list[Any]:
        return self._failed("the server is shutting down", None)

    _on_deleted = _on_bye

    # -- messages --------------------------------------------------------------------------------------------------

    def _opened(self, kind: str) -> list[Any]:
        if self._open == kind:
            return []
        core, events = self._core, self._ended_words()
        self._open = kind
        if kind == "text":
            if self._said:  # text after reasoning is another message
                self._message = secrets.token_hex(8)
            self._said = True
            return [*events, core.TextMessageStartEvent(message_id=self._message, role="assistant")]
        self._thought = secrets.token_hex(8)
        return [
            *events,
            core.ReasoningStartEvent(message_id=self._thought),
            core.ReasoningMessageStartEvent(message_id=self._thought, role="reasoning"),
        ]

    def _content(self, kind: str, words: str) -> Any:
        if kind == "text":
            return self._core.TextMessageContentEvent(message_id=self._message, delta=words)
        return self._core.ReasoningMessageContentEvent(message_id=self._thought, delta=words)

    def _closed(self) -> list[Any]:
        """Ends what is open: a text, a thought, and calls whose arguments broke off."""
        calls, self._streaming = self._streaming, []
        return [*self._ended_words(), *[self._core.ToolCallEndEvent(tool_call_id=call) for call in calls]]

    def _ended_words(self) -> list[Any]:
        kind, self._open = self._open, ""
        if kind == "text":
            return [self._core.TextMessageEndEvent(message_id=self._message)]
        if kind == "thinking":
            core = self._core
            return [
                core.ReasoningMessageEndEvent(message_id=self._thought),
                core.ReasoningEndEvent(message_id=self._thought),
            ]
        return []

    def _finished(self, outcome: Any, **more: Any) -> list[Any]:
        self.is_over = True
        return [*self._closed(), *self._stepped(), self._core.RunFinishedEvent(**self._ids, outcome=outcome, **more)]

    def _failed(self, words: str, code: str | None) -> list[Any]:
        self.is_over = True
        return [*self._closed(), self._core.RunErrorEvent(message=words, code=code)]
