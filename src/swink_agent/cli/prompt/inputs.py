"""Reads and checks the parts of a prompt: the text, stdin, pictures, documents, and a schema.

Problems are reported as a `UsageProblem` that names the flag. For a schema it also names the line, and explains the
error of the JSON reader or the validator in plain words.
"""

from __future__ import annotations

import json
import os
import select
import stat
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from swink_agent.app.errors import UsageProblem
from swink_agent.app.runs.headless import PromptFn
from swink_agent.app.runs.input_files import attachment, encodable, picture, read_input, refuse_unsendable
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted
from swink_agent.core.schemas.validation import InvalidSchema, compile_schema
from swink_agent.core.types import ModelSpec, Text, UserMessage

_LARGEST_SCHEMA = 1024 * 1024
MOST_BYTES = 10 * 1024 * 1024
_PATIENCE = 3.0
_GLANCE = 0.05
"""Seconds between checks for a cancellation: a blocking read could not be interrupted."""
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_WORDS = (
    ("Expecting value", "a value is missing"),
    ("Expecting ',' delimiter", "a comma is missing"),
    ("Expecting ':' delimiter", "a colon is missing"),
    ("Expecting property name", "a name in double quotes is missing"),
    ("Illegal trailing comma", "there is a trailing comma"),
    ("Unterminated string", "the text that begins here never ends"),
    ("Invalid control character", "a text contains a line break or another control character"),
    ("Extra data", "there is extra text after the end"),
)


class PromptInputs:
    """The inputs of one prompt. Files are checked when it is created, stdin is read when the prompt is needed."""

    def __init__(
        self, given: str | None, *, images: Sequence[str], files: Sequence[str] = (), before: str = ""
    ) -> None:
        self._before = f"{before}\n\n" if before else ""
        """The text of a skill, which comes before the prompt."""
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
        from swink_agent.core.agent.structured import StructuredOutput

        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageProblem(f"{name} is not UTF-8 text (byte {error.start}) (--schema)") from error
        try:
            schema = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.ValidationError as error:
            raise UsageProblem(f"{name} is JSON, but a JSON Schema must be an object (--schema)") from error
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
            "the prompt is empty" if given != "-" else "the prompt should come from stdin, but stdin is empty"
        )
    if not piped.strip():
        return prompt
    return f"{prompt}\n\n<stdin>\n{piped.rstrip()}\n</stdin>" if prompt.strip() else piped


def read_stdin(
    warn: Callable[[str], None],
    *,
    cancel: CancellationToken | None = None,
    descriptor: int = 0,
    most_bytes: int = MOST_BYTES,
    patience: float = _PATIENCE,
    at_terminal: Callable[[], None] | None = None,
) -> str:
    """Returns the text on stdin; empty if it is a folder. Raises `UsageProblem` if it is too long or unreadable.

    A terminal is read only if `at_terminal` is given, which is called first to ask the user to type. If stdin stays
    open without data, `warn` is called after `patience` seconds. Raises `Aborted` soon after a cancellation.
    """
    try:
        mode = os.fstat(descriptor).st_mode
        is_terminal = os.isatty(descriptor)
        if stat.S_ISDIR(mode) or (is_terminal and at_terminal is None):
            return ""
        if is_terminal and at_terminal is not None:
            at_terminal()
            patience = float("inf")  # typing may take any time
        data = _read(descriptor, most_bytes, patience, warn, cancel or CancellationToken())
    except OSError as error:
        raise UsageProblem(f"stdin cannot be read: {error.strerror or error}") from error
    if len(data) > most_bytes:
        raise UsageProblem(
            f"stdin is longer than {most_bytes // (1024 * 1024)} MiB, which no model reads at once: "
            "save it to a file in the folder and ask about that file"
        )
    return decoded(data, warn)


def decoded(data: bytes, warn: Callable[[str], None]) -> str:
    """Decodes UTF-8. Other bytes are replaced, with a warning."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        text = data.decode(errors="replace")
        warn(f"stdin is not UTF-8 text (byte {error.start}): {text.count('�')} places in it were replaced")
        return text


def _read(
    descriptor: int, most_bytes: int, patience: float, warn: Callable[[str], None], cancel: CancellationToken
) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= most_bytes:
        while not select.select([descriptor], [], [], min(_GLANCE, max(patience, 0)))[0]:
            if cancel.is_cancelled:
                raise Aborted("the reading of stdin was cancelled")
            if patience > 0 and (patience := patience - _GLANCE) <= 0:
                patience = float("inf")
                warn("waiting for the end of stdin; </dev/null gives an empty stdin")
        piece = os.read(descriptor, 1 << 20)
        if not piece:
            break
        patience = float("inf")  # data arrived: the sender is working
        pieces.append(piece)
        size += len(piece)
        if cancel.is_cancelled:
            raise Aborted("the reading of stdin was cancelled")
    return b"".join(pieces)


def json_problem(text: str) -> str:
    """Why the text is not JSON, with its line. Empty if Python finds nothing wrong."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        reason = next((words for start, words in _WORDS if error.msg.startswith(start)), error.msg)
        return f"line {error.lineno}, column {error.colno}: {reason}"
    except RecursionError:
        return "it is nested too deeply"
    return ""


def schema_problem(schema: dict[str, Any], text: str, error: BaseException) -> str:
    """Why a JSON object is not a usable schema. `error` is the library's exception for it."""
    path: Sequence[str | int] = ()
    cause = error.__cause__
    message = cause.reason if isinstance(cause, InvalidSchema) else str(error)
    try:  # the user's schema by itself, so that the error's place is one in the user's text
        compile_schema(schema)
    except InvalidSchema as alone:
        path = list(getattr(alone.__cause__, "instance_path", ()))
        message = getattr(alone.__cause__, "message", "") or message
    if not path:
        return message or "it is nested too deeply"
    value: Any = schema
    for part in path:
        value = value[part]
    return f"{_line_of(path, text)}{'.'.join(map(str, path))} {_reason(path[-1], value, message)}"


_KINDS = {"object": "an object", "array": "a list", "boolean": "true or false", "integer": "a whole number"}


def _reason(name: str | int, value: Any, message: str) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= 40 else f"{shown[:39]}…"
    if name == "type":
        from swink_agent.core.texts.likeness import close_names

        near = close_names(value, _TYPES) if isinstance(value, str) else []
        hint = f"did you mean {near[0]}? It must be" if near else "it must be"
        return f"cannot be {shown}: {hint} one of {', '.join(_TYPES)}, or a list of them"
    _, is_wrong, wanted = message.partition(" is not of type ")
    if is_wrong:
        kind = wanted.strip('"')
        return f"cannot be {shown}: it must be {_KINDS.get(kind, f'a {kind}')}"
    if message.endswith('is not a "regex"'):
        return f"cannot be {shown}: it must be a regular expression"
    return f"cannot be {shown}: {message.partition(' is not valid')[0] if 'anyOf' in message else message}"


def _line_of(path: Sequence[str | int], text: str) -> str:
    """The line of a key that occurs once in the text; empty for other keys, whose line would be a guess."""
    names = [part for part in path if isinstance(part, str)]
    key = json.dumps(names[-1], ensure_ascii=False) if names else ""
    if not key or text.count(key) != 1 or "\n" not in text.strip():
        return ""
    return f"line {text.count(chr(10), 0, text.index(key)) + 1}: "
