"""Delegates: an agent as a tool of another agent.

`Agent.as_tool` makes the tool. Each call runs a copy of the agent inside the caller's run: it is cancelled with it,
reported in its events, and counted in its usage.

Owns the tool, and the values that a copy takes from its caller. The copy runs in the same loop as any other agent
(`loop`), and its usage is in the caller's `Accounts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec.json import decode as decode_json
from msgspec.json import encode as encode_json
from msgspec.structs import replace

from ..config import AgentLoopConfig
from ..encoding.codec import encode_message
from ..events import AgentEvent, DelegateEvent
from ..loop import run_loop
from ..output import Branch, Channel
from ..run.consulting import with_those_of_caller
from ..run.pending import Pending
from ..run.state import Accounts, Run, RunSetup
from ..run.transcript import Transcript
from ..run.turn import TurnTools
from ..tool import AgentToolResult, OnSteer, Toolbox, ToolContext, ToolOptions
from ..types import LLM_MESSAGES, AgentMessage, AgentResult, StopReason, UserMessage, is_blank
from ..values.checks import check_number, check_tool_name, is_not
from ..values.value import copy_json
from .arguments import POLICY_SLOTS

SetupFn: TypeAlias = Callable[[Any], tuple[RunSetup, Sequence[AgentMessage]]]
"""Returns what the run of a copy is started with, given the caller's deps, and the messages that it begins with."""


