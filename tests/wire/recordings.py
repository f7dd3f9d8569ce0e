"""Reads a recording, and derives the message that an adapter must read from it.

Knows the layout of the recordings and the digests' names for providers' terms. Does not depend on the adapters.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

from swink_agent import AssistantMessage, ErrorKind, StopReason, Thinking, Usage

__all__ = ["Recording", "all_recordings"]

STOP = {
    "stop": StopReason.STOP,
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "pause_turn": StopReason.STOP,
    "completed": StopReason.STOP,
    "eos": StopReason.STOP,
    "STOP": StopReason.STOP,
    "length": StopReason.LENGTH,
    "max_tokens": StopReason.LENGTH,
    "MAX_TOKENS": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "tool_calls": StopReason.TOOL_USE,
    "tool_use": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
}


def all_recordings() -> list[Recording]:
    """The recordings in the folder `SWINK_WIRE_DIR`, or none if the variable is not set."""
    if not (given := os.environ.get("SWINK_WIRE_DIR")):
        return []
    found = [Recording(meta.parent) for meta in sorted(Path(given).glob("*/*/meta.json"))]
    assert found, f"SWINK_WIRE_DIR is {given!r}, which contains no recordings (files */*/meta.json)"
    return found


class Recording:
    """One folder of recordings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"{folder.parent.name}/{folder.name}"

    def __repr__(self) -> str:
        return self.name

    @cached_property
    def meta(self) -> dict[str, Any]:
        return json.loads((self.folder / "meta.json").read_text())

    @cached_property
    def expected(self) -> dict[str, Any]:
        return json.loads((self.folder / "expected.json").read_text())

    @cached_property
    def body(self) -> bytes:
        return (self.folder / "body.bin").read_bytes()

    @property
    def api(self) -> str:
        return self.meta["api"]

    @property
    def provider(self) -> str:
        return self.meta["provider"]

    @property
    def status(self) -> int:
        return self.meta["response"]["status"]

    @property
    def headers(self) -> dict[str, str]:
        headers = {name.lower(): value for name, value in (self.meta["response"].get("headers") or {}).items()}
        for name in ("content-length", "content-encoding", "transfer-encoding", "connection"):
            headers.pop(name, None)
        return headers

    @property
    def is_error(self) -> bool:
        return self.expected["kind"] == "error"

    # -- what must come out ------------------------------------------------------------------------------------

    def check_failure(self, message: AssistantMessage) -> None:
        """An HTTP error became the right kind of failure."""
        scenario = self.meta["scenario"]
        assert message.stop_reason == StopReason.ERROR
        kind = message.error_kind
        if self.status == 429:
            assert kind == ErrorKind.THROTTLED
        elif self.status in (401, 403) or "auth-error" in scenario:
            assert kind == ErrorKind.AUTH
        elif self.status in (408, 529) or self.status >= 500:
            assert kind == ErrorKind.NETWORK
        elif "context-overflow" in scenario:
            assert kind == ErrorKind.CONTEXT_OVERFLOW
        else:
            assert kind == ErrorKind.INVALID_REQUEST

    def check_message(self, message: AssistantMessage) -> None:
        """A stream became the message that the digest describes."""
        expected = self.expected
        assert message.text == expected["text"]
        thinking = [block for block in message.content if isinstance(block, Thinking)]
        assert "".join(block.thinking for block in thinking) == expected["thinking"]
        if self._must_fail():
            assert message.is_failed
            self._check_stream_failure(message)
            return
        assert not message.is_failed, message.error_message
        calls = [(call.name, call.arguments) for call in message.tool_calls if not call.is_incomplete]
        wanted = [(call["name"], call["arguments"]) for call in expected["tool_calls"] if call["arguments"] is not None]
        assert calls == wanted
        for call, digest in zip(message.tool_calls, expected["tool_calls"], strict=True):
            assert call.id == digest["id"] if digest["id"] else call.id
            if digest["arguments"] is None and "arguments_raw" in digest:  # what cannot be read keeps its text
                assert call.partial_json == digest["arguments_raw"]
        assert message.served_model == (self.expected["model"] or None)
        if not (named := self.expected["message_id"] or "").startswith("capture-id-"):  # made anonymous, event by event
            assert message.response_id == (named or None)
        self._check_stop(message)
        self._check_usage(message.usage)
        self._check_signatures(thinking)

    def _must_fail(self) -> bool:
        """Whether the reply has an error, a refusal or a filter in it, or no end."""
        expected = self.expected
        filtered = expected["stop"] in (
            "content_filter",
            "content_filtered",
            "guardrail_intervened",
            "refusal",
            "SAFETY",
            "RECITATION",
            "PROHIBITED_CONTENT",
            "BLOCKLIST",
            "SPII",
            "MALFORMED_FUNCTION_CALL",
            "IMAGE_SAFETY",
            "failed",
        )
        incomplete = self.expected["stop"] == "incomplete" and "content_filter" in json.dumps(
            expected.get("stop_detail")
        )
        return bool(filtered or incomplete or expected.get("refusal") or not self._has_end())

    def _has_end(self) -> bool:
        """Whether the stream says that the reply is whole: by a stop reason, or of a chat by its last line alone."""
        is_marked = self.api == "openai-chat" and b"data: [DONE]" in self.body
        return self.expected["stop"] is not None or (is_marked and not self.expected.get("error"))

    def _check_stream_failure(self, message: AssistantMessage) -> None:
        expected = self.expected
        if expected.get("refusal") or "content-filter" in self.meta["scenario"]:
            assert message.error_kind == ErrorKind.CONTENT_FILTERED
        elif "overloaded" in json.dumps(expected.get("error") or ""):
            assert message.error_kind == ErrorKind.NETWORK
        elif "rottling" in json.dumps(expected.get("error") or "") or "rate_limit" in json.dumps(expected.get("error")):
            assert message.error_kind == ErrorKind.THROTTLED

    def stop_reason(self) -> StopReason | None:
        stop = self.expected["stop"]
        if stop == "incomplete":
            return StopReason.LENGTH
        if stop is None:
            return StopReason.TOOL_USE if self.expected["tool_calls"] else StopReason.STOP
        # Gemini's vendor samples have a reason of the future in them: unknown ones are a stop.
        return STOP.get(stop, StopReason.STOP if self.api == "gemini" else None)

    def _check_stop(self, message: AssistantMessage) -> None:
        reason = self.stop_reason()
        assert reason is not None, f"the stop {self.expected['stop']!r} is not in the table"
        has_calls = bool(self.expected["tool_calls"])
        if self.api in ("gemini", "openai-responses", "ollama-chat") and has_calls and reason == StopReason.STOP:
            reason = StopReason.TOOL_USE
        assert message.stop_reason == reason

    def _check_signatures(self, thinking: list[Thinking]) -> None:
        if self.api not in ("anthropic-messages", "bedrock-invoke-anthropic"):
            return  # other providers' signatures are carried in forms of the adapters' own
        digests = [(item["chars"], item["sha256"]) for item in self.expected.get("signatures") or []]
        signed = [block.signature.removeprefix("redacted:") for block in thinking if block.signature]
        found = [(len(text), hashlib.sha256(text.encode()).hexdigest()) for text in signed]
        assert found == digests

    def _check_usage(self, usage: Usage) -> None:
        wanted = self.usage()
        if wanted is not None:
            assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == wanted
            assert usage.total == sum(wanted)

    def usage(self) -> tuple[int, int, int, int] | None:
        """Input, output, cache read and cache write, as the digest's own counts say."""
        counts = self.expected.get("usage")
        if not counts:
            return None
        if self.api in ("openai-chat",):
            prompt, output = counts.get("prompt_tokens") or 0, counts.get("completion_tokens") or 0
            details = counts.get("prompt_tokens_details") or {}
            cached = details.get("cached_tokens") or counts.get("prompt_cache_hit_tokens") or 0
            written = details.get("cache_write_tokens") or 0
            reasoning = (counts.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
            if reasoning and counts.get("total_tokens") == prompt + output + reasoning:
                output += reasoning
            return max(0, prompt - cached - written), output, cached, written
        if self.api == "openai-responses":
            prompt, output = counts.get("input_tokens") or 0, counts.get("output_tokens") or 0
            details = counts.get("input_tokens_details") or {}
            cached, written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
            return max(0, prompt - cached - written), output, cached, written
        if self.api in ("anthropic-messages", "bedrock-invoke-anthropic"):
            return (
                counts.get("input_tokens") or 0,
                counts.get("output_tokens") or 0,
                counts.get("cache_read_input_tokens") or 0,
                counts.get("cache_creation_input_tokens") or 0,
            )
        if self.api == "bedrock-converse":
            return (
                counts.get("inputTokens") or 0,
                counts.get("outputTokens") or 0,
                counts.get("cacheReadInputTokens") or counts.get("cacheReadInputTokenCount") or 0,
                counts.get("cacheWriteInputTokens") or counts.get("cacheWriteInputTokenCount") or 0,
            )
        if self.api == "ollama-chat":
            return counts.get("prompt_eval_count") or 0, counts.get("eval_count") or 0, 0, 0
        if self.api == "gemini":
            cached = counts.get("cachedContentTokenCount") or 0
            prompt = (counts.get("promptTokenCount") or 0) + (counts.get("toolUsePromptTokenCount") or 0)
            output = (counts.get("candidatesTokenCount") or 0) + (counts.get("thoughtsTokenCount") or 0)
            return max(0, prompt - cached), output, cached, 0
        return None
