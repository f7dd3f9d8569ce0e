"""Turns the schema of a server's tool into one that every provider takes, or explains why that is impossible.

If a provider does not take one schema, it refuses the whole request, with the tools of every other server. What is
dropped here only widens the schema: each value that the server takes is valid under the result, and the server checks
its arguments itself. So what cannot be said goes together with what depends on it: `not`, `if` and the like of a part
that was widened, and `unevaluatedProperties` wherever anything was lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from swink_agent.core.schemas.validation import InvalidSchema, compile_schema
from swink_agent.rendering.texts.invisible import is_deceptive, ordinary_places

if TYPE_CHECKING:
    from swink_agent.core.secrets.redaction import Redactor

LONGEST_DESCRIPTION = 2048
_LARGEST = 64 * 1024
_DEEPEST = 32
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_CHOICES = ("anyOf", "oneOf")
_DEFINITIONS = frozenset({"$defs", "definitions", "$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor"})
"""Keywords that only serve references, which are written out."""
_NOT_AT_TOP = frozenset({"not", "if", "then", "else", "enum", "const", "dependentSchemas", "dependencies"})
"""Keywords that providers refuse at the top, in addition to `anyOf`, `oneOf` and `allOf`."""
_IN_PLACE = frozenset({"allOf", *_CHOICES, "if", "then", "else", "not", "dependentSchemas"})
"""Keywords whose schemas are for the same value."""
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords whose value is an object of schemas, under names that the author chooses."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANNOTATIONS = frozenset(
    {"description", "title", "default", "example", "examples", "deprecated", "readOnly", "writeOnly"}
)
"""Keywords that refuse nothing."""
_UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
_WHOLE_ONLY = frozenset({"not", "if", "oneOf", "contains"})
"""Keywords that may refuse more if their schema becomes wider."""
_AT_ONCE = frozenset({"if", "then", "else", "contains", "minContains", "maxContains"})
_GROUPS = (
    frozenset({"properties", "patternProperties", "additionalProperties"}),
    frozenset({"items", "prefixItems", "additionalItems"}),
    frozenset({"contains", "minContains", "maxContains"}),
    frozenset({"if", "then", "else"}),
)
"""Keywords that mean something else when they come into one schema."""
_OLD_DRAFT = re.compile(r"draft-0[3467]")
_DATA = frozenset({"default", "const", "enum", "examples", "example"})  # keywords whose value is not a schema

Schema = dict[str, Any]


class UnusableSchema(ValueError):
    """A schema that no provider would take. The message continues "its schema"."""


def tame_schema(given: object) -> Schema:
    """The schema for providers. Raises `UnusableSchema` with the reason."""
    if not isinstance(given, dict):
        raise UnusableSchema("is missing")
    schema = cast("Schema", given)
    _check_size(schema)
    inliner = _Inliner(schema)
    written = inliner.written(schema)
    if inliner.lost and inliner.has_unevaluated:
        written = _Inliner(schema, keeps_unevaluated=False).written(schema)
    merged = _merged(written)
    if merged is None:
        raise UnusableSchema("does not describe an object")
    top = {key: value for key, value in merged.items() if key not in _NOT_AT_TOP}
    properties: Schema = top.setdefault("properties", {})
    top["type"] = "object"
    if "required" in top:
        for name in top["required"]:
            properties.setdefault(name, {})  # a provider refuses a required property that is not described
    _check_size(top)
    _check_names(top)
    try:
        compile_schema(top)
    except InvalidSchema as error:
        raise UnusableSchema(f"is not valid JSON Schema ({error.reason[:200]})") from None
    return top


def shown_text(text: object, most: int = LONGEST_DESCRIPTION, *redactors: Redactor | None) -> str:
    """A server's text without invisible characters and without secrets, cut to `most` characters.

    Of a longer text, only the beginning is masked, and it ends before what may be the beginning of a secret.
    """
    if not isinstance(text, str):
        return ""
    shown = text[: most * 4]  # a longer one is cut anyway
    if not (shown.isascii() and shown.isprintable()):
        ordinary = ordinary_places(shown)
        kept = [c for place, c in enumerate(shown) if c in "\n\t" or place in ordinary or not is_deceptive(c)]
        shown = "".join(kept)
    for redactor in redactors:  # not before: an invisible character within a secret would hide it
        if redactor is not None:
            shown = redactor.redact(shown if len(text) <= most * 4 else shown[: redactor.safe_length(shown)])
    shown = shown.strip()
    return shown if len(shown) <= most else shown[: most - 1] + "…"


# -- references ------------------------------------------------------------------------------------------------------


class _Inliner:
    """Writes references out, with a bound: a few short definitions may refer to each other a billion times."""

    def __init__(self, root: Schema, *, keeps_unevaluated: bool = True) -> None:
        self._root = root
        self._left = _LARGEST
        self._keeps_unevaluated = keeps_unevaluated
        self._is_old = _OLD_DRAFT.search(str(root.get("$schema"))) is not None
        self.has_unevaluated = False
        self.lost = 0
        """How often something was dropped, so that the schema became wider."""

    def written(self, node: Any, path: tuple[str, ...] = (), depth: int = 0) -> Any:
        """The schema without references. `path` are the references that lead here."""
        self._spend(2 + (len(node) if isinstance(node, str) else 0))
        if depth > _DEEPEST:
            raise UnusableSchema(f"is nested deeper than {_DEEPEST} levels")
        if isinstance(node, list):
            return [self.written(item, path, depth + 1) for item in cast("list[Any]", node)]
        if not isinstance(node, dict):
            return node
        fields = cast("Schema", node)
        references = [fields[key] for key in _REFERENCES if key in fields]
        if not references:
            return self._fields(fields, path, depth)
        beside = {key: value for key, value in fields.items() if key not in _REFERENCES}
        if self._is_old:  # its drafts ignore what is beside a reference
            beside = {key: value for key, value in beside.items() if key in _ANNOTATIONS}
        written: Schema = self._fields(beside, path, depth)
        for reference in references:
            target = None if not isinstance(reference, str) or reference in path else self._target(reference)
            if target is None:
                self.lost += 1
            elif isinstance(target, dict):
                named: Schema = self.written(target, (*path, str(reference)), depth)
                both = _both(named, written)
                written = {**written, "allOf": [named, *_list(written, "allOf")]} if both is None else both
            elif target is False:
                written["not"] = Schema()
        return written

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise UnusableSchema("is larger than 64 KB when its references are written out")

    def _fields(self, fields: Schema, path: tuple[str, ...], depth: int) -> Schema:
        written: Schema = {}
        widened: list[str] = []
        for key, value in fields.items():
            self._spend(len(key))
            if key in _DEFINITIONS and not (key == "id" and not isinstance(value, str)):
                continue
            if key in _DATA:
                self._spend(len(msgspec.json.encode(value)))
                written[key] = value
            elif key in ("description", "title"):
                if text := shown_text(value):
                    self._spend(len(text))
                    written[key] = text
            elif key in _BY_NAME and isinstance(value, dict):
                named = cast("Schema", value)
                written[key] = {
                    name: {} if item is True else self.written(item, path, depth + 2) for name, item in named.items()
                }
            elif key in _UNEVALUATED and not self._keeps_unevaluated:
                self.lost += 1
            else:
                self.has_unevaluated = self.has_unevaluated or key in _UNEVALUATED
                before = self.lost
                written[key] = self.written(value, path, depth + 1)
                if self.lost > before and key in _WHOLE_ONLY:
                    widened.append(key)
        for key in widened:
            _without_dependents(written, key)
        self.lost += _modern(written)
        return written

    def _target(self, reference: str) -> Schema | bool | None:
        """The target of a reference within the schema; `None` for any other reference, which is not fetched."""
        if reference in ("#", "#/"):
            return None  # the whole schema: it would contain itself
        if not reference.startswith("#/"):
            return None
        node: Any = self._root
        for part in reference[2:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~").replace("%24", "$").replace("%20", " ")
            if isinstance(node, dict):
                node = cast("Schema", node).get(name)
            elif isinstance(node, list) and name.isdecimal() and int(name) < len(cast("list[Any]", node)):
                node = cast("list[Any]", node)[int(name)]
            else:
                return None
        return cast("Schema", node) if isinstance(node, (dict, bool)) else None


def _without_dependents(schema: Schema, widened: str) -> None:
    """Removes what would refuse more now that this keyword became wider."""
    if widened == "not":
        del schema["not"]
    elif widened == "if":
        for key in ("if", "then", "else"):
            schema.pop(key, None)
    elif widened == "contains":
        schema.pop("maxContains", None)
    else:
        schema["allOf"] = [*_list(schema, "allOf"), {"anyOf": schema.pop("oneOf")}]


def _both(one: Schema, other: Schema) -> Schema | None:
    """One plain schema for values that are valid under both, if that can be said without `allOf`."""
    if not one or not other:
        return one or other
    said = [{key for key in each if key not in _ANNOTATIONS} for each in (one, other)]
    shared = {key for key in said[0] & said[1] if one[key] != other[key] or key in _AT_ONCE} - {"required"}
    if shared or any(said[0] & group and said[1] & group for group in _GROUPS) or (said[0] | said[1]) & _UNEVALUATED:
        return None
    both = {**one, **other}
    if "required" in said[0] & said[1]:
        both["required"] = list(dict.fromkeys([*_required(one), *_required(other)]))
    return both


def _list(schema: Schema, key: str) -> list[Any]:
    value = schema.get(key)
    return cast("list[Any]", value) if isinstance(value, list) else []


def _modern(schema: Schema) -> int:
    """Rewrites keywords of older drafts: providers take only the current one, with `items` for every array.

    Returns how much was lost.
    """
    lost = 0
    kind = schema.get("type")
    if kind == "array" or (isinstance(kind, list) and "array" in kind):
        schema.setdefault("items", {})
    items = schema.get("items")
    if isinstance(items, list):  # a tuple
        choices = cast("list[Any]", items)
        rest: Any = schema.pop("additionalItems", True)
        rest = Schema() if rest is True else rest
        if rest is not False and rest not in choices:
            choices = [*choices, rest]
        schema["items"] = choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {}
        lost += 1
    for bound, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(strict), bool):
            is_strict = schema.pop(strict)
            if is_strict and bound in schema:
                schema[strict] = schema.pop(bound)
    if "required" in schema and not isinstance(schema["required"], list):
        del schema["required"]  # a draft that marked each property
        lost += 1
    if schema.pop("dependencies", None) is not None:  # of a draft that had one keyword for two things
        lost += 1
    return lost


# -- the top ---------------------------------------------------------------------------------------------------------


def _merged(schema: Schema) -> Schema | None:
    """The schema with its `anyOf`, `oneOf` and `allOf` merged into `properties`; `None` if it is not an object's."""
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        return None
    left_out = {"allOf", *_CHOICES, *(_UNEVALUATED if schema.keys() & _IN_PLACE else ())}
    base = {key: value for key, value in schema.items() if key not in left_out}
    properties = base.get("properties", {})
    if not isinstance(properties, dict):
        return None
    base["properties"] = dict(cast("Schema", properties))
    required = _required(base)
    for part in _branches(schema, "allOf"):
        merged = _merged(part)
        if merged is None:
            return None
        for name, value in merged["properties"].items():
            there = base["properties"].get(name, {})
            if isinstance(there, dict) and isinstance(value, dict):
                one, other = cast("Schema", there), cast("Schema", value)
                both = one if one == other else _both(one, other)
                base["properties"][name] = {"allOf": [one, other]} if both is None else both
            else:
                base["properties"][name] = there if there is False else value
        required += _required(merged)
    for keyword in _CHOICES:
        branches = [merged for part in _branches(schema, keyword) if (merged := _merged(part)) is not None]
        if not branches:
            if _branches(schema, keyword):
                return None
            continue
        _add_choices(base["properties"], branches)
        first, *others = [_required(branch) for branch in branches]
        required += [name for name in first if all(name in other for other in others)]
    dependent = schema.get("dependentSchemas")
    perhaps: list[Any] = [schema.get("then"), schema.get("else")]
    perhaps += cast("Schema", dependent).values() if isinstance(dependent, dict) else ()
    conditional = [found for part in perhaps if isinstance(part, dict) and (found := _merged(cast("Schema", part)))]
    if conditional:
        _add_choices(base["properties"], [*conditional, {"properties": {}}])
    base.pop("required", None)
    if required:
        base["required"] = list(dict.fromkeys(required))
    return base


