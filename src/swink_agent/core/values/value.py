"""The base of all public values: immutable, with a short and safe `repr`; the base of enums; and copies of JSON data.

The values themselves are in `types`, `stream` and `events`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from msgspec import Struct

from ..texts.likeness import close_names
from .checks import is_not

_LONGEST_TEXT = 60
_LONGEST_REASON = 240
_MOST_ITEMS = 3
_LONGEST_REPR = 320

# Patterns as strings, which `re` compiles on first use and caches: nothing is compiled at import.
_PART_OF_A_SECRET_NAME = (
    r"(?i)(api|access)[-_ .]?key|auth|bearer|cookie|credential|passw|passphrase|private|secret|token"
)
_NAME_OF_A_SECRET = (
    r"(?i)(?:(?:api|access|private|secret|master|signing|encryption|license|account)[-_ .]?key(?:[-_ ]id)?|[-_]key"
    r"|[-_]pat|[-_]auth|token|secret|passw(?:or)?d|passphrase|passcode|credentials?|(?:^|[-_])(?:creds?|jwt)|bearer|authorization|cookie|[-_]dsn"
    r"|[-_]psk|[-_]pwd?|bindpw|conn(?:ection)?[-_ ]?str(?:ing)?)\d{0,3}$"
    r"|(?:^|[-_ .])(?:db|my|pg|sql|user|root|admin|ftp|smtp|mail|ssh)?(?:pass|pwd)\d{0,3}$|^dsn$"
    r"|(?:^|[-_ .])(?:secret|token|password|passwd|api[-_]?key|credential)(?:[-_ .]|$)"
)
_NAME_OF_NO_SECRET = (
    r"(?i)(?:public|pub|publishable|foreign|primary|partition|sort|shard|cache|hot|map|index|row|group"
    r"|routing|lookup|object|parent|child)[-_ .]?key\d{0,3}$"
    r"|(?:file|path|dir|sock|host|port|url|uri|name|type|ttl|count|limit"
    r"|length|size|expiry|expires(?:[-_]in)?|lifetime|timeout|algorithm|issuer|audience)$"
)

_PARTS_OF_SECRET_NAMES = (
    *("key", "token", "secret", "pass", "credential", "cred", "bearer", "auth", "cookie", "pat", "pw", "dsn", "psk"),
    *("conn", "jwt"),
)

T = TypeVar("T")

# The type parameter of agents, tools and contexts: the type of the dependencies that an application gives to a run. For
# type checkers it has a default, which Python 3.11 does not support: left out, it is `Any`.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Deps = TypeVarWithDefault("Deps", default=Any)
    Deps_co = TypeVarWithDefault("Deps_co", covariant=True, default=Any)
    Deps_contra = TypeVarWithDefault("Deps_contra", contravariant=True, default=Any)
    Out = TypeVarWithDefault("Out", default=str)
    Out_co = TypeVarWithDefault("Out_co", covariant=True, default=str)
else:
    Deps = TypeVar("Deps")
    Deps_co = TypeVar("Deps_co", covariant=True)
    Deps_contra = TypeVar("Deps_contra", contravariant=True)
    Out = TypeVar("Out")
    Out_co = TypeVar("Out_co", covariant=True)


class Value(Struct, frozen=True):
    """An immutable value. Its repr is at most a few hundred characters and shows nothing that looks like a secret."""

    hidden_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields whose content the repr hides. It omits `timestamp` altogether."""

    whole_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields with a reason, which the repr shows whole, up to a few sentences."""

    def __repr__(self) -> str:
        return show(self)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Shows in `rich` the same as the repr. msgspec's version would show every field, secrets included."""
        if type(self).__repr__ is not Value.__repr__:
            return [("", _Shown(repr(self)))]
        return [(name, _Shown(shown)) for name, shown in _shown_fields(self, 0)]


