"""An agent's tools for other programs: a server of the package `mcp`.

A client's call is handled like a model's: it is validated, shown to the agent's pre-dispatch policies, approved, run
and masked. It is made in its own short run.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from swink_agent.core.agent.agent import Agent
from swink_agent.core.approval import ApproveFn
from swink_agent.core.encoding.media import image_of
from swink_agent.core.encoding.stream_writer import events_of
from swink_agent.core.events import AgentEnd, ToolCallDeferred, ToolExecutionEnd, ToolExecutionUpdate
from swink_agent.core.machine.extras import require
from swink_agent.core.policy import PolicyContext, PreDispatchContext, name_of
from swink_agent.core.run.turn import takes_context
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.tool import AgentTool, AgentToolResult
from swink_agent.core.types import (
    AssistantMessage,
    Base64Source,
    Cost,
    FileSource,
    Image,
    ModelSpec,
    StopReason,
    Text,
    ToolCall,
    Usage,
    extract_text,
)
from swink_agent.core.values.checks import check_methods, check_text, is_function, is_not
from swink_agent.core.values.data import encodable
from swink_agent.core.values.value import copy_json

from .naming import own_version

if TYPE_CHECKING:
    from mcp.server import Server

_CLIENT = ModelSpec("mcp", "client")  # the model of a call that a client makes
ReportFn = Callable[[float, str], Awaitable[None]]


def as_mcp_server(
    tools_or_agent: Iterable[AgentTool] | Agent,
    *,
    name: str = "swink-agent",
    approve: ApproveFn | None = None,
    redactor: Redactor | None = None,
    watch: Callable[[Agent], object] | None = None,
) -> Server[Any]:
    """A server of the package `mcp` with these tools, or those of an agent, for any of its transports.

    A tool that needs approval runs if `approve`, or the agent's own, approves it; without one it is refused. An agent's
    pre-dispatch policies see every call. `redactor` masks results, instead of the agent's. `watch` is called with the
    agent of each call before it runs, and may subscribe to its events. Raises `MissingExtra`.
    """
    check_text("name", name)
    if approve is not None and not is_function(approve):
        raise is_not("approve", approve, "a function, or None")
    if redactor is not None:
        check_methods("redactor", redactor, "a Redactor, or None", "redact")
    lowlevel: Any = require("mcp.server", extra="mcp")
    types: Any = require("mcp_types", extra="mcp")
    calls = _Calls(tools_or_agent, approve, redactor, watch)

    async def on_list(context: Any, params: Any) -> Any:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    title=tool.label,
                    description=tool.description,
                    input_schema={"type": "object", **tool.parameters_schema},
                )
                for tool in await calls.tools()
            ]
        )

    async def on_call(context: Any, params: Any) -> Any:
        async def report(count: float, text: str) -> None:
            await context.session.report_progress(count, None, text)

        result = await calls.run(params.name, params.arguments or {}, report)
        return types.CallToolResult(
            content=await asyncio.to_thread(lambda: [_content(types, block) for block in result.content]),
            structured_content=_structured(result.details),
            is_error=result.is_error,
        )

    return lowlevel.Server(name, version=own_version(), on_list_tools=on_list, on_call_tool=on_call)


async def serve_stdio(
    tools_or_agent: Iterable[AgentTool] | Agent,
    *,
    name: str = "swink-agent",
    approve: ApproveFn | None = None,
    redactor: Redactor | None = None,
    watch: Callable[[Agent], object] | None = None,
) -> None:
    """Serves over stdin and stdout until stdin ends. Meanwhile nothing else can write to stdout."""
    server = as_mcp_server(tools_or_agent, name=name, approve=approve, redactor=redactor, watch=watch)
    stdio: Any = require("mcp.server.stdio", extra="mcp")
    async with stdio.stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


class _Calls:
    """Runs the calls of a client."""

    def __init__(
        self,
        given: Iterable[AgentTool] | Agent,
        approve: ApproveFn | None,
        redactor: Redactor | None,
        watch: Callable[[Agent], object] | None,
    ) -> None:
        if not isinstance(given, Agent) and (isinstance(given, (str, type)) or not isinstance(given, Iterable)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise is_not("tools_or_agent", given, "a list of tools, or an Agent")
        self._watch = watch
        self._agent = given if isinstance(given, Agent) else Agent(_CLIENT, stream_fn=_saying(), tools=list(given))
        self._approve = approve or self._agent.config.approve
        self._redactor = redactor or self._agent.config.redactor

    async def tools(self) -> Sequence[AgentTool]:
        """The tools to list. A function of the turn is asked as before the first one."""
        given: Any = self._agent.given_tools
        if not callable(given):
            return list(given)
        found: Any = given(self._first_turn()) if takes_context(given, "tools") else given()
        return list(await found if inspect.isawaitable(found) else found)

    def _first_turn(self) -> PolicyContext:
        deps, state = self._agent.config.deps, copy_json(dict(self._agent.state))
        return PolicyContext(
            turn_index=0, messages=(), usage=Usage(), cost=Cost(), state=state, model=_CLIENT, deps=deps
        )

    async def run(self, name: str, arguments: dict[str, Any], report: ReportFn) -> AgentToolResult:
        """The result that a model would read. Cancelling it cancels the call."""
        config = self._agent.config
        call = ToolCall(f"mcp_{secrets.token_hex(8)}", name, arguments)
        # Each call has its own run, as calls of one client may run at the same time.
        agent = Agent(
            _CLIENT,
            stream_fn=_saying(AssistantMessage(content=(call,), stop_reason=StopReason.TOOL_USE)),
            tools=self._agent.given_tools,
            policies=[*map(_BeforeCalls, config.pre_dispatch_policies), *map(_Mask, config.masks)],
            approve=self._approve,
            approval_mode=config.approval_mode,
            redactor=self._redactor,
            execution_root=config.execution_root,
            deps=config.deps,
            state=self._agent.state,
        )
        if self._watch is not None:
            self._watch(agent)
        result: AgentToolResult | None = None
        waits_for, failed = "an approval", None
        count = 0
        try:
            async for event in agent.prompt_stream(f"An MCP client calls {name[:80]}."):
                if isinstance(event, ToolExecutionUpdate):
                    count += 1
                    await report(count, encodable(extract_text(event.update.content)[-2000:]))
                elif isinstance(event, ToolExecutionEnd) and event.call_id == call.id:
                    result = event.result
                elif isinstance(event, ToolCallDeferred) and event.kind == "external":
                    waits_for = "a result of the application"
                elif isinstance(event, AgentEnd) and event.result is not None:
                    failed = event.result.error
        except asyncio.CancelledError:
            agent.abort()
            raise
        except Exception as error:  # a policy that stopped the run, for instance
            result = result or AgentToolResult.error(str(error) or type(error).__name__)
        return result or AgentToolResult.error(failed or f"the call waits for {waits_for}, which cannot be given here")


class _BeforeCalls:
    """A policy of the agent, which is asked about calls alone: no model of ours has any turn here."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.name = name_of(policy)

    def pre_dispatch(self, ctx: PreDispatchContext) -> Any:
        return self._policy.pre_dispatch(ctx)

    def run_over(self, run_id: str) -> None:
        run_over = getattr(self._policy, "run_over", None)
        if run_over is not None:
            run_over(run_id)


