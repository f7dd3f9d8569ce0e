"""What a command reaches beyond its first word: each attack does harm when it runs, and is asked about.

Each has a benign twin, which runs unasked and does no harm. Both run in real bash with real programs, among the traps
of `ranges.RealRange`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from swink_agent.approvals.commands.rules import CommandRules

from .ranges import RealRange

pytestmark = pytest.mark.sweep

RULES = CommandRules.standard(search_path="/usr/bin:/bin")

# name: (attack, twin)
ATTACKS = {
    # what git runs by itself
    "a monitor of the file system": ("cd traps/fsmonitor && git status", "git status"),
    "a monitor, named by an option": ("git -C traps/fsmonitor status", "git -C src status"),
    "a monitor, found from above": ("git -C traps/fsmonitor/. diff", "git diff"),
    "a program for differences": ("cd traps/external && git diff", "cd src && git diff"),
    "a program for differences in a log": ("cd traps/external && git log -p --ext-diff", "git log -p"),
    "a program that makes text": ("cd traps/textconv && git show", "git show"),
    "a program that makes text, in blame": ("cd traps/textconv && git blame f.txt", "git blame f.txt"),
    "a filter": ("cd traps/filter && git diff", "git diff HEAD"),
    "a hook that reading starts": ("cd traps/hook && git status", "cd src && git status"),
    "a hook in a folder of the tree": ("cd traps/hookspath && git status", "cd src && git diff --stat"),
    "settings that are included": ("cd traps/include && git status", "git status -sb"),
    "settings of a worktree": ("cd traps/worktreeconfig && git status", "git branch -a"),
    "a folder that is a repository itself": ("cd traps/bare/store && git status", "cd traps && git status"),
    "a repository above what is none": ("cd traps/hollow/inner && git status", "cd src && git status -s"),
    "a repository beside what is none": ("cd traps/hollow/other/store && git status", "cd traps && git log -1"),
    "a submodule": ("cd traps/submodule && git status", "git ls-files"),
    "a program that checks signatures": ("cd traps/signature && git log -1", "git log -1"),
    "a program that fetches what is missing": ("cd traps/lazy && git show HEAD:f.txt", "git show HEAD:f.txt"),
    # other repositories
    "a repository elsewhere": ("cd traps/gitfile && git log -p", "git log --oneline"),
    "objects of a repository elsewhere": ("cd traps/alternates && git log -p other", "git log -p main"),
    "files elsewhere": ("cd traps/worktree && git diff", "git diff --name-only"),
    # links and names
    "a link to a file": ("cat leak.txt", "cat a.txt"),
    "a link to a folder": ("cat out/canary", "cat docs/x.py"),
    "a link in a folder": ("head lib/leak.py", "head src/x.py"),
    "a link that a pattern finds": ("cat leak*", "cat a*"),
    "a link to a folder that a pattern finds": ("cat */canary", "cat */x.py"),
    "a link that is given as input": ("cat < leak.txt", "cat < a.txt"),
    "a way up": ("cat ../outside/canary", "cat src/../a.txt"),
    "a way up behind a folder": ("cd src && cat ../../outside/canary", "cd src && cat ../a.txt"),
    "a way up where cd may have failed": ("cd nowhere; cat ../outside/canary", "cd src; cat x.py"),
    "a way up behind a link": ("cd out && cat canary", "cd src && cat y.py"),
    "a way up in a pattern": ("cat ../outside/c*", "cat src/x*"),
    "names that a pattern finds outside": ("cat out/folder/*", "cat src/x.*"),
    "links that are followed": ("grep -R canary .", "grep -r one ."),
    "links that are followed in a difference": ("diff -r left right", "diff a.txt b.txt"),
    "links that find follows": ("find -L . -name 'can*' | xargs cat", "find . -name '*.py'"),
    "a file called like an option": ("cd odd && sort -*ned n.txt", "wc -l src/*.py"),
    "a file called like an option, of a search": ("cd odd && rg two *", "rg two src/*.py"),
    "files that a file names": ("md5sum -c sums; cat out/canary", "md5sum a.txt b.txt"),
    "names from a file": ("wc --files0-from=list; cat leak.txt", "wc -c list"),
    # languages within
    "a module of jq": ('jq -n \'include "secret" {search: "../outside"}; x\'', "jq .name data.json"),
    "a module of jq, by an option": ("jq -n -L ../outside 'include \"secret\"; x'", "jq -n '1 + 1'"),
    "a file of jq": ("jq -n --rawfile a leak.txt '$a'", "jq -n --arg a b '$a'"),
    "a program in awk": ("awk 'BEGIN { system(\"touch pwned\") }'", "awk '{ print $1 }' a.txt"),
    "a pipe in awk": ("awk '{ print | \"touch pwned\" }' a.txt", "awk '/o/ || /w/ { print $2 }' a.txt"),
    "a file of awk": ("awk '{ print > \"pwned\" }' a.txt", "awk '$2 > 1 { print $1 }' a.txt"),
    "a file that awk reads": ("awk 'BEGIN { getline x < \"leak.txt\"; print x }'", "awk 'END { print NR }' a.txt"),
    "a file that awk is led to": (
        "awk 'BEGIN { ARGV[1] = \"leak.txt\"; ARGC = 2 } 1' a.txt",
        "awk -F' ' -v n=1 'NR == n' a.txt",
    ),
    "an expression in awk that is none": (
        'awk \'{ if (1) /"/; print > "pwned" } # "\' a.txt',
        "awk '{ if ($2 > 1) print $1 / 2 }' a.txt",
    ),
    "a division in awk that is none": ("awk '{ print NR /2/1 > \"pwned\" }' a.txt", "awk '{ print NR / 2 }' a.txt"),
    "a file of sed": ("sed -n 'w pwned' a.txt", "sed -n 2p a.txt"),
    "a file of a substitution": ("sed 's/o/0/w pwned' a.txt", "sed 's/o/0/' a.txt"),
    "a program of sed": ("sed '1e touch pwned' a.txt", "sed 1d a.txt"),
    "a program of a substitution": ("echo touch pwned | sed 's/t/t/e'", "echo x | sed 's/x/y/g'"),
    "a script of sed that hangs on its option": ("sed -ne'w pwned' a.txt", "sed -ne1p a.txt"),
    "a second script of sed": ("sed -e 1p -e 'w pwned' a.txt", "sed -e 1p -e 2d a.txt"),
    "a delimiter in brackets": ("sed 's/[/]/x/;w pwned' a.txt", "sed 's|[/]|x|' a.txt"),
    # options that write, in any cluster
    "output of sort": ("sort -uopwned a.txt", "sort -ur a.txt"),
    "output of uniq": ("uniq a.txt pwned", "sort a.txt | uniq -c"),
    "output of uniq behind a value": ("uniq -f 1 a.txt pwned", "uniq -f 1 a.txt"),
    "output of xxd": ("xxd a.txt pwned", "xxd -l 8 a.txt"),
    "output of find": ("find . -name a.txt -fprint pwned", "find . -name a.txt -print"),
    "an archive's own program": ("tar cf - a.txt | tar xf - --to-command='touch pwned'", "cat a.txt | tail -1"),
    # the shell
    "a file for output": ("cat a.txt > pwned", "cat a.txt > /dev/null"),
    "a file for errors": ("cat a.txt 2> pwned", "cat nowhere 2>/dev/null"),
    "a file behind a stream": ("cat a.txt >& pwned", "cat a.txt 2>&1"),
    "a number that is a word": ("echo a2>pwned", "echo a 2>/dev/null"),
    "a command behind a pipe": ("ls | tee pwned", "ls | cat"),
    "a variable that printf sets": ("printf '%n' PATH; ls", "printf '%s\\n' x; ls"),
    "an index that test evaluates": ("test -v 'a[$(touch pwned)]'", "test -f a.txt && echo yes"),
    "an index in brackets": ("[ -v 'a[$(touch pwned)]' ]", "[ -f a.txt ] && cat a.txt"),
    "an index that printf evaluates": ("printf -v 'a[$(touch pwned)]' x", "printf 'a[x]'"),
    "a program that command runs": ("command touch pwned", "command -v touch"),
    "braces": ("ls {a.txt,../outside/canary} && touch pwned", "ls a.txt b.txt"),
    "a here-document in a loop": (
        "for f in a b; do cat <<E; done\nx\nE\ntouch pwned\nE",
        "for f in a b; do\ncat <<E\nx\nE\ndone",
    ),
    "a variable that bash sets itself": (
        "for _ in a.txt; do echo ../outside/canary; cat $_; done",
        "for _x in a.txt; do echo b.txt; cat $_x; done",
    ),
    "the background": ("ls & touch pwned", "ls; ls"),
}


# These depend on which sed, awk and ripgrep there is.
NOT_EVERYWHERE = {
    "a delimiter in brackets",
    "a file called like an option, of a search",
    "an expression in awk that is none",
}


@pytest.fixture(scope="module")
def real_range(tmp_path_factory: pytest.TempPathFactory) -> RealRange:
    return RealRange(tmp_path_factory.mktemp("reach"))


def needs(command: str) -> None:
    for program in ("jq", "rg", "xxd", "awk"):
        if f"{program} " in command and not shutil.which(program, path="/usr/bin:/bin"):
            pytest.skip(f"there is no {program} here")


@pytest.mark.parametrize("name", ATTACKS)
def test_commands_that_do_more_than_read_are_asked_about(real_range: RealRange, name: str) -> None:
    attack, _ = ATTACKS[name]
    needs(attack)
    decision = RULES.decide(attack, folder=str(real_range.folder))
    harm = real_range.breaches(real_range.run(attack))
    assert decision.verdict == "ask", harm
    assert harm or name in NOT_EVERYWHERE


@pytest.mark.parametrize("name", ATTACKS)
def test_its_benign_twin_is_not_asked_about_and_only_reads(real_range: RealRange, name: str) -> None:
    _, twin = ATTACKS[name]
    needs(twin)
    decision = RULES.decide(twin, folder=str(real_range.folder))
    assert decision.verdict == "allow", decision.reason
    assert real_range.breaches(real_range.run(twin)) == []


def test_git_is_not_asked_about_in_an_ordinary_repository(real_range: RealRange, tmp_path: Path) -> None:
    """As clone, branches, submodules, linked worktrees and the usual helpers leave it."""
    origin = real_range.repository(tmp_path / "origin")
    work = tmp_path / "clone"
    real_range.git(tmp_path, "clone", "-q", str(origin), "clone")
    real_range.git(work, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(origin), "sub")
    real_range.git(work, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "topic")
    for key, value in {
        "core.hooksPath": ".husky/_",
        "core.autocrlf": "input",
        "branch.topic.description": "x",
        "remote.origin.gh-resolved": "base",
        "pull.rebase": "true",
        "user.signingkey": "x",
        "alias.st": "!evil",
        "core.fsmonitor": "false",
    }.items():
        real_range.git(work, "config", key, value)
    for folder in (work, tmp_path / "linked", work / "sub"):
        for command in ("git status", "git diff HEAD~1", "git log -p | head", "git show HEAD", "git branch -a"):
            decision = RULES.decide(command, folder=str(folder))
            assert decision.verdict == "allow", (folder, command, decision.reason)


def test_a_repository_above_the_folder_shows_its_names_but_not_its_files(real_range: RealRange, tmp_path: Path) -> None:
    folder = real_range.repository(tmp_path / "whole") / "part"
    folder.mkdir()
    assert RULES.decide("git status && git log --oneline -5 && git branch", folder=str(folder)).verdict == "allow"
    for command in ("git diff", "git show HEAD:f.txt", "git log -p", "git grep x -- ':/'", "git blame ':(top)f.txt'"):
        assert "is above the folder" in RULES.decide(command, folder=str(folder)).reason


@pytest.mark.parametrize(
    ("settings", "is_asked"),
    [
        ("[core] fsmonitor = true", True),
        ("[CORE]\nFSMonitor=x", True),
        ('[core]\n\tfsmonitor = "fal\\\nse"', False),
        ("[core]\n\tbare\n\tfsmonitor = x", True),
        ("[core]\n\tbare = false # x\n\tfsmonitor = x", True),
        ('[core]\n\tcommentchar = "#"\n\tfsmonitor = x', True),
        ("[core]\n\tcommentchar = \\\n\tfsmonitor = x", False),
        ('[diff "a\\"b"]\n\ttextconv = x', True),
        ("[diff.a]\n\ttextconv = x", True),
        ('[diff "textconv"]\n\txfuncname = x', False),
        ('[includeIf "gitdir:/"]\n\tpath = x', True),
        ("[core]\n\thooksPath = 'x y'", True),
        ("[core\n]\n\tbare = false", True),
        ("[core]\n\t= x", True),
        ("\ufeff[core]\n\tbare = false\r\n[user]\r\n\tname = x\r\n", False),
        ("[unknown]\n\tkey = x", True),
        ("[tag]\n\tsort = -version:refname\n[branch]\n\tsort = -committerdate", False),
        ("[tag]\n\tsort = signature", True),  # git runs gpg to sort by it
        ("[tag]\n\tsort = refname\n\tsort = -signature:key", True),
        ("[branch]\n\tsort = -signature:trustlevel", True),
        ("[extensions]\n\tobjectFormat = sha256", True),
    ],
)
def test_settings_are_read_as_git_reads_them(
    real_range: RealRange, tmp_path: Path, settings: str, is_asked: bool
) -> None:
    folder = real_range.repository(tmp_path / "one")
    (folder / ".git/config").write_text(settings)
    decision = RULES.decide("git log", folder=str(folder))
    assert (decision.verdict == "ask") == is_asked, decision.reason


def test_the_users_own_settings_count_only_where_they_name_files_of_the_folder(
    real_range: RealRange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = real_range.repository(tmp_path / "one")
    own = tmp_path / ".gitconfig"
    for text, verdict in {
        "[core]\n\teditor = vim\n\tpager = delta\n[diff]\n\texternal = difft": "allow",
        "[core]\n\thooksPath = .githooks": "allow",
        "[core]\n\tfsmonitor = ./monitor": "ask",
        "[include]\n\tpath = ~/more": "ask",
    }.items():
        (tmp_path / "more").write_text(f"[diff]\n\texternal = {folder}/x\n")
        own.write_text(text)
        assert RULES.decide("git status", folder=str(folder)).verdict == verdict, text
    (folder / ".githooks").mkdir()
    (folder / ".githooks/post-index-change").write_text("")
    own.write_text("[core]\n\thooksPath = .githooks")
    assert RULES.decide("git status", folder=str(folder)).verdict == "ask"


def test_a_tree_with_more_files_than_are_looked_at_is_asked_about(tmp_path: Path) -> None:
    for number in range(5_001):
        (tmp_path / f"f{number}.txt").touch()
    decision = RULES.decide("wc -l *.txt", folder=str(tmp_path))
    assert decision.reason == "'wc' is asked about: *.txt is searched for among more files than are checked here"
    assert RULES.decide("wc -l f1.txt", folder=str(tmp_path)).verdict == "allow"
