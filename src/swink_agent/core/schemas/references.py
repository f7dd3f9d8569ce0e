"""Schemas without references, as far as that is possible.

Owns the way from a schema with definitions beside it to one that a provider understands that follows none.
"""

from __future__ import annotations

from typing import Any, cast

from ..values.value import copy_json

__all__ = ["TITLE", "JsonSchema", "inline"]

JsonSchema = dict[str, Any]

TITLE = "$title"
"""The key of a title that somebody wrote. Those under `title` were made up from names, and say nothing new."""


def inline(schema: JsonSchema, components: dict[str, JsonSchema]) -> JsonSchema:
    """The schema with each `$ref` replaced by what it names: not every provider follows references.

    Types that contain themselves keep theirs, with the definitions that they need beside them.
    """
    recurring: set[str] = set()
    definitions: JsonSchema = {}

    def resolve(node: Any, path: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [resolve(item, path) for item in cast("list[Any]", node)]
        if not isinstance(node, dict):
            return node
        fields = cast("JsonSchema", node)
        definitions.update(fields.get("$defs", {}))  # of a part that brought its own
        name = str(fields.get("$ref", "")).rpartition("/")[2]
        if name in components:
            if name in path or name in recurring:
                recurring.add(name)
                return fields
            rest = {key: resolve(value, path) for key, value in fields.items() if key != "$ref"}
            return resolve(components[name], (*path, name)) | rest
        return {
            "title" if key == TITLE else key: resolve_field(key, value, path)
            for key, value in fields.items()
            if key not in ("title", "$defs")
        }

    def resolve_field(key: str, value: Any, path: tuple[str, ...]) -> Any:
        if key in ("default", "const", "enum", "examples"):
            return value
        if key in ("properties", "patternProperties") and isinstance(value, dict):
            return {name: resolve(item, path) for name, item in cast("JsonSchema", value).items()}
        return resolve(value, path)

    resolved = resolve(copy_json(schema), ())
    while missing := recurring - definitions.keys():
        for name in missing:
            definitions[name] = resolve(components[name], (name,))
    return resolved | {"$defs": definitions} if definitions else resolved
