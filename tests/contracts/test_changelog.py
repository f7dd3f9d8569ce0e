"""The changelog can be read in a minute: one heading for each version, three kinds of lines, short lines."""

from __future__ import annotations

import re

from .documents import ROOT

TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
KINDS = ["Added", "Changed", "Fixed"]
MOST_WORDS = 25


def test_each_version_has_one_heading_and_its_kinds_in_order() -> None:
    versions = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    assert versions == sorted(set(versions), reverse=True)
    assert all(re.fullmatch(r"\d+\.\d+(\.\d+)? \((unreleased|\d{4}-\d\d-\d\d)\)", version) for version in versions)
    assert versions[-1].startswith("0.1 ")
    for part in re.split(r"^## .*$", TEXT, flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.*)$", part, re.MULTILINE)
        assert kinds == [kind for kind in KINDS if kind in kinds]


def test_each_line_is_one_short_sentence() -> None:
    body = TEXT.partition("\n## ")[2]
    lines = [line for line in body.splitlines() if line.strip()]
    assert all(line.startswith(("- ", "### ", "0.", "## ", "**")) for line in lines)
    long = [line for line in lines if line.startswith("- ") and len(line[2:].split()) > MOST_WORDS]
    assert not long
