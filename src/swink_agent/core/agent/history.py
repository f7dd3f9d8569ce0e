"""The history of an agent as a list that can be read at any time and changed between runs.

Owns the list interface. The agent owns the messages, and refuses changes during a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableSequence, Sequence
from copy import deepcopy
from typing import Any, ClassVar, cast, overload

from ..types import AgentMessage, as_messages
from ..values.value import show


class History(MutableSequence[AgentMessage]):
    """An agent's messages, live. Changing them during a run raises `AlreadyRunning`."""

    __slots__ = ("_append", "_read", "_replace")
    __hash__: ClassVar[None]  # pyright: ignore[reportIncompatibleMethodOverride] - a list has no hash

    def __init__(
        self,
        read: Callable[[], Sequence[AgentMessage]],
        replace: Callable[[Sequence[AgentMessage]], None],
        append: Callable[[Sequence[AgentMessage]], None],
    ) -> None:
        self._read = read
        self._replace = replace
        self._append = append

    def __len__(self) -> int:
        return len(self._read())

    @overload
    def __getitem__(self, index: int) -> AgentMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[AgentMessage]: ...
    def __getitem__(self, index: int | slice) -> AgentMessage | list[AgentMessage]:
        messages = self._read()
        return list(messages[index]) if isinstance(index, slice) else messages[index]

    def __setitem__(self, index: int | slice, value: Any) -> None:
        messages = list(self)
        if isinstance(index, slice):
            messages[index] = as_messages(list(value))
        else:
            (messages[index],) = as_messages(value)
        self._replace(messages)

    def __delitem__(self, index: int | slice) -> None:
        messages = list(self)
        del messages[index]
        self._replace(messages)

    def insert(self, index: int, value: AgentMessage | str) -> None:
        if index >= len(self):
            self._append(as_messages(value))
        else:
            messages = list(self)
            messages[index:index] = as_messages(value)
            self._replace(messages)

    def extend(self, values: Iterable[AgentMessage | str]) -> None:
        self._append(as_messages(list(values)))

    def clear(self) -> None:
        self._replace(())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (History, list, tuple)):
            return NotImplemented
        return list(self) == list(cast("Iterable[Any]", other))

    def __add__(self, other: Iterable[AgentMessage]) -> list[AgentMessage]:
        return [*self, *other]

    def __radd__(self, other: Iterable[AgentMessage]) -> list[AgentMessage]:
        return [*other, *self]

    # A copy is a separate list: the history itself belongs to its agent.

    def copy(self) -> list[AgentMessage]:
        """Returns the messages as they are now, in a new list."""
        return list(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> list[AgentMessage]:
        return deepcopy(list(self), memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, (list(self),))

    def __repr__(self) -> str:
        return show(list(self))
