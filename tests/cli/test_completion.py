"""Completion in the real shells: each has its own terminal, in which keys are pressed."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

STARTS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
LOADS = {
    "bash": 'source <(swink completion bash); PS1="ready> "; bind "set enable-bracketed-paste off"',
    "zsh": 'autoload -U compinit; compinit -u -D; source <(swink completion zsh); PS1="ready> "',
}


def needs(shell: str) -> Any:
    missing = shutil.which(shell) is None
    return pytest.mark.skipif(missing, reason=f"{shell} is not installed here; .ci/run installs it")


class Shell:
    """A shell at a terminal, with `swink` on its path."""

    def __init__(self, swink: Any, name: str) -> None:
        self.name = name
        self.swink = swink
        self.shown = ""

    async def __aenter__(self) -> Shell:
        programs = self.swink.home / "bin"
        programs.mkdir()
        program = programs / "swink"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m swink_agent "$@"\n')
        program.chmod(0o755)
        self.environ = {**self.swink.environ, "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "TERM": "dumb"}
        if self.name == "fish":
            return self
        self.master, slave = pty.openpty()
        os.set_blocking(self.master, False)
        self.process = await asyncio.create_subprocess_exec(
            *STARTS[self.name],
            cwd=self.swink.folder,
            env=self.environ,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        os.write(self.master, (LOADS[self.name] + "; echo is-lo''aded\n").encode())
        await self._until("is-loaded")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.name != "fish":
            self.process.kill()
            await self.process.wait()
            os.close(self.master)

    async def _until(self, text: str) -> str:
        async with asyncio.timeout(40):
            while text not in self.shown:
                try:
                    self.shown += os.read(self.master, 65536).decode(errors="replace")
                except BlockingIOError:
                    await asyncio.sleep(0.02)
        before, _, self.shown = self.shown.partition(text)
        return before

    async def complete(self, line: str) -> list[str]:
        """The words that a tab leaves on the line, or, of several, those that it offers."""
        if self.name == "fish":
            script = f"swink completion fish | source; complete -C {line!r}"
            process = await asyncio.create_subprocess_exec(
                *["fish", "--no-config", "-c", script],
                cwd=self.swink.folder,
                env=self.environ,
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await asyncio.wait_for(process.communicate(), 40)
            return [offer.split("\t")[0] for offer in out.decode().splitlines()]
        # The line is made into a word that says itself, once the shell has completed it.
        os.write(self.master, line.encode() + b"\t")
        await asyncio.sleep(0.1)
        os.write(self.master, b"\x01echo 'XBE''GINX' \x05 'XEN''DX'\n")
        said = await self._until("XENDX")
        return said.rpartition("XBEGINX")[2].split()


CASES = [
    ("swink config get max_tu", "max_turns"),
    ("swink config set approve sm", "smart"),
    ("swink config set network fa", "false"),
    ("swink keys set mist", "mistral"),
    ("swink models pull smol", "smollm2-135m"),
    ("swink -m local:smol", "local:smollm2-135m"),
    ("swink --model=local:smol", "--model=local:smollm2-135m"),
    ("swink -m anthropic:claude-sonnet-4-6", "anthropic:claude-sonnet-4-6"),
    ("swink --tools bash,list", "bash,list_dir"),
    ("swink -p x --schema pict", "picture.png"),
    ("swink -p x --image pict", "picture.png"),
    ("swink -p x --image=pict", "--image=picture.png"),
    ("swink -p x --add-dir dee", "deep"),
    ("swink -p x --append", "--append-system"),
    ("swink compl", "completion"),
    ("swink --resume 20260131-23", "20260131-235959-000-abcdef"),
    ("swink --resume=20260131-23", "--resume=20260131-235959-000-abcdef"),
    ("swink sessions rm 20260131-23", "20260131-235959-000-abcdef"),
    ("swink sessions exp", "export"),
]


@pytest.mark.sweep
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in STARTS])
async def test_a_tab_completes_files_models_providers_and_settings(swink: Any, name: str) -> None:
    make_files(swink.folder)
    kept = swink.home / ".local/share/swink-agent/sessions"
    kept.mkdir(parents=True)
    (kept / "20260131-235959-000-abcdef.jsonl").write_text("")
    wrong: list[str] = []
    async with Shell(swink, name) as shell:
        for line, word in CASES:
            offered = await shell.complete(line)
            found = {re.sub(r"/$", "", item) for item in offered}
            if word not in found:
                wrong.append(f"{line!r} gives {offered}")
    assert wrong == []


def make_files(folder: Path) -> None:
    (folder / "picture.png").write_bytes(b"")
    (folder / "deep").mkdir()


def test_servers_skills_and_commands_of_the_settings_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import click

    from swink_agent.cli.completion.candidates import completions
    from swink_agent.cli.root import swink

    config = tmp_path / "config"
    (config / "commands").mkdir(parents=True)
    (config / "skills" / "release-notes").mkdir(parents=True)
    (config / "config.toml").write_text(
        '[mcp.servers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]\n[mcp.servers.web]\nurl = "http://x"\n'
    )
    (config / "commands" / "review.md").write_text("Review $ARGUMENTS.\n")
    (config / "skills" / "release-notes" / "SKILL.md").write_text(
        "---\nname: release-notes\ndescription: Writes notes.\n---\nDo it.\n"
    )
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    context = click.Context(swink)
    context.params["cwd"] = str(tmp_path)

    def offered(kind: str, incomplete: str = "") -> list[tuple[str, str | None]]:
        return [(item.value, item.help) for item in completions(kind, context, incomplete)]

    assert offered("mcp_servers") == [("time", "uvx mcp-server-time"), ("web", "http://x")]
    assert offered("mcp_servers", "t") == [("time", "uvx mcp-server-time")]
    assert offered("skills", "rel") == [("release-notes", "Writes notes.")]
    assert offered("prompt_commands") == [("review", "Review $ARGUMENTS.")]
    assert offered("prompt_commands", "x") == []
    (config / "config.toml").write_text("model = 1\n")
    assert offered("mcp_servers") == []
