"""The OpenAPI 3.1 document of `/api/v1`, made from the table of routes and the types of their bodies and answers."""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from typing import Any, cast

import msgspec

from .problems import MEDIA_TYPE, ProblemDocument
from .routes.asking import Route, is_optional
from .routes.sessions import SessionState

_REF = "#/components/schemas/{name}"
_PROBLEMS = {"400": "not JSON", "401": "no token", "403": "not allowed", "404": "not found", "409": "not now",
             "413": "too large", "415": "another kind of content", "421": "another host", "422": "wrong fields",
             "501": "not served here", "503": "too many streams"}  # fmt: skip
_IN_PATH = re.compile(r"\{(\w+)\}")


@lru_cache(maxsize=1)
def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Returns the document of these routes."""
    from swink_agent import __version__
    from swink_agent.memory import SessionInfo

    types = {_known(kind) for route in routes for kind in (route.answer, route.body, route.query)} - {None}
    ordered = sorted(cast("set[type[Any]]", types), key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(
        [*ordered, ProblemDocument, SessionInfo],
        ref_template=_REF,
        schema_hook=lambda _: {"description": "any JSON value"},
    )
    schemas = dict(components)
    schemas["Session"] = {"allOf": [{"$ref": _ref("SessionInfo")}, {"$ref": _ref("SessionState")}]}
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(f"/{route.path}", {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Swink Agent",
            "version": __version__,
            "description": "Sessions, runs and evaluations of Swink Agent. Errors are problem documents.",
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _known(kind: Any) -> Any:
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _ref(name: str) -> str:
    return _REF.format(name=name)


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    words = re.sub(r"[^a-z]+", " ", f"{route.method.lower()} {_IN_PATH.sub('', route.path).lower()}").split()
    operation: dict[str, Any] = {
        "operationId": "_".join([*words, *(["one"] if route.path.endswith("}") else [])]),
        "summary": route.summary,
        "tags": [route.path.partition("/")[0]],
        "parameters": _parameters(route, schemas),
        "responses": {
            str(route.status): _answer(route),
            "default": {
                "description": "; ".join([f"{status}: {words}" for status, words in _PROBLEMS.items()]),
                "content": {MEDIA_TYPE: {"schema": {"$ref": _ref("ProblemDocument")}}},
            },
        },
    }
    if route.body is not None:
        content = {"application/json": {"schema": {"$ref": _ref(route.body.__name__)}}}
        operation["requestBody"] = {"required": not is_optional(route.body), "content": content}
    elif route.raw:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content}
    if not operation["parameters"]:
        del operation["parameters"]
    return operation


def _parameters(route: Route, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    text = {"type": "string"}
    query: dict[str, Any] = {} if route.query is None else schemas[route.query.__name__]
    in_path = [("path", name, True, text) for name in _IN_PATH.findall(route.path)]
    required, fields = query.get("required", []), query.get("properties", {})
    in_query = [("query", name, name in required, field) for name, field in fields.items()]
    return [
        {"name": name, "in": place, "required": is_required, "schema": schema}
        for place, name, is_required, schema in (*in_path, *in_query)
    ]


def _answer(route: Route) -> dict[str, Any]:
    phrase = HTTPStatus(route.status).phrase
    if route.answer is None:
        return {"description": phrase}
    if isinstance(route.answer, str):
        return {"description": phrase, "content": {route.answer: {"schema": {"type": "string"}}}}
    if _known(route.answer) is None:
        schema: dict[str, Any] = {"type": "object"}
    elif route.answer is SessionState:
        schema = {"$ref": _ref("Session")}
    else:
        schema = {"$ref": _ref(route.answer.__name__)}
    return {"description": phrase, "content": {"application/json": {"schema": schema}}}