def _add_choices(properties: Schema, branches: list[Schema]) -> None:
    """Adds the properties of the branches. Any branch may apply, so a property may have any of its forms, and any value
    if a branch that does not describe it lets it pass."""
    forms: dict[str, list[Any]] = {}
    for branch in branches:
        for name, value in branch["properties"].items():
            known = forms.setdefault(name, [properties[name]] if name in properties else [])
            if value not in known:
                known.append(value)
    for name, known in forms.items():
        others = [branch for branch in branches if name not in branch["properties"]]
        is_open = any(one.get("additionalProperties") is not False or "patternProperties" in one for one in others)
        if name not in properties and is_open and {} not in known:
            known.append({})
    for name, values in forms.items():
        properties[name] = values[0] if len(values) == 1 else {"anyOf": values}


def _branches(schema: Schema, keyword: str) -> list[Schema]:
    parts = schema.get(keyword)
    given = cast("list[Any]", parts) if isinstance(parts, list) else []
    return [{} if part is True else part for part in given if part is True or isinstance(part, dict)]


def _required(schema: Schema) -> list[str]:
    names = schema.get("required")
    return [name for name in cast("list[Any]", names) if isinstance(name, str)] if isinstance(names, list) else []


# -- limits ----------------------------------------------------------------------------------------------------------


