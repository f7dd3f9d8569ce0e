"""Reads and checks what a prompt consists of: the text, stdin, pictures, documents, and a schema.

Whatever is wrong is a `UsageProblem` that names the flag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from swink_agent.app.errors import UsageProblem
from swink_agent.app.runs.headless import PromptFn
from swink_agent.app.runs.input_files import attachment, encodable, picture, read_input, refuse_unsendable
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.types import ModelSpec, Text, UserMessage

from ..process.stdin_text import read_stdin

_LARGEST_SCHEMA = 1024 * 1024


class PromptInputs:
    """The inputs of one prompt. Files are checked when it is created, stdin is read when the prompt is needed."""

    def __init__(
        self, given: str | None, *, images: Sequence[str], files: Sequence[str] = (), before: str = ""
    ) -> None:
        self._before = f"{before}\n\n" if before else ""
        """What the prompt begins with: the text of a skill."""
        self._given = None if given is None else encodable(given)
        self._attached = [*[picture(name) for name in images], *[attachment(name) for name in files]]

    def prompt(self, model: ModelSpec, warn: Callable[[str], None], note: Callable[[str], None]) -> PromptFn:
        """Waits for stdin and returns the whole prompt. Raises `UsageProblem` if the prompt is not usable.

        Without a text, stdin is the prompt; if that is empty too, there is no prompt. With `-` the user types it if
        stdin is a terminal.
        """
        refuse_unsendable(model, self._attached, document="leave --file out")

        def read(cancel: CancellationToken) -> str | list[UserMessage] | None:
            typed = (lambda: note("type the prompt; Ctrl+D on an empty line ends it")) if self._given == "-" else None
            piped = read_stdin(warn, cancel=cancel, at_terminal=typed)
            if self._given is None and not piped.strip() and not self._attached:
                return None
            text = self._before + _together(self._given or "", piped, has_files=bool(self._attached))
            return [UserMessage([Text(text), *self._attached])] if self._attached else text

        return read

    def schema(self, given: str | None) -> dict[str, Any] | None:
        """The schema in that file, or in the argument itself. Raises `UsageProblem`."""
        if given is None:
            return None
        is_inline = given.lstrip().startswith(("{", "["))
        name = "the schema" if is_inline else encodable(given)
        data = given.encode("utf-8", "surrogateescape") if is_inline else read_input(given, "--schema", _LARGEST_SCHEMA)
        from swink_agent.core.structured import StructuredOutput

        from .schema_text import json_problem, schema_problem

        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageProblem(f"{name} is not UTF-8 text (byte {error.start}) (--schema)") from error
        try:
            schema = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.ValidationError as error:
            raise UsageProblem(f"{name} is JSON, but not an object, and a JSON Schema is one (--schema)") from error
        except (ValueError, RecursionError) as error:
            raise UsageProblem(f"{name} is not JSON: {json_problem(text) or error} (--schema)") from error
        try:
            StructuredOutput(schema, 0)
        except (ValueError, TypeError, RecursionError) as error:
            problem = schema_problem(schema, text, error)
            raise UsageProblem(f"{name} is not a JSON Schema that can be used: {problem} (--schema)") from error
        return schema


def _together(given: str, piped: str, *, has_files: bool) -> str:
    prompt, piped = (piped, "") if given == "-" else (given, piped)
    if not prompt.strip() and not piped.strip():
        if has_files and given != "-":
            return "Look at this."
        raise UsageProblem(
            "the prompt is empty" if given != "-" else "the prompt is to come from stdin, and nothing came"
        )
    if not piped.strip():
        return prompt
    return f"{prompt}\n\n<stdin>\n{piped.rstrip()}\n</stdin>" if prompt.strip() else piped