class WithDeps(Value, frozen=True):
    """A value with an application's own object in `deps`, which is never shown, pickled or deep-copied, and is compared
    by identity."""

    hidden_fields: ClassVar[frozenset[str]] = frozenset({"deps"})

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        names = self.__struct_fields__
        own, others = [[getattr(one, name) for name in names if name != "deps"] for one in (self, other)]
        return own == others and getattr(self, "deps") is getattr(other, "deps")  # noqa: B009 - subclasses have it

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it may hold mutable state

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "deps"}
        return _made_of, (type(self), fields)


class WithReason(Value, frozen=True):
    """A value with a reason, as text."""

    whole_fields: ClassVar[frozenset[str]] = frozenset({"reason"})

    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.reason), str):
            raise is_not(f"{type(self).__name__}.reason", self.reason, "a string")


class Choice(StrEnum):
    """An enum of strings, which users may also give as strings. Aliases of members, in lower case, are accepted too.

    The `ValueError` for any other string lists them all and suggests the most similar.
    """

    @classmethod
    def _missing_(cls, value: object) -> Choice | None:
        others = {name.lower(): member for name, member in cls.__members__.items() if name != member.name}
        if isinstance(value, str) and value in others:
            return others[value]
        choices = [*[member.value for member in cls], *others]
        near = close_names(value.lower(), choices) if isinstance(value, str) else []
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{value!r} is not a valid {cls.__name__}: use one of {', '.join(map(repr, choices))}{meant}")


def _made_of(kind: type[Any], fields: dict[str, Any]) -> Any:
    return kind(**fields)


def show(value: Any, depth: int = 0) -> str:
    """Returns a repr of any value, short enough for a log line."""
    text = _show(value, depth)
    return text if depth or len(text) <= _LONGEST_REPR else text[: _LONGEST_REPR - 1] + "…"


