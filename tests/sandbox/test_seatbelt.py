"""The profile for macOS, as text: it can be generated anywhere, but only macOS can apply it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from swink_agent.sandbox import SandboxError, SandboxProfile, seatbelt
from swink_agent.sandbox.protected import protected_paths
from swink_agent.sandbox.seatbelt import SeatbeltSandbox, seatbelt_profile


def text_for(profile: SandboxProfile) -> list[str]:
    return seatbelt_profile(profile, "/private/tmp/x", protected_paths(profile)).splitlines()


def strings(line: str) -> list[str]:
    """The strings of a line, read as the profile language does; fails if quotes or parentheses do not add up."""
    found: list[str] = []
    depth = 0
    at = 0
    while at < len(line):
        if line[at] == '"':
            text = ""
            at += 1
            while line[at] != '"':
                at += line[at] == "\\"
                text += line[at]
                at += 1
            found.append(text)
        depth += {"(": 1, ")": -1}.get(line[at], 0)
        assert depth >= 0
        at += 1
    assert depth == 0
    return found


def test_everything_is_denied_first_and_what_is_taken_back_comes_last(tmp_path: Path) -> None:
    root = str(tmp_path)
    lines = text_for(SandboxProfile(write=(root,), hidden=("/secret",)))
    assert lines[:2] == ["(version 1)", "(deny default)"]
    allowed = lines.index(f'(allow file-write* (subpath "{root}") (subpath "{os.path.realpath("/private/tmp/x")}"))')
    taken = next(i for i, line in enumerate(lines) if line.startswith("(deny file-write* "))
    hidden = lines.index('(deny file-read* file-write* (subpath "/secret"))')
    assert allowed < taken < hidden
    assert not any(line.startswith("(allow") for line in lines[taken:])


def test_protected_paths_and_moves_of_their_folders_are_denied(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    lines = text_for(SandboxProfile(write=(str(tmp_path),)))
    denied = next(line for line in lines if line.startswith("(deny file-write* "))
    for name in (".git/hooks", ".git/config", ".git/commondir", ".swink", ".vscode"):
        assert f'(subpath "{tmp_path}/{name}")' in denied
    kept = next(line for line in lines if line.startswith("(deny file-write-unlink "))
    assert f'(literal "{tmp_path}/.git")' in kept


def test_the_network_is_there_only_when_allowed_and_never_for_sockets_of_daemons(tmp_path: Path) -> None:
    assert not any("network*" in line for line in text_for(SandboxProfile(write=(str(tmp_path),))))
    lines = text_for(SandboxProfile(write=(str(tmp_path),), network=True))
    assert lines[-2:] == ["(allow network* system-socket)", "(deny network* (remote unix-socket) (local unix-socket))"]


def test_with_hosts_only_the_proxy_can_be_connected_to(tmp_path: Path) -> None:
    profile = SandboxProfile(write=(str(tmp_path),), hosts=("example.org",))
    lines = seatbelt_profile(profile, "/private/tmp/x", (), 61234).splitlines()
    assert [line for line in lines if "network" in line] == [
        '(allow network-outbound (remote ip "localhost:61234"))',
    ]
    assert not any("network" in line for line in seatbelt_profile(profile, "/private/tmp/x").splitlines())


async def test_commands_find_the_proxy_by_an_address_with_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "sandbox-exec"  # runs the command without a sandbox
    program.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(seatbelt, "_PROGRAM", str(program))
    root = tmp_path / "root"
    root.mkdir()
    with SeatbeltSandbox(SandboxProfile(write=(str(root),), hosts=("example.org",))) as sandbox:
        port = sandbox.command_line(["true"])[2].partition("localhost:")[2].partition('"')[0]
        request = "CONNECT evil.test:443 HTTP/1.1\\r\\nProxy-Authorization: Basic eDp5\\r\\n\\r\\n"
        script = 'echo "$HTTPS_PROXY"; exec 3<>/dev/tcp/127.0.0.1/$1; printf "$2" >&3; head -1 <&3'
        process = await sandbox.spawn(["/bin/bash", "-c", script, "-", port, request], cwd=str(root))
        said = (await process.output.read()).decode().splitlines()
        await process.wait()
    assert re.fullmatch(rf"http://swink:[\w-]{{32}}@127\.0\.0\.1:{port}", said[0])
    assert said[1].startswith("HTTP/1.1 407")


def test_reads_are_everything_or_what_is_given(tmp_path: Path) -> None:
    assert "(allow file-read*)" in text_for(SandboxProfile(write=(str(tmp_path),)))
    lines = text_for(SandboxProfile(write=(str(tmp_path),), read=("/given",)))
    reads = next(line for line in lines if line.startswith("(allow file-read* "))
    assert "(allow file-read*)" not in lines
    assert {"/given", str(tmp_path), "/usr", "/System"} <= set(strings(reads))


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    "name", ['with "quotes"', "with (parens)", "back\\slash", "new\nline", '") (allow default) ("', "ü ;#"]
)
def test_no_path_can_say_anything_but_its_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    profile = SandboxProfile(write=(str(folder),), hidden=(str(tmp_path / f"{name}.hidden"),), protected=("x",))
    text = seatbelt_profile(profile, "/tmp", protected_paths(profile))
    found = strings(text)
    assert {str(folder), str(folder / "x"), str(tmp_path / f"{name}.hidden")} <= set(found)
    without = text
    for value in sorted(found, key=len, reverse=True):
        without = without.replace('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"', "")
    assert "allow default" not in without


def test_a_zero_byte_is_refused() -> None:
    profile = SandboxProfile(hidden=())
    with pytest.raises((SandboxError, ValueError)):
        seatbelt_profile(profile, "/tmp", ("/a\0b",))


@pytest.mark.skipif(sys.platform == "darwin", reason="it is there")
def test_it_is_not_on_other_systems(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="sandbox-exec does not exist"):
        SeatbeltSandbox(SandboxProfile(write=(str(tmp_path),)))
