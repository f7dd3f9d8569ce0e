"""Makes the package's metadata for an index page: README without dead links, and the address of the project.

Owns how README's relative links are written there (the files that they name are in the source distribution), and where
the project's address comes from: the remote `origin` of the clone that is built, so that no file has to name it.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hatchling.metadata.plugin.interface import MetadataHookInterface

_BLOCK = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)\s]*\)\n*")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:)([^)\s]*)\)")
_SHORT_SSH = re.compile(r"(?:[\w.-]+@)?([\w.-]+):(?!/)([^\s:]+)")


def long_description(readme: str) -> str:
    """README with the text of relative links alone, and without pictures that are not on the web."""
    parts = _BLOCK.split(readme)
    return "".join([part if part.startswith("```") else _LINK.sub(r"\1", _IMAGE.sub("", part)) for part in parts])


def project_urls(remote: str) -> dict[str, str]:
    """The pages of the project on the host of its repository; none if it is not on a host.

    A user, a password and a port in the remote's address are left out.
    """
    if short := _SHORT_SSH.fullmatch(remote):
        host, path = short.groups()
    else:
        address = urlsplit(remote)
        host, path = address.hostname or "", address.path
        if address.scheme not in ("https", "http", "ssh", "git"):
            return {}
    page = f"https://{host}/{path.strip('/').removesuffix('.git')}"
    return {"Source": page, "Issues": f"{page}/issues"} if "." in host and path.strip("/") else {}


def origin_of(root: Path) -> str:
    """The address of the remote `origin` of the clone in `root`; empty if it is not one."""
    if not (root / ".git").exists():
        return ""  # an unpacked source distribution, perhaps in somebody else's repository
    argv = ["git", "-C", str(root), "config", "--local", "--get", "remote.origin.url"]
    try:
        return subprocess.run(argv, check=False, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


class IndexPage(MetadataHookInterface):
    """Gives hatchling both. A wheel that is built from a source distribution has them from that."""

    def update(self, metadata: dict[str, Any]) -> None:
        if "readme" not in metadata:
            text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
            metadata["readme"] = {"content-type": "text/markdown", "text": long_description(text)}
        if "urls" not in metadata:
            metadata["urls"] = project_urls(origin_of(Path(self.root)))
