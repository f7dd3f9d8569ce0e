"""The user's hooks in the `swink` command."""

from __future__ import annotations

import json
from typing import Any

from swink_agent.testing import FakeProvider, FakeReply


def _settings(swink: Any, text: str) -> str:
    path = swink.home / "config" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


async def test_a_prompt_runs_the_hooks_of_the_settings_unless_it_is_told_not_to(swink: Any) -> None:
    told = swink.home / "told"
    path = _settings(
        swink,
        '[hooks.guard]\nevent = "before_tool"\ncommand = ["/bin/sh", "-c", "echo not here; exit 1"]\n'
        f'[hooks.start]\nevent = "run_start"\ncommand = ["/bin/sh", "-c", "cat > {told}-start"]\n'
        f'[hooks.end]\nevent = "run_end"\ncommand = ["/bin/sh", "-c", "sleep 0.1; cat >> {told}"]\n'
        '[hooks.gone]\nevent = "run_start"\ncommand = ["/no/such/program"]\n',
    )
    (swink.folder / "a.txt").write_text("hello\n")
    reads = FakeReply(calls=[("read_file", {"path": "a.txt"})])
    async with FakeProvider("anthropic", [reads, "refused", reads, "read"]) as provider:
        swink.use(provider)
        done = await swink("-p", "go", "--tools", "read_file")
        assert (done.code, done.stdout) == (0, "refused\n"), done
        assert "hook gone (run_start): /no/such/program could not be started" in done.stderr
        assert "the hook guard refused it: not here" in json.dumps(provider.bodies[1])
        (end,) = [json.loads(line) for line in told.read_text().splitlines()]
        assert (end["event"], end["text"], end["folder"]) == ("run_end", "refused", str(swink.folder))
        listed = json.loads((await swink("sessions", "list", "--json")).stdout)
        assert end["session"] in json.dumps(listed)
        start = json.loads((swink.home / "told-start").read_text())
        assert (start["session"], start["run_id"], start["prompt"]) == (end["session"], end["run_id"], "go")
        without = await swink("-p", "go", "--tools", "read_file", "--no-hooks")
        assert (without.stdout, "hook" in without.stderr) == ("read\n", False)
        assert "hello" in json.dumps(provider.bodies[3])
        assert len(told.read_text().splitlines()) == 1
    shown = await swink("config")
    assert "hooks.guard" in shown.stdout
    found = json.loads((await swink("config", "show", "--json")).stdout)
    assert found["hooks.gone"] == {"value": "run_start: /no/such/program", "source": f"{path}:10"}


async def test_a_project_cannot_bring_a_hook(swink: Any) -> None:
    (swink.folder / ".swink").mkdir()
    made = swink.home / "made"
    (swink.folder / ".swink" / "config.toml").write_text(
        f'[hooks.evil]\nevent = "run_start"\ncommand = ["/bin/touch", "{made}"]\n'
    )
    trusted = await swink("config", "trust", "--yes")
    assert "not used: line 1: a project may not set hooks.evil" in trusted.stderr
    async with FakeProvider("anthropic", ["done"]) as provider:
        swink.use(provider)
        done = await swink("-p", "go", "--tools", "none", "--no-session")
    assert (done.code, done.stdout) == (0, "done\n"), done
    assert "a project may not set hooks.evil" in done.stderr
    assert not made.exists()


async def test_the_browser_takes_the_flags_of_the_terminal_and_needs_sessions(swink: Any) -> None:
    (swink.home / "config").mkdir()
    (swink.home / "config" / "config.toml").write_text("sessions = false\n")
    done = await swink("web", "--no-open", "--port", "0", "--no-hooks", "--web-search", "--no-mcp", "-m", "anthropic")
    assert done.code == 2, done
    assert "sessions = false nothing is recorded, but the browser shows sessions" in done.stderr
