"""We read git's configuration as git does, and know which settings are harmless and which lines are ambiguous."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from swink_agent.sandbox.repositories.git_config import Setting, is_harmless, is_unambiguous, read_settings

PIECES = (
    *("[core]", "[CORE]", "[core]x=y", '[a "b"]', '[a "B\\"c"]', '[a "b\\\\"]', "[a.B]", "\n", "\n", "\r\n", " ", "\t"),
    *(
        "name",
        "Na-me",
        "=",
        " = ",
        "value",
        "a b",
        '"',
        '"a;b"',
        "\\",
        "\\n",
        '\\"',
        "\\\n",
        "\\x",
        "#",
        "; c",
        "[",
        "]",
    ),
    *("true", "1a", "_", ".", "\r"),
)


def read_by_git(path: Path) -> tuple[list[tuple[str, str | None]], bool]:
    done = subprocess.run(["git", "config", "-f", str(path), "-z", "-l"], capture_output=True, check=False)
    entries = (entry.partition("\n") for entry in done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1])
    return [(name, value if mark else None) for name, mark, value in entries], done.returncode == 0


@pytest.mark.parametrize("count", [100, pytest.param(400, marks=pytest.mark.sweep)])
def test_it_is_read_as_git_reads_it(tmp_path: Path, count: int) -> None:
    choose = random.Random(9)
    path = tmp_path / "config"
    alike = 0
    for number in range(count):
        text = "[s]\n" if number % 2 else ""
        text += "".join(choose.choice(PIECES) for _ in range(choose.randint(1, 12)))
        path.write_bytes(text.encode())
        theirs, is_fine = read_by_git(path)
        ours, is_whole = read_settings(text)
        assert is_whole == is_fine, text
        if is_fine:
            # Older ones make a space of every tab in a value that is not in quotes.
            told = [(str(setting), setting.value) for setting in ours]
            assert [(name, value and value.replace("\t", " ")) for name, value in told] == [
                (name, value and value.replace("\t", " ")) for name, value in theirs
            ], text
            alike += bool(theirs)
    assert alike > count // 40


@pytest.mark.parametrize(
    "text",
    [
        *("core.fsmonitor=x", "core.hookspath=x", "include.path=x", "includeif.gitdir:x.path=x", "core.pager=x"),
        *("pager.log=x", "core.editor=x", "sequence.editor=x", "core.sshcommand=x", "core.askpass=x", "gpg.program=x"),
        *("gpg.ssh.program=x", "alias.x=!x", "filter.x.clean=x", "filter.x.smudge=x", "filter.x.process=x"),
        *("filter.lfs.clean=x", "diff.external=x", "diff.x.command=x", "diff.x.textconv=x", "merge.x.driver=x"),
        *("credential.helper=x", "credential.https://x.helper=x", "remote.x.vcs=x", "remote.x.uploadpack=x"),
        *("remote.x.receivepack=x", "remote.x.url=ext::x", "remote.x.pushurl=a::b", "submodule.x.update=!x"),
        *("submodule.x.url=ext::x", "protocol.ext.allow=always", "core.worktree=/", "core.gitproxy=x"),
        *("interactive.difffilter=x", "mergetool.x.cmd=x", "difftool.x.cmd=x", "browser.x.cmd=x", "man.x.cmd=x"),
        *("core.alternaterefscommand=x", "trailer.x.cmd=x", "trailer.x.command=x", "sendemail.smtpserver=x"),
        *("web.browser=x", "safe.directory=*", "safe.barerepository=all", "url.ext::x.insteadof=y", "pull.twohead=x"),
        *("branch.x.mergeoptions=-s x", "lfs.customtransfer.x.path=x", "tar.x.command=x", "hook.x.command=x"),
        *("init.templatedir=x", "core.attributesfile=x", "uploadpack.packobjectshook=x", "made.up=x"),
    ],
)
@pytest.mark.table
def test_a_setting_that_can_start_a_program_is_not_harmless(text: str) -> None:
    name, _, value = text.partition("=")
    section, _, rest = name.partition(".")
    subsection, _, key = rest.rpartition(".")
    assert not is_harmless(Setting(section, subsection or None, key, value), lambda place: False)


def test_settings_written_by_git_are_plain_and_harmless(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "a")], check=True)
    subprocess.run(["git", "clone", "-q", str(tmp_path / "a"), str(tmp_path / "b")], check=True, capture_output=True)
    for path in (tmp_path / "a/config", tmp_path / "b/.git/config"):
        settings, is_whole = read_settings(path.read_text())
        assert is_whole
        assert is_unambiguous(path.read_text())
        assert all(is_harmless(setting, lambda place: False) for setting in settings)


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        *(
            (line, True)
            for line in ("", "# a \\", "; b", "[core]", '\t[a "b \\" ]c"]  # d', "bare", " a-b=c", "a = b # c")
        ),
        *((line, True) for line in ('name = "A # B"', 'name = A "B" \\n C', "[user] name = A", "name = \u00e9\u4e2d")),
        *(
            (line, False)
            for line in ("a = b \\", "a = b # c \\", 'a = "b', "[core", "a = \x1b[0m", "a\r", "[a] [b]", "1 = 2")
        ),
        *((line, False) for line in ("a = \\x", '[a "b', " " * 100_000 + '= "', "a = " + '"b" ' * 20_000 + '"')),
    ],
)
def test_lines_that_programs_read_differently_are_recognised(line: str, expected: bool) -> None:
    assert is_unambiguous(line) is expected
