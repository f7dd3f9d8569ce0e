"""Writes the prompt for a conversation, and the grammar of the replies that the model may give.

Words the calls and results, and drops turns when the conversation is longer than the window. If there are tools, every
reply is a call: for text, the model calls the internal `answer`. The chat format is that of ChatML models (Qwen,
SmolLM2 and many more); other models get the same words through their own template. `shown` describes the tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import structs

from swink_agent.core.context.context import document_note
from swink_agent.core.stream import StreamOptions
from swink_agent.core.types import (
    AgentContext,
    AgentMessage,
    AssistantMessage,
    Document,
    Image,
    LlmMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    extract_text,
)
from swink_agent.core.values.value import Value

from .grammar import Grammar, literal
from .reply import ANSWER, CALL_END, CALL_START
from .shown import ShownTool, call_head, spaced_json

_THINKS = "<think>"
_READING, _EDITING, _WRITING = "read_file", "edit_file", "write_file"
_AFTER_SUCCESS = "Is something still to be changed, run or looked up? Then make that call now. If not, call answer."
_AFTER_FAILURE = "That failed. Try another way."
_STEPS_OF_WINDOW = 4


# -- allowed replies -----------------------------------------------------------------------------------------


class AllowedReply(Value, frozen=True):
    """The texts that the model may write in one reply."""

    grammar: str = ""
    """Empty: plain text."""
    is_exact: bool = True
    """Whether every text of the grammar is valid against the tools' schemas."""
    start: str = ""
    """The beginning of the reply, which the prompt already contains."""

    @property
    def is_call(self) -> bool:
        return bool(self.grammar)


def choice_of(
    context: AgentContext,
    tools: Sequence[ShownTool],
    options: StreamOptions,
    *,
    is_brief: bool = False,
    thinks: bool = False,
    is_thinking: bool = False,
) -> AllowedReply:
    """The reply that the model may give: text without tools or with the tool choice `none`, else a call of an allowed
    tool, and of `answer` only if the choice is `auto`."""
    silence = f"{_THINKS}\n\n</think>\n\n" if thinks and not is_thinking else ""
    if not tools or options.tool_choice == "none":
        return AllowedReply(start=silence)
    if options.tool_choice not in ("auto", "required"):
        tools = [tool for tool in tools if tool.name == options.tool_choice] or tools
    grammar = Grammar()
    used = _calls_not_to_repeat(context)
    if options.tool_choice == "auto":
        stuck = _stuck_tools(context)
        tools = [tool for tool in tools if tool.name not in stuck]
        tools = _limited_to_read_files(tools, context) if is_brief else tools
    calls: list[str] = []
    for tool in tools:
        arguments = grammar.schema(tool.schema, excluding=[call.arguments for call in used if call.name == tool.name])
        calls.append(f"{literal(call_head(tool.name))} {arguments}")
    if options.tool_choice == "auto":
        head = literal(call_head(ANSWER) + '{"text": ')
        calls.append(f"{head} {grammar.primitive('json-string')} {literal('}')}")
    call = f"({' | '.join(calls)}) {literal('}' + CALL_END)}"
    if thinks and is_thinking:
        grammar.add("thought", '([^<] | "<" [^/] | "</" [^t])*')
        grammar.add("root", f"{literal(_THINKS)} thought {literal('</think>')} [\\n]* {literal(CALL_START)} {call}")
        return AllowedReply(grammar.text(), grammar.is_exact)
    grammar.add("root", call)
    return AllowedReply(grammar.text(), grammar.is_exact, silence + CALL_START)


def _calls_not_to_repeat(context: AgentContext) -> list[ToolCall]:
    """The last call, and those made more than once since the user's message: small models repeat themselves."""
    made: list[ToolCall] = []
    for message in reversed(context.messages):
        if type(message) is UserMessage:
            break
        if type(message) is AssistantMessage:
            made.extend(message.tool_calls)
    keys = [(call.name, spaced_json(call.arguments)) for call in made]
    return [call for call, key in zip(made, keys, strict=True) if key == keys[0] or keys.count(key) > 1]


def last_complaint(context: AgentContext) -> str:
    """The error of the last call, if it failed: it may name a parameter that the model was not shown."""
    last = context.messages[-1] if context.messages else None
    return extract_text(last.content) if type(last) is ToolResultMessage and last.is_error else ""


def _limited_to_read_files(tools: Sequence[ShownTool], context: AgentContext) -> list[ShownTool]:
    """The tools, with editing limited to files that were read: a small model edits content that it imagines."""
    if not any(tool.name == _READING for tool in tools):
        return list(tools)
    seen = [call for call, _ in succeeded(context.messages) if call.name in (_READING, _EDITING, _WRITING)]
    paths = {path: None for call in seen if isinstance(path := call.arguments.get("path"), str)}
    found: list[ShownTool] = []
    for tool in tools:
        if tool.name != _EDITING or "path" not in tool.schema.get("properties", {}):
            found.append(tool)
        elif paths:
            properties = {**tool.schema["properties"], "path": {"enum": list(paths)}}
            found.append(structs.replace(tool, schema={**tool.schema, "properties": properties}))
    return found


def succeeded(messages: Sequence[AgentMessage]) -> Iterator[tuple[ToolCall, ToolResultMessage]]:
    """The calls that succeeded, each with its result. Ids may recur: a result belongs to the reply before it."""
    calls: dict[str, ToolCall] = {}
    for message in messages:
        if type(message) is AssistantMessage:
            calls = {call.id: call for call in message.tool_calls}
        elif type(message) is ToolResultMessage and not message.is_error and message.tool_call_id in calls:
            yield calls[message.tool_call_id], message


