"""The entry for the registry of agents, checked against what the registry accepts."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema_rs

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "packaging" / "acp"
_WORDS = {"type": "string", "minLength": 1}
_URL = {"type": "string", "format": "uri"}
_PACKAGE: dict[str, Any] = {
    "type": "object",
    "required": ["package"],
    "properties": {
        "package": _WORDS,
        "args": {"type": "array", "items": {"type": "string"}},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "additionalProperties": False,
}
REGISTRY: dict[str, Any] = {
    "type": "object",
    "required": ["id", "name", "version", "description", "distribution"],
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z][a-z0-9-]*$"},
        "name": _WORDS,
        "version": {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+"},
        "description": _WORDS,
        "repository": _URL,
        "website": _URL,
        "authors": {"type": "array", "items": {"type": "string"}},
        "license": {"type": "string"},
        "license_url": _URL,
        "distribution": {
            "type": "object",
            "minProperties": 1,
            "properties": {"npx": _PACKAGE, "uvx": _PACKAGE},
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
"""What the registry accepts of an entry that is installed as a package."""


def test_the_entry_is_as_the_registry_wants_it_and_names_this_version() -> None:
    entry = json.loads((FOLDER / "agent.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [str(error) for error in jsonschema_rs.validator_for(REGISTRY).iter_errors(entry)] == []
    assert entry["version"] == project["version"]
    started = entry["distribution"]["uvx"]
    assert started == {"package": f"{project['name']}[acp]@{project['version']}", "args": ["acp"]}
    assert project["name"] in project["scripts"]  # `uvx` starts the program that has the name of the package


def test_the_icon_has_the_size_and_the_colour_that_the_registry_wants() -> None:
    icon = ElementTree.fromstring((FOLDER / "icon.svg").read_text())
    assert icon.tag == "{http://www.w3.org/2000/svg}svg"
    assert (icon.get("width"), icon.get("height"), icon.get("viewBox")) == ("16", "16", "0 0 16 16")
    colours = [value for one in icon.iter() for name in ("fill", "stroke") if (value := one.get(name)) is not None]
    assert set(colours) == {"currentColor", "none"}
    assert not re.search(r"#[0-9a-fA-F]{3}|rgb\(|style=", (FOLDER / "icon.svg").read_text())