class _Mask:
    """The mask of a policy of the agent."""

    def __init__(self, policy: Any) -> None:
        self.name = name_of(policy)
        self.mask = policy.mask


def _saying(*replies: AssistantMessage) -> Any:
    """A stream function that gives these replies, and then only "done"."""
    left = list(replies)

    async def stream(*_: Any) -> AsyncIterator[Any]:
        done = AssistantMessage(content=(Text("done"),), stop_reason=StopReason.STOP)
        for event in events_of(left.pop(0) if left else done):
            yield event

    return stream


def _structured(details: Any) -> dict[str, Any] | None:
    """The structured content of a result, if it is JSON: a message that cannot be written would end the server."""
    structured: Any = cast("dict[str, Any]", details).get("structured") if isinstance(details, dict) else None
    try:
        encoded = json.dumps(structured, ensure_ascii=False, allow_nan=False).encode(errors="replace")
    except (TypeError, ValueError, RecursionError):
        return None
    return json.loads(encoded) if isinstance(structured, dict) else None


def _content(types: Any, block: Any) -> Any:
    if isinstance(block, Text):
        return types.TextContent(text=encodable(block.text))
    if isinstance(block, Image) and isinstance(block.source, FileSource):
        try:
            block = image_of(Path(block.source.path))
        except (OSError, ValueError) as error:
            return types.TextContent(text=encodable(f"[image, which cannot be sent: {error}]"))
    if isinstance(block, Image) and isinstance(block.source, Base64Source):
        return types.ImageContent(data=block.source.data, mime_type=block.source.media_type)
    return types.TextContent(text=f"[{type(block).__name__.lower()}, which is not sent]")