_CONTROL = re.compile(
    r"<(?=\|)|<(?=/?(?:s|unk|pad|bos|eos|think|tools?|tool_call|tool_response|start_of_turn|end_of_turn)>)|\[(?=/?INST\])"
)


def plain(text: str) -> str:
    """Breaks up control tokens in a text: a file must not end its message and continue in another role."""
    return _CONTROL.sub(lambda found: f"{found[0]} ", text)


def _stuck_tools(context: AgentContext) -> set[str]:
    """The tools that failed twice since anything succeeded: a small model's third try is not better."""
    failed: list[str] = []
    for message in reversed(context.messages):
        if type(message) is UserMessage or (type(message) is ToolResultMessage and not message.is_error):
            break
        if type(message) is ToolResultMessage:
            failed.append(message.tool_name)
    return {name for name in failed if failed.count(name) > 1}


# -- the conversation ----------------------------------------------------------------------------------------


class Turn(Value, frozen=True):
    """One message, or a call with its results, kept or dropped as a whole. Each text has its role."""

    texts: tuple[tuple[str, str], ...]
    is_request: bool = False
    """Whether this is the user's last request, without which the rest makes no sense."""

    @property
    def length(self) -> int:
        return sum(len(text) for _, text in self.texts)


def turns(messages: Sequence[LlmMessage], *, with_tools: bool, result_characters: int) -> list[Turn]:
    """The conversation, each call together with its results."""
    found: list[Turn] = []
    for message in messages:
        match message:
            case UserMessage():
                found.append(Turn((("user", _said(message)),), is_request=True))
            case AssistantMessage():
                if text := _spoken(message, with_tools=with_tools):
                    found.append(Turn((("assistant", text),)))
            case ToolResultMessage():
                text = _result(message, result_characters, with_tools=with_tools)
                if found and not found[-1].is_request:
                    found[-1] = Turn((*found[-1].texts, ("user", text)))
    requests = [turn for turn in found if turn.is_request]
    return [Turn(turn.texts, is_request=bool(requests) and turn is requests[-1]) for turn in found]


def _said(message: UserMessage) -> str:
    text = plain(extract_text(message.content))
    images = sum(type(block) is Image for block in message.content)
    if images:
        text += f"\n({images} image{'s' * (images > 1)}, which you cannot see)"
    return "\n".join([text, *_documents(message)])


def _documents(message: UserMessage | ToolResultMessage) -> list[str]:
    return [plain(document_note(block)) for block in message.content if type(block) is Document]


def _spoken(message: AssistantMessage, *, with_tools: bool) -> str:
    """An assistant's message as this model would have written it, so that the cache holds its own replies."""
    calls = [
        f"{CALL_START}{call_head(call.name)}{plain(spaced_json(call.arguments))}}}{CALL_END}"
        for call in message.tool_calls
    ]
    text = plain(message.text)
    if not text.strip():
        return "\n".join(calls)
    if not with_tools or calls:
        return "\n".join([text, *calls])
    return f"{CALL_START}{call_head(ANSWER)}{spaced_json({'text': text})}}}{CALL_END}"


def _result(message: ToolResultMessage, most: int, *, with_tools: bool) -> str:
    text = plain(extract_text(message.content).strip())
    if any(type(block) is Image for block in message.content):
        text += "\n(an image, which you cannot see)"
    text = "\n".join([text, *_documents(message)])
    text = _shortened(text or "(no output)", most)
    hint = (_AFTER_FAILURE if message.is_error else _AFTER_SUCCESS) if with_tools else ""
    return f"<tool_response>\n{text}\n</tool_response>" + (f"\n{hint}" if hint else "")


def _shortened(text: str, most: int) -> str:
    """The beginning and the end of a long text: the model reads slowly, and a small one loses track."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most - most * 2 // 3
    return f"{text[:head]}\n… ({len(text) - most} characters left out) …\n{text[-tail:]}"


def render_chatml(system: str, conversation: Sequence[Turn]) -> str:
    """The prompt up to the beginning of the assistant's reply."""
    parts = [f"<|im_start|>system\n{system}<|im_end|>\n"] if system else []
    for turn in conversation:
        parts += [f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turn.texts]
    return "".join(parts) + "<|im_start|>assistant\n"


def fitted(conversation: Sequence[Turn], most: int) -> list[Turn] | None:
    """The turns that fit into `most` characters; `None` if even those that must stay are longer.

    The oldest are dropped; the last request and the newest turn stay. The cut moves in steps, so that the beginning of
    the prompt stays the same for several turns and the cache remains valid.
    """
    if sum(turn.length for turn in conversation) <= most:
        return list(conversation)
    step = max(1, most // _STEPS_OF_WINDOW)
    last = len(conversation) - 1
    must_stay = [turn.is_request or position == last for position, turn in enumerate(conversation)]
    goal = step
    while True:
        dropped, kept = 0, list[Turn]()
        for turn, stays in zip(conversation, must_stay, strict=True):
            if not stays and dropped < goal:
                dropped += turn.length
            else:
                kept.append(turn)
        if sum(turn.length for turn in kept) <= most:
            return kept
        if len(kept) == sum(must_stay):
            return None
        goal += step
