"""Turns the user's text and attached files into a message: masked, with its pictures and documents."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from swink_agent.app.runs.input_files import attachment, refuse_unsendable
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import Document, Image, ModelSpec, Text, UserMessage

_KINDS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
_MENTIONED = re.compile(
    r"""(?:^|(?<=[\s(\[{<,;:"']))@(?:"([^"\n]+\.pdf)"|([^\s"]+\.pdf)(?=[)\]}>,;:.!?"']*(?:\s|$)))""", re.IGNORECASE
)


async def user_message(
    text: str, images: Sequence[str], *, folder: Path, redactor: Redactor, model: ModelSpec
) -> tuple[UserMessage, bool]:
    """Returns the masked message with its pictures and documents, and whether anything was masked.

    Raises `UsageProblem` for a file that cannot be sent.
    """

    def read() -> list[Image | Document]:
        attached = [attachment(name, "") for name in dict.fromkeys([*images, *mentioned_documents(text, folder)])]
        refuse_unsendable(
            model, attached, picture="leave the picture out", document="leave the document out (no @ before its name)"
        )
        return attached

    attached = await asyncio.to_thread(read) if images or "@" in text else []
    masked = redactor.redact(text)
    return UserMessage([Text(masked or "Look at this."), *attached]), masked != text


def mentioned_in(message: UserMessage, attached: Sequence[str]) -> list[str]:
    """The names of the documents that came from mentions in the text, and not as attached files."""
    known = {Path(path).name for path in attached}
    return [block.name for block in message.content if type(block) is Document and block.name not in known]


def mentioned_documents(text: str, folder: Path) -> list[str]:
    """The PDF files that the text mentions with `@`, as the composer completes them; looks at the disk."""
    named = _MENTIONED.findall(text) if "@" in text else []
    found = [sendable_file(quoted or plain, folder) for quoted, plain in named]
    return list(dict.fromkeys([str(path) for path in found if path is not None]))


def sendable_file(name: str, folder: Path) -> Path | None:
    """The picture or PDF that a name or a `file:` address means; `None` if there is no such file."""
    if name.lower().startswith("file:"):
        address = urlsplit(name)
        if address.netloc not in ("", "localhost"):
            return None
        name = unquote(address.path)
    if not name.lower().endswith(_KINDS):
        return None
    try:
        path = folder / os.path.expanduser(name)
        return path if stat.S_ISREG(path.stat().st_mode) else None
    except (OSError, ValueError, RuntimeError):
        return None
