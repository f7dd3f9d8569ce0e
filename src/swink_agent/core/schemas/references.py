"""Completes a schema for providers: inlines its references, since not every provider follows them."""

from __future__ import annotations

from typing import Any, cast

from ..values.value import copy_json

JsonSchema = dict[str, Any]

TITLE = "$title"
"""The key of a title that the author wrote. Titles under `title` are generated from names and are dropped."""


def inline(schema: JsonSchema, components: dict[str, JsonSchema]) -> JsonSchema:
    """Replaces each `$ref` in the schema by the component that it names.

    Types that contain themselves keep their references, with the definitions under `$defs`.
    """
    recurring: set[str] = set()
    definitions: JsonSchema = {}

    def resolve(node: Any, path: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [resolve(item, path) for item in cast("list[Any]", node)]
        if not isinstance(node, dict):
            return node
        fields = cast("JsonSchema", node)
        definitions.update(fields.get("$defs", {}))  # of a part with its own definitions
        name = str(fields.get("$ref", "")).rpartition("/")[2]
        if name in components:
            if name in path or name in recurring:
                recurring.add(name)
                return fields
            rest = {key: resolve(value, path) for key, value in fields.items() if key != "$ref"}
            return resolve(components[name], (*path, name)) | rest
        whole: JsonSchema = {
            "title" if key == TITLE else key: resolve_field(key, value, path)
            for key, value in fields.items()
            if key not in ("title", "$defs")
        }
        if whole.get("type") == "array" and "prefixItems" not in whole:
            whole.setdefault("items", {})  # providers refuse a request with an array without `items`
        return whole

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
