"""Writes cases into files, as YAML that people continue to edit. The rest of a set stays unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from swink_agent.core.machine.extras import require
from swink_agent.rendering.characters import visible

from ..errors import UsageProblem
from ..settings.paths import write_whole

if TYPE_CHECKING:
    from swink_agent.evals import EvalCase

_NOT_SAID: tuple[Any, ...] = (None, "", [], {})
_INDENTS = (2, 0, 4)


def case_text(case: EvalCase, indent: int = 2) -> str:
    """The case as an item of a list in YAML. Raises `MissingExtra` without PyYAML."""
    yaml = require("yaml", extra="evals")

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as block literals."""

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value and not any(line.endswith((" ", "\t")) for line in value.split("\n")) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)

    def dumped(*, allow_unicode: bool) -> str:
        plain = [_said(msgspec.to_builtins(case, str_keys=True))]
        return str(yaml.dump(plain, Dumper=Dumper, sort_keys=False, allow_unicode=allow_unicode, width=110))

    written = dumped(allow_unicode=True)
    if visible(written) != written:  # invisible characters are escaped in YAML's way
        written = dumped(allow_unicode=False)
    return "".join([f"{' ' * indent}{line}\n" if line else "\n" for line in written.removesuffix("\n").split("\n")])


def add_case(case: EvalCase, path: Path) -> None:
    """Adds the case to the end of a set, or creates the file. If it raises `UsageProblem`, the file is unchanged."""
    from swink_agent.evals import EvalSet, load_set

    if not path.exists():
        begun = f"id: {json.dumps(path.stem)}\nname: {json.dumps(path.stem)}\ncases:\n{case_text(case)}"
        content = begun if path.suffix.lower() != ".json" else _json(EvalSet(path.stem, path.stem, [case]))
        write_whole(path, content, mode=0o644)
        return
    before = load_set(path)
    if any(held.id == case.id for held in before.cases):
        raise UsageProblem(f"{path} already has a case {case.id!r}: give this one another id with --id")
    wanted = EvalSet(before.id, before.name, [*before.cases, case], before.description)
    if path.suffix.lower() == ".json":
        write_whole(path, _json(wanted), mode=0o644)
        return
    text = path.read_text(encoding="utf-8-sig")
    for indent in _INDENTS:
        longer = f"{text.rstrip()}\n{case_text(case, indent)}"
        if _reads_as(longer, wanted):
            write_whole(path, longer, mode=0o644)
            return
    raise UsageProblem(
        f"{path} does not end with its cases, so nothing can be added: leave --to out and paste the case"
    )


def _reads_as(text: str, wanted: Any) -> bool:
    from swink_agent.evals import EvalSetError
    from swink_agent.evals.cases.loading import read_set

    try:
        return bool(read_set(text) == wanted)
    except EvalSetError:
        return False


def _said(value: Any) -> Any:
    """The fields that have a value."""
    if isinstance(value, list):
        return [_said(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    known = cast("dict[str, Any]", value)
    # An empty list of calls, and a call without arguments, are expectations.
    kept = {key for key in ("calls", "arguments") if known.get(key) is not None}
    return {key: _said(item) for key, item in known.items() if key in kept or item not in _NOT_SAID}


def _json(eval_set: Any) -> str:
    plain = msgspec.to_builtins(eval_set, str_keys=True)
    return json.dumps(_said(plain), indent=2, ensure_ascii=False) + "\n"
