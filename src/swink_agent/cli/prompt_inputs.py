"""What a prompt is made from: the text, what was piped in, pictures, and a schema.

Owns reading and checking them. What is wrong with any of them is a `UsageProblem` that names the flag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from swink_agent.app.errors import UsageProblem
from swink_agent.app.headless import PromptFn
from swink_agent.app.input_files import encodable, picture, read_input, refuse_blind
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.types import ModelSpec, Text, UserMessage

from .stdin_text import read_stdin

__all__ = ["PromptInputs"]

_LARGEST_SCHEMA = 1024 * 1024


class PromptInputs:
    """The inputs of one prompt; pictures are looked at when it is made, stdin when it is asked for."""

    def __init__(self, given: str | None, *, images: Sequence[str]) -> None:
        self._given = None if given is None else encodable(given)
        self._images = [picture(name) for name in images]

    def prompt(self, model: ModelSpec, warn: Callable[[str], None], note: Callable[[str], None]) -> PromptFn:
        """What waits for stdin and gives the whole prompt. Raises `UsageProblem` if it cannot be one.

        Where no text was given, what was piped in is the prompt; and if nothing was, there is none. With `-` it is
        typed, where stdin is a terminal.
        """
        if self._images:
            refuse_blind(model)

        def read(cancel: CancellationToken) -> str | list[UserMessage] | None:
            typed = (lambda: note("type the prompt; Ctrl+D on an empty line ends it")) if self._given == "-" else None
            piped = read_stdin(warn, cancel=cancel, at_terminal=typed)
            if self._given is None and not piped.strip() and not self._images:
                return None
            text = _together(self._given or "", piped, has_images=bool(self._images))
            return [UserMessage([Text(text), *self._images])] if self._images else text

        return read

    def schema(self, given: str | None) -> dict[str, Any] | None:
        """The schema of that file, or the one that is written out. Raises `UsageProblem`."""
        if given is None:
            return None
        is_inline = given.lstrip().startswith(("{", "["))
        name = "the schema" if is_inline else encodable(given)
        data = given.encode("utf-8", "surrogateescape") if is_inline else read_input(given, "--schema", _LARGEST_SCHEMA)
        from swink_agent.core.structured import StructuredOutput

        try:
            schema = msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.ValidationError as error:
            raise UsageProblem(f"{name} is JSON, but no object: a JSON Schema is one (--schema)") from error
        except (ValueError, RecursionError) as error:
            raise UsageProblem(f"{name} is no JSON: {error} (--schema)") from error
        try:
            StructuredOutput(schema, 0)
        except (ValueError, TypeError, RecursionError) as error:
            # What the library says of the schema of a tool, said of a schema.
            problem = str(error).rpartition("is not valid JSON Schema: ")[2] or "it is nested too deeply"
            raise UsageProblem(f"{name} holds no JSON Schema that can be used: {problem} (--schema)") from error
        return schema


def _together(given: str, piped: str, *, has_images: bool) -> str:
    prompt, piped = (piped, "") if given == "-" else (given, piped)
    if not prompt.strip() and not piped.strip():
        if has_images and given != "-":
            return "Look at this."
        raise UsageProblem(
            "the prompt is empty" if given != "-" else "the prompt is to come from stdin, and nothing came"
        )
    if not piped.strip():
        return prompt
    return f"{prompt}\n\n<stdin>\n{piped.rstrip()}\n</stdin>" if prompt.strip() else piped
