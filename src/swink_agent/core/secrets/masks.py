"""The masks of a run's policies: what they make of texts, lines, JSON data, and of a reply while it streams.

Owns how a mask is called: with one line at a time, without its end. A mask that fails gives a `PolicyFailed` that holds
nothing of the text. Which texts enter a run is in `run/state`; which fields hold text, in `masking`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from ..errors import PolicyFailed
from ..policy import name_of
from ..stream import (
    AssistantMessageEvent,
    StreamDone,
    StreamFailed,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ThinkingEnd,
)
from ..values.checks import a_kind

V = TypeVar("V")

_LONG = 2_000  # characters above which a streamed line is cut at white space
_LONGEST = 4_000  # characters after which it is cut in any case
_WHITE = re.compile(r"\s")


class PolicyMasks:
    """The masks of policies, one after another. Raises `PolicyFailed` if one of them fails, now or before."""

    __slots__ = ("_masks", "failure")

    def __init__(self, policies: Sequence[Any]) -> None:
        self._masks: list[tuple[str, Callable[[str], object]]] = [(name_of(one), one.mask) for one in policies]
        self.failure: PolicyFailed | None = None
        """How a mask failed, if one did: from then on, no text is let through."""

    def redact(self, text: str) -> str:
        """Returns the text with each of its lines masked."""
        if "\n" not in text:
            return self._line(text)
        return "\n".join([self._line(line) for line in text.split("\n")])

    def redact_texts(self, texts: Sequence[str]) -> list[str]:
        return [self.redact(text) for text in texts]

    def redact_value(self, value: V) -> V:
        """Returns JSON data with all strings in it masked, keys included."""
        return cast("V", self._value(value))

    def redact_address(self, address: str) -> str:
        return address  # a masked one would not work

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {self._value(key): self._value(item) for key, item in items}
        if isinstance(value, (list, tuple)):
            return [self._value(item) for item in cast("Sequence[Any]", value)]
        return value

    def _line(self, line: str) -> str:
        if self.failure is not None:
            raise self.failure
        end = "\r" if line.endswith("\r") else ""
        shown = line.removesuffix(end) if end else line
        if not shown:
            return line
        for name, mask in self._masks:
            shown = self._masked(name, mask, shown)
        return shown + end

    def _masked(self, name: str, mask: Callable[[str], object], line: str) -> str:
        problem = ""
        try:
            shown = mask(line)
        except Exception as error:
            shown, problem = None, type(error).__name__
        if isinstance(shown, str):
            return shown
        if inspect.iscoroutine(shown):
            shown.close()  # it is never awaited; closing it avoids Python's warning
        # Raised here and not above: the error of a mask may hold the text, and must not hang on ours.
        self.failure = PolicyFailed(name, "mask", problem or f"it returned {a_kind(shown)}, and not a string")
        raise self.failure


class MaskedLines:
    """Masks a text that comes in pieces, line by line. A very long line is cut, at white space if it has any."""

    __slots__ = ("_masks", "_rest", "has_changed")

    def __init__(self, masks: PolicyMasks) -> None:
        self._masks = masks
        self._rest = ""
        self.has_changed = False
        """Whether a mask changed anything so far."""

    def feed(self, text: str) -> str:
        """Returns the lines that are whole now, masked."""
        text = self._rest + text
        shown: list[str] = []
        start = 0
        while end := _end_of_line(text, start):
            shown.append(self._masked(text[start:end]))
            start = end
        self._rest = text[start:]
        return "".join(shown)

    def finish(self) -> str:
        """Returns the last line, masked."""
        rest, self._rest = self._rest, ""
        return self._masked(rest)

    def _masked(self, piece: str) -> str:
        shown = self._masks.redact(piece)
        self.has_changed = self.has_changed or shown != piece
        return shown


def _end_of_line(text: str, start: int) -> int:
    """Returns where the line or the part of a line ends that begins here; 0 if that is not known yet."""
    newline = text.find("\n", start, start + _LONGEST)
    size = (len(text) if newline < 0 else newline) - start
    if size <= _LONG:
        return newline + 1
    last = max(text.rfind(" ", start, start + _LONG), text.rfind("\t", start, start + _LONG))
    if last >= start:
        return last + 1
    if found := _WHITE.search(text, start + _LONG, start + _LONGEST):
        return found.end()
    return start + _LONGEST if size >= _LONGEST else 0


class MaskedReply:
    """Masks the events of one reply: its text and thinking come in whole lines, each masked."""

    __slots__ = ("_blocks", "_masks", "given")

    def __init__(self, masks: PolicyMasks) -> None:
        self._masks = masks
        self._blocks: dict[int, tuple[type[TextDelta | ThinkingDelta], MaskedLines]] = {}
        self.given: list[str] = []
        """The text as the model gave it: that of a native value is read from it."""

    def feed(self, event: AssistantMessageEvent) -> Iterator[AssistantMessageEvent]:
        """Yields the events that are known now."""
        match event:
            case TextDelta(int(index), str(delta)) | ThinkingDelta(int(index), str(delta)):
                kind = type(event)
                if kind is TextDelta:
                    self.given.append(delta)
                _, lines = self._blocks.setdefault(index, (kind, MaskedLines(self._masks)))
                if shown := lines.feed(delta):
                    yield kind(index, shown)
            case TextEnd(int(index)) | ThinkingEnd(int(index)):
                yield from self._flush(index)
                lines = self._blocks[index][1] if index in self._blocks else None
                # A provider rejects a signature if the text differs from what it signed.
                is_changed = lines is not None and lines.has_changed and type(event) is ThinkingEnd
                yield ThinkingEnd(index) if is_changed else event
            case StreamDone() | StreamFailed():
                yield from self.rest()
                yield event
            case _:
                yield event

    def rest(self) -> Iterator[TextDelta | ThinkingDelta]:
        """Yields the beginnings of lines that are not whole."""
        for index in list(self._blocks):
            yield from self._flush(index)

    def _flush(self, index: int) -> Iterator[TextDelta | ThinkingDelta]:
        if index in self._blocks:
            kind, lines = self._blocks[index]
            if shown := lines.finish():
                yield kind(index, shown)

    async def events(self, stream: AsyncIterator[AssistantMessageEvent]) -> AsyncIterator[AssistantMessageEvent]:
        """Yields the masked events of a stream, and closes it at the end."""
        try:
            async for event in stream:
                for shown in self.feed(event):
                    yield shown
        finally:
            if (close := getattr(stream, "aclose", None)) is not None:
                await close()
