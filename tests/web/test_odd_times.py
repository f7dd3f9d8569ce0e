"""A session whose file has impossible times, such as the far future, takes no list and no page away."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swink_agent.core.types import AssistantMessage, Text, UserMessage
from swink_agent.testing import text

from .browsing import stored
from .conftest import running, store_of


def with_times(path: Path, moment: int) -> None:
    """Writes this time into every record and message of a session's file."""
    lines: list[bytes] = []
    for line in path.read_bytes().splitlines():
        record: dict[str, Any] = msgspec.json.decode(line)
        del record["crc"]
        record["at"] = min(abs(moment), 10**18 - 1)
        for part in [each for each in (record, *record.values()) if isinstance(each, dict)]:
            part |= {name: moment for name in ("created", "updated", "timestamp") if name in part}
        body = msgspec.json.encode(record)[:-1]
        lines.append(body + b',"crc":"%08x"}\n' % zlib.crc32(body))
    path.write_bytes(b"".join(lines))


@pytest.mark.table
@pytest.mark.parametrize("moment", [0, 10**15, 10**17, 10**18 - 1, 2**63 - 1, 2**64 - 1, -(10**15), -(2**63)])
async def test_impossible_times_of_a_session_hide_no_other(folder: Path, moment: int) -> None:
    messages = (UserMessage("what?"), AssistantMessage((Text("That."),)))
    good, bad = stored(folder, "Good", *messages), stored(folder, "Odd", *messages)
    path = Path(store_of(folder).load(bad).path)
    with_times(path, moment)
    async with running(folder, text("Fine.")) as client:
        status, found = await client.ask("GET", "sessions")
        assert (status, {each["title"] for each in found["sessions"]} >= {"Good", "Odd"}) == (200, True)
        ways = [f"sessions/{bad}", f"sessions/{bad}/messages", "search?query=what", "sessions?limit=1"]
        ways += [f"sessions/{bad}/export?format={name}" for name in ("markdown", "html", "json", "atif")]
        for way in ways:
            assert (await client.ask("GET", way))[0] == 200, way
        for page in ("/", "/parts/sessions", "/parts/sessions?query=what", f"/sessions/{bad}"):
            async with client.http.get(f"{client.base}{page}", headers=client.headers) as response:
                shown = await response.text()
                assert (response.status, "Good" in shown, "Odd" in shown) == (200, True, True), page
        assert (await client.say(bad, "go on"))[-1][2]["outcome"] == "idle"
        assert (await client.ask("POST", f"sessions/{bad}/fork", {}))[0] == 201
        assert (await client.ask("DELETE", f"sessions/{bad}"))[0] == 204
        left = {each["id"] for each in (await client.ask("GET", "sessions"))[1]["sessions"]}
        assert (good in left, bad in left) == (True, False)