def show_arguments(arguments: object) -> str:
    """Shows the names of arguments without their values, which may hold secrets."""
    if not isinstance(arguments, dict):
        return "…"
    names = "{" + ", ".join(f"{name}: …" for name in cast("dict[str, Any]", arguments)) + "}"
    return names if len(names) <= _LONGEST_REPR else names[: _LONGEST_REPR - 2] + "…}"


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether a variable, header or field of this name holds a secret, and not just something about one."""
    # Most names contain none of these parts, and the pattern would take ten times as long to find that out.
    lower = name.lower()
    return (
        any(part in lower for part in _PARTS_OF_SECRET_NAMES)
        and re.search(_NAME_OF_A_SECRET, name) is not None
        and re.search(_NAME_OF_NO_SECRET, name) is None
        and name not in ("PWD", "OLDPWD")  # a shell's current and previous folder
    )


_SCALARS = frozenset({str, int, float, bool, type(None)})


def copy_json(value: T) -> T:
    """Returns a copy of JSON data in plain dicts and lists, at any depth. Other objects are shared. A list or dict that
    occurs twice is one in the copy too."""
    if isinstance(value, dict) and _SCALARS.issuperset(map(type, cast("dict[Any, Any]", value).values())):
        return cast("T", dict(cast("dict[Any, Any]", value)))  # as the arguments of most calls are
    top: list[Any] = [value]
    copies: dict[int, Any] = {}
    waiting: list[Any] = [top]
    while waiting:
        place = waiting.pop()
        entries: list[tuple[Any, Any]] = [*(place.items() if isinstance(place, dict) else enumerate(place))]
        for key, item in entries:
            plain: Any = dict if issubclass(type(item), dict) else list if issubclass(type(item), list) else None
            if plain is not None:
                if id(item) not in copies:
                    copies[id(item)] = plain(item)
                    waiting.append(copies[id(item)])
                place[key] = copies[id(item)]
    return top[0]


def _refuse(self: object, *_: Any, **__: Any) -> Any:
    raise TypeError("this data is shared and cannot be changed; copy it, or assign other data where a hook may")


class FrozenDict(dict[Any, Any]):
    """A dict that refuses changes."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (dict(self),))

    def __copy__(self) -> dict[Any, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return copy_json(self)


class FrozenList(list[Any]):
    """A list that refuses changes."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = _refuse
    insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (list(self),))

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return copy_json(self)


def _show(value: object, depth: int) -> str:
    if isinstance(value, Enum):
        return repr(value.value)
    if isinstance(value, str):
        rest = len(value) - _LONGEST_TEXT
        return repr(value) if rest <= 0 else f"{value[:_LONGEST_TEXT]!r}…+{rest}"
    if isinstance(value, (bytes, bytearray)):
        return f"<{len(value)} bytes>"
    if isinstance(value, (Mapping, list, tuple)) and depth > 5:
        return "…"
    if isinstance(value, Value):
        # A value with its own repr, which may hide something, uses it inside other values too.
        if type(value).__repr__ is not Value.__repr__:
            return repr(value)
        parts = [f"{name}={shown}" for name, shown in _shown_fields(value, depth)]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, Mapping):
        return _show_dict(cast("Mapping[Any, Any]", value), depth)
    if isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        shown = [show(item, depth + 1) for item in items[:_MOST_ITEMS]]
        if len(items) > _MOST_ITEMS:
            shown.append(f"…+{len(items) - _MOST_ITEMS}")
        if isinstance(value, list):
            return f"[{', '.join(shown)}]"
        return f"({', '.join(shown)}{',' * (len(items) == 1)})"
    try:
        text = repr(value)
    except Exception:  # the repr of an application's object may fail
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 2 * _LONGEST_TEXT else text[: 2 * _LONGEST_TEXT] + "…"


def _show_dict(value: Mapping[Any, Any], depth: int) -> str:
    parts = [
        f"{key!r}: {'…' if re.search(_PART_OF_A_SECRET_NAME, str(key)) else show(item, depth + 1)}"
        for key, item in list(value.items())[: 2 * _MOST_ITEMS]
    ]
    if len(value) > 2 * _MOST_ITEMS:
        parts.append(f"…+{len(value) - 2 * _MOST_ITEMS}")
    return "{" + ", ".join(parts) + "}"


class _Shown:
    """An object whose repr is the given text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _shown_fields(value: Value, depth: int) -> list[tuple[str, str]]:
    """Returns the fields that are not at their defaults, each with the text that the repr shows."""
    parts: list[tuple[str, str]] = []
    names, defaults = value.__struct_fields__, value.__struct_defaults__
    for position, name in enumerate(names, len(defaults) - len(names)):
        content = getattr(value, name)
        if name == "timestamp" or (name == "deps" and content is None):
            continue
        if name != "deps" and position >= 0 and _is_default(content, defaults[position]):
            continue
        if name in value.hidden_fields:
            shown = "…"
        elif name in value.whole_fields and isinstance(content, str) and len(content) <= _LONGEST_REASON:
            shown = repr(content)
        else:
            shown = show(content, depth + 1)
        parts.append((name, shown))
    return parts


def _is_default(content: Any, default: Any) -> bool:
    # A default with a factory is an empty container here.
    if content is default:
        return True
    if isinstance(content, Value):
        factory = getattr(default, "factory", None)
        return content == (default if factory is None else factory())
    if isinstance(content, (tuple, list, dict)):
        return not content and default is not None
    return type(content) is type(default) and isinstance(content, (str, int, float, bool)) and content == default


def is_same_json(some: Any, others: Any) -> bool:
    """Whether two JSON values are the same. `1`, `1.0` and `true` are all different."""
    if isinstance(others, dict):
        known = cast("dict[str, Any]", others)
        return (
            isinstance(some, dict)
            and some.keys() == known.keys()
            and all(is_same_json(value, known[name]) for name, value in cast("dict[str, Any]", some).items())
        )
    if isinstance(others, list):
        items = cast("list[Any]", others)
        is_as_long = isinstance(some, list) and len(cast("list[Any]", some)) == len(items)
        return is_as_long and all(map(is_same_json, cast("list[Any]", some), items))
    if type(others) in _SCALARS:
        return type(some) is type(others) and some == others
    if isinstance(others, (set, frozenset)):
        return isinstance(some, (set, frozenset)) and some == others
    try:
        return type(some) is type(others) and bool(some == others)
    except Exception:  # some arrays cannot be compared
        return False
