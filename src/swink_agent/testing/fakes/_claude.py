"""The rules for Claude's thinking, which Anthropic's API and Bedrock share.

Signatures of one of the two are valid at the other, as Anthropic documents.
"""

from __future__ import annotations

import re
from typing import Any

from .kit.checks import mapping
from .kit.replies import is_signed, sign

_ISSUER = "claude"
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d)(?:-(\d{1,2}))?(?!\d)")
_FEWEST_THINKING_TOKENS = 1024


def is_claude(model: str) -> bool:
    return "claude" in model


def version_of(model: str) -> tuple[int, int]:
    """Major and minor version, from names such as `claude-3-7-sonnet-20250219` or `us.anthropic.claude-opus-4-7`."""
    match = _VERSION.search(model)
    return (0, 0) if match is None else (int(match[1]), int(match[2] or 0))


def signature_of(thinking: str) -> str:
    return sign(_ISSUER, thinking)


def signature_problem(thinking: object, signature: object) -> str | None:
    """Returns what is wrong with the signature of a thinking block, or `None`."""
    if signature is None:
        return "the signature is required"
    if not is_signed(_ISSUER, str(thinking), signature):
        return "invalid signature: it is not the one that was issued for this thinking"
    return None


def is_redacted_thinking(data: object) -> bool:
    """Whether the data of a redacted block was issued for one."""
    return is_signed(_ISSUER, "redacted", data)


def check_thinking(
    thinking: dict[str, Any], model: str, max_tokens: object, temperature: object, found: list[str]
) -> None:
    """Checks the request's thinking settings."""
    kind, version = thinking.get("type"), version_of(model)
    off = "between_tools" if "sonnet" in model and version >= (5, 5) else "disabled"
    if kind not in ("enabled", "adaptive", off):
        found.append(f"thinking.type: {kind!r} is not one of enabled, adaptive, {off}")
    if kind == "enabled":
        _check_budget(thinking.get("budget_tokens"), max_tokens, found)
        if version >= (4, 7):
            found.append(f"thinking.type: 'enabled' is not supported by {model}; use 'adaptive'")
    elif "budget_tokens" in thinking:
        found.append(f"thinking.budget_tokens: not permitted with type {kind!r}")
    if kind == "adaptive" and (0, 0) < version < (4, 6):
        found.append(f"thinking.type: 'adaptive' is not supported by {model}; use 'enabled'")
    if kind in ("enabled", "adaptive") and temperature not in (None, 1):
        found.append("temperature: may only be 1 when thinking is on")


def _check_budget(budget: object, max_tokens: object, found: list[str]) -> None:
    if not isinstance(budget, int) or budget < _FEWEST_THINKING_TOKENS:
        found.append(f"thinking.budget_tokens: must be at least {_FEWEST_THINKING_TOKENS}")
    elif isinstance(max_tokens, int) and budget >= max_tokens:
        found.append("max_tokens: must be greater than thinking.budget_tokens")


def check_thinking_first(thinking: object, first_block: str, where: str, found: list[str]) -> None:
    """Checks that the reply with the last tool results begins with thinking, if there is a budget for thinking.

    Adaptive thinking does not require it.
    """
    if mapping(thinking).get("type") == "enabled" and first_block not in ("thinking", "redacted_thinking"):
        found.append(f"{where}: when thinking is enabled, a final assistant message must start with a thinking block")
