"""Swink Agent: a provider-agnostic loop for LLM agents.

This module is the public namespace: every public name of the core is importable from here, and so are the main names
of the other rooms. A room is loaded when a name of it is first asked for. The rooms behind it:

    core      the loop, its types and its agent      core/loop.py is where to start reading
    adapters  the providers, over plain HTTP          loaded when a model of theirs is first used
    local     the model on this machine               likewise
    tools     bash, files and search                  beneath a root that they cannot leave
    sandbox   how a child process is confined         chosen by trial
    policies  limits, guards, approvals and records   one to a file
    rendering what was said, as safe HTML and Markdown
    memory    what is kept of a conversation, and what of it is still sent
    evals     cases, an agent that runs on them, and scores for what it did
    app, cli  settings, keys and the `swink` command
    testing   scripted models, checkers, servers and fakes, for your own tests; import it by name
"""

import sys

if sys.argv[:1] == ["-m"]:  # Python is still looking for the module that it is to run
    from ._start import is_looked_for, leave_working_folder

    if is_looked_for():
        leave_working_folder()  # before anything else is imported, where swink_agent.pth was not read

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.names import *
    from .core.redaction import Redactor
    from .local import LocalStreamFn
    from .memory import SummarizingCompactor
    from .policies import (
        AllowList,
        AuditLog,
        Budget,
        Checkpoint,
        CommandRules,
        ContentFilter,
        DenyList,
        LoopDetection,
        MaxDuration,
        MaxTurns,
        PiiRedactor,
        PromptGuard,
        WorkspaceOnly,
        recommended,
    )
    from .sandbox import SandboxProfile, open_sandbox
    from .tools import BashTool, EditFileTool, ListDirTool, ReadFileTool, SearchTool, WriteFileTool, standard_tools

__version__ = "0.1.0"

__all__ = [
    "Aborted",
    "Agent",
    "AgentContext",
    "AgentEnd",
    "AgentError",
    "AgentEvent",
    "AgentLoopConfig",
    "AgentMessage",
    "AgentResult",
    "AgentStart",
    "AgentTool",
    "AgentToolResult",
    "AllowList",
    "AlreadyRunning",
    "ApprovalMode",
    "Approve",
    "ApproveWith",
    "AssistantMessage",
    "AssistantMessageDelta",
    "AssistantMessageEvent",
    "AuditLog",
    "AuthError",
    "Base64Image",
    "BashTool",
    "Budget",
    "CancellationToken",
    "Checkpoint",
    "CommandRules",
    "CompactionContext",
    "CompactionReport",
    "ContentBlock",
    "ContentFilter",
    "ContentFiltered",
    "ContextCompacted",
    "ContextWindowOverflow",
    "Cost",
    "CustomMessage",
    "DefaultRetryStrategy",
    "DenyList",
    "EditFileTool",
    "ErrorKind",
    "EventStream",
    "Extension",
    "FileImage",
    "FunctionTool",
    "Grant",
    "Image",
    "ImageSource",
    "Inject",
    "InvalidContinue",
    "ListDirTool",
    "LlmMessage",
    "LocalStreamFn",
    "LoopDetection",
    "MaxDuration",
    "MaxTurns",
    "MessageAssembler",
    "MessageEnd",
    "MessageProvider",
    "MessageRetry",
    "MessageStart",
    "MessageUpdate",
    "MessagesInjected",
    "ModelFallback",
    "ModelSpec",
    "ModelThrottled",
    "NetworkError",
    "NoMessages",
    "PiiRedactor",
    "PolicyContext",
    "PolicyStop",
    "PolicyStopped",
    "PostLoopPolicy",
    "PostTurnPolicy",
    "PreDispatchContext",
    "PreDispatchPolicy",
    "PreTurnPolicy",
    "PromptGuard",
    "ProviderMismatch",
    "ReadFileTool",
    "Redactor",
    "Reject",
    "RetryStrategy",
    "SandboxProfile",
    "SearchTool",
    "Skip",
    "SlidingWindow",
    "Stop",
    "StopReason",
    "StreamDone",
    "StreamError",
    "StreamFailed",
    "StreamFn",
    "StreamOptions",
    "StreamStart",
    "StructuredOutputFailed",
    "Subscription",
    "SummarizingCompactor",
    "Text",
    "TextDelta",
    "TextEnd",
    "TextStart",
    "Thinking",
    "ThinkingBudgets",
    "ThinkingDelta",
    "ThinkingEnd",
    "ThinkingLevel",
    "ThinkingStart",
    "ToolApprovalRequest",
    "ToolApprovalRequested",
    "ToolApprovalResolved",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolContext",
    "ToolError",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionStrategy",
    "ToolExecutionUpdate",
    "ToolOutcome",
    "ToolResultMessage",
    "TurnEnd",
    "TurnEndReason",
    "TurnStart",
    "UnknownProvider",
    "UrlImage",
    "Usage",
    "UserMessage",
    "WorkspaceOnly",
    "WriteFileTool",
    "agent_loop",
    "agent_loop_continue",
    "decode_event",
    "decode_message",
    "default_convert_to_llm",
    "encode_event",
    "encode_message",
    "estimate_tokens",
    "extract_text",
    "open_sandbox",
    "recommended",
    "standard_tools",
    "tool",
]

_ROOMS = {
    "Redactor": "core.redaction",
    "LocalStreamFn": "local",
    "SummarizingCompactor": "memory",
    "AllowList": "policies",
    "AuditLog": "policies",
    "Budget": "policies",
    "Checkpoint": "policies",
    "CommandRules": "policies",
    "ContentFilter": "policies",
    "DenyList": "policies",
    "LoopDetection": "policies",
    "MaxDuration": "policies",
    "MaxTurns": "policies",
    "PiiRedactor": "policies",
    "PromptGuard": "policies",
    "WorkspaceOnly": "policies",
    "recommended": "policies",
    "SandboxProfile": "sandbox",
    "open_sandbox": "sandbox",
    "BashTool": "tools",
    "EditFileTool": "tools",
    "ListDirTool": "tools",
    "ReadFileTool": "tools",
    "SearchTool": "tools",
    "WriteFileTool": "tools",
    "standard_tools": "tools",
}
"""Where the names outside the core live, and those inside that are seldom needed."""


def __getattr__(name: str) -> Any:
    """Loads the room of a name when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'swink_agent' has no attribute {name!r}")
    from importlib import import_module

    room = import_module(f".{_ROOMS.get(name, 'core.names')}", __name__)
    value = globals()[name] = getattr(room, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
