"""`swink sessions export --format atif` and `swink sessions import`."""

from __future__ import annotations

import json
from typing import Any

STEPS = [
    {"step_id": 1, "source": "user", "message": "Find the needle."},
    {"step_id": 2, "source": "agent", "message": "It is in the haystack, and the key is hunter2hunter2."},
]


def trajectory(*steps: Any) -> str:
    agent = {"name": "other", "version": "2", "model_name": "openai/gpt-5"}
    return json.dumps({"schema_version": "ATIF-v1.7", "agent": agent, "steps": list(steps)})


async def test_a_trajectory_becomes_a_session_with_all_its_uses(swink: Any) -> None:
    (swink.folder / "other.json").write_text(trajectory(*STEPS, {"step_id": 3, "source": "system", "message": "x"}))
    done = await swink("sessions", "import", "other.json", environ={"DB_PASSWORD": "hunter2hunter2"})
    assert done.code == 0, done
    assert "left out: 1 step of the system" in done.stderr
    session = done.stdout.strip()
    shown = await swink("sessions", "show", session)
    assert "It is in the haystack" in shown.stdout
    found = await swink("sessions", "search", "haystack", "--json")
    assert session in found.stdout
    assert (await swink("sessions", "fork", session)).code == 0
    exported = await swink("sessions", "export", session, "--format", "atif")
    document = json.loads(exported.stdout)
    assert [step["source"] for step in document["steps"]] == ["user", "agent"]
    assert document["agent"]["model_name"] == "openai/gpt-5"
    assert "hunter2hunter2" not in exported.stdout


async def test_a_title_is_cut_and_masked(swink: Any) -> None:
    document = {**json.loads(trajectory(*STEPS)), "extra": {"title": "hunter2hunter2 " + "x" * 100_000}}
    (swink.folder / "long.json").write_text(json.dumps(document))
    done = await swink("sessions", "import", "long.json", environ={"DB_PASSWORD": "hunter2hunter2"})
    assert done.code == 0, done
    [listed] = json.loads((await swink("sessions", "--json")).stdout)
    assert "hunter2hunter2" not in listed["title"]
    assert len(listed["title"]) <= 200
