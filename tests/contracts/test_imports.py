"""The modules that `import swink_agent` loads, in a separate interpreter."""

from __future__ import annotations

import subprocess
import sys

HTTP_CLIENTS = {"aiohttp", "httpx", "requests", "urllib3", "http.client", "urllib.request", "botocore"}
ON_USE = {"jsonschema_rs", "pydantic", "importlib.metadata", "importlib.util", "click", "textual", "tomlkit"}


def loaded_by(code: str) -> set[str]:
    code = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    output = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    return set(output.stdout.split())


def test_no_http_client_is_loaded() -> None:
    assert not loaded_by("from swink_agent import Agent") & HTTP_CLIENTS


def test_importing_agent_does_not_load_packages_that_are_loaded_on_use() -> None:
    already = loaded_by("import asyncio, msgspec")
    assert not (loaded_by("from swink_agent import Agent") - already) & ON_USE


def test_importing_the_package_loads_only_the_core_and_that_on_use() -> None:
    ours = {name for name in loaded_by("import swink_agent") if name.startswith("swink_agent.")}
    assert ours == {"swink_agent.core", "swink_agent.core.lazy"}
    ours = {name for name in loaded_by("from swink_agent import Agent, tool") if name.startswith("swink_agent.")}
    assert {name.split(".")[1] for name in ours} == {"core"}


def test_nothing_is_printed_or_started_at_import() -> None:
    code = "import swink_agent, swink_agent.testing, threading; assert threading.active_count() == 1"
    output = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", code], check=True, capture_output=True, text=True
    )
    assert output.stdout == output.stderr == ""


def test_no_group_is_repeated_possessively() -> None:
    """Python 3.11.2, which Debian 12 has, takes a step too far there, and misses secrets: `(?>(?:…)*)` does not."""
    import re
    from pathlib import Path

    import swink_agent

    repeated = re.compile(r"(?<!\\)\)(?:[*+?]|\{[0-9,]+\})\+")
    found = [
        f"{path.name}:{number}"
        for path in Path(swink_agent.__file__).parent.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if repeated.search(line) and re.search("\\br[\"']", line)
    ]
    assert found == []