class Delegate:
    """The tool that runs copies of an agent."""

    is_delegate = True
    """Whether a call of the tool can wait for a call inside it, and continue later. No other tool can do that."""

    def __init__(
        self,
        setup_of: SetupFn,
        name: str,
        description: str,
        requires_approval: bool,
        on_steer: OnSteer,
        timeout: float | None,
        max_concurrent: int | None,
        max_depth: int,
    ) -> None:
        check_tool_name(name)
        if not isinstance(description, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise is_not("description", description, "a text that tells the model when to delegate")
        if on_steer not in ("cancel", "finish"):
            raise ValueError(f"on_steer is {on_steer!r}; it must be 'cancel' or 'finish'")
        ToolOptions(timeout, 0, max_concurrent)  # raises ValueError, TypeError
        check_number("max_depth", max_depth)
        if not max_depth >= 0:
            raise ValueError(f"max_depth is {max_depth!r}; give a number of delegates that is not negative")
        self._setup_of = setup_of
        self.name = name
        self.label = name.replace("_", " ").strip().capitalize()
        self.description = description
        self.requires_approval = requires_approval
        self.on_steer: OnSteer = on_steer
        self.timeout = timeout
        self.max_concurrent = max_concurrent
        self.max_depth = max_depth
        task = "The task, with everything that is needed to do it: the agent does not know this conversation."
        self.parameters_schema: dict[str, Any] = {
            "type": "object",
            "properties": {"prompt": {"type": "string", "description": task}},
            "required": ["prompt"],
            "additionalProperties": False,
        }

    def __repr__(self) -> str:
        return f"<delegate {self.name}>"

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Runs a copy of the agent to its end."""
        caller = _caller(ctx)
        depth = 0 if caller is None else len(caller.setup.delegates)
        if depth > self.max_depth:
            way = " → ".join(() if caller is None else caller.setup.delegates)
            return AgentToolResult.error(
                f"{self.name} was not called: this call is inside {depth} delegates ({way}), and {self.max_depth} are "
                "the most; do the task without it"
            )
        prompt = UserMessage(arguments["prompt"])
        if is_blank((prompt,)):
            ctx.has_invalid_arguments = True
            return AgentToolResult.error("the prompt has no content: say what is to be done")
        cancel = ctx.cancel
        channel = None if caller is None or caller.channel is None else Branch(caller.channel)
        accounts = Accounts() if caller is None else caller.accounts
        try:
            run, is_new = self._run_of(ctx, caller, channel)
            accounts.begin(ctx, run.accounts)
            try:
                result = await run_loop(run, (prompt,) if is_new else None)
            finally:
                accounts.end(ctx)
        finally:
            if channel is not None:
                channel.detach()
        if result.stop_reason is StopReason.ABORTED and cancel.is_cancelled:
            raise asyncio.CancelledError  # the batch knows why the call was cancelled, and reports it
        if result.pending:
            raise _Waiting(arguments, run)
        return self._answer(result, run)

    def tools_inside(self) -> Toolbox | TurnTools:
        """Returns the tools of the agent, as far as they are known before a run."""
        return self._setup_of(None)[0].tools

    def _run_of(self, ctx: ToolContext, caller: Run | None, channel: Channel | None) -> tuple[Run, bool]:
        """Makes the run of a copy; returns it, and whether it begins with the prompt. If not, it goes on where it
        stopped, with the answers for its waiting calls."""

        def relay(event: AgentEvent) -> None:
            if caller is not None:
                caller.emit(DelegateEvent(ctx.call_id, self.name, event))

        setup, messages = self._setup_of(ctx.deps)
        config, tools = _config_inside(setup.config, ctx, self.name), setup.tools
        if isinstance(tools, TurnTools):
            tools = TurnTools(tools.function)  # each copy has its own last turn
        answers = waited = None
        if caller is not None and caller.resumption is not None:
            waited = caller.resumption.delegate_answers.pop(ctx.call_id, None)
        if waited is not None:
            messages, answers, state = waited
            config = replace(config, state=copy_json(state))
        setup = replace(
            setup,
            config=config,
            tools=tools,
            delegates=(*(() if caller is None else caller.setup.delegates), self.name),
        )
        token = ctx.cancel.child()  # a child: a timeout ends the delegate without cancelling the call
        run = Run(
            setup,
            Transcript(messages),
            token,
            relay,
            run_loop,
            channel=channel,
            answers=answers,
            caller=None if caller is None else (caller, ctx.call_id),
        )
        return run, waited is None

    def _answer(self, result: AgentResult, run: Run) -> AgentToolResult:
        if result.error is not None:
            return AgentToolResult.error(f"{self.name} failed: {result.error}")
        if (stop := result.stopped_by) is not None:
            why = f": {stop.reason}" if stop.reason else ""
            return AgentToolResult.error(f"{self.name} was stopped by the policy {stop.policy}{why}")
        if run.request is not None:
            return AgentToolResult.text(encode_json(result.value).decode())
        return AgentToolResult.text(result.text)


class _Waiting(Exception):
    """A call of the delegate waits for an answer, so the call of the delegate waits too."""

    def __init__(self, arguments: dict[str, Any], run: Run) -> None:
        super().__init__("a call of the delegate waits for an answer")
        messages = [message for message in run.transcript.history if type(message) in LLM_MESSAGES]
        self.waits_for = Pending(
            "delegate",
            arguments,
            messages=tuple([decode_json(encode_message(message)) for message in messages]),
            state=_plain(run.state),
        )
        """The details of the pending result: everything that is needed to continue."""


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state as JSON data, or an empty dict if it is not JSON."""
    try:
        return decode_json(encode_json(dict(state)))
    except (TypeError, ValueError, RecursionError):
        return {}


def _config_inside(config: AgentLoopConfig, ctx: ToolContext, tool: str) -> AgentLoopConfig:
    """Returns the configuration of a copy: the agent's own, with the caller's values where the agent has none."""
    changes: dict[str, Any] = {
        "message_provider": None,
        "redactor": ctx.redactor if config.redactor is None else config.redactor,
        "execution_root": ctx.execution_root if config.execution_root is None else config.execution_root,
    }
    if (caller := _caller(ctx)) is not None:
        outer = caller.config
        changes["approve"] = outer.approve if config.approve is None else config.approve
        for name in POLICY_SLOTS:
            if watching := getattr(outer, name):
                changes[name] = with_those_of_caller(getattr(config, name), watching, tool)
        if outer.masks:
            known = {id(policy) for policy in config.masks}
            theirs = [one for one in outer.masks if not (id(one) in known or getattr(one, "own_run_only", False))]
            changes["masks"] = (*config.masks, *theirs)
    return replace(config, **changes)


def _caller(ctx: ToolContext) -> Run | None:
    return ctx.run if isinstance(ctx.run, Run) else None