def _check_size(schema: Schema) -> None:
    # The depth first: encoding recurses.
    level: list[Any] = [schema]
    for _ in range(_DEEPEST):
        level = [inner for item in level for inner in _inner(item)]
        if not level:
            break
    if any(isinstance(item, (dict, list)) for item in level):
        raise UnusableSchema(f"is nested deeper than {_DEEPEST} levels")
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError) as error:
        raise UnusableSchema(f"is not JSON ({error})") from None
    if size > _LARGEST:
        raise UnusableSchema("is larger than 64 KB")


def _inner(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return cast("Schema", item).values()
    return cast("list[Any]", item) if isinstance(item, list) else ()


def _check_names(node: Any) -> None:
    if isinstance(node, list):
        for item in cast("list[Any]", node):
            _check_names(item)
    elif isinstance(node, dict):
        for key, value in cast("Schema", node).items():
            if key == "properties" and isinstance(value, dict):
                for name in cast("Schema", value):
                    if not _PROPERTY.fullmatch(name):
                        shown = shown_text(name, 80)
                        raise UnusableSchema(f"has the property {shown!r}: 1 to 64 of A-Z, a-z, 0-9, '_', '.', '-'")
            if key in _BY_NAME and isinstance(value, dict):
                for item in cast("Schema", value).values():
                    _check_names(item)
            elif key not in _DATA:
                _check_names(value)
