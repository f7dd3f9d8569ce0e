"""Fifty commands as coding agents write them to look around: how many of them a person is asked about."""

from __future__ import annotations

from pathlib import Path

import pytest

from swink_agent.approvals.commands.rules import CommandRules

RULES = CommandRules.standard(search_path="/usr/bin:/bin")

TYPICAL = [
    "git log --oneline -5 | head",
    'grep -rn "foo" src | wc -l',
    "ls -la && cat README.md",
    'find . -name "*.py" | head -20',
    "cd src && ls",
    "cat a.txt 2>/dev/null",
    "wc -l *.py",
    "git diff HEAD~1 --stat",
    "head -50 README.md | grep install",
    "sort a.txt | uniq -c | sort -rn | head",
    "du -sh *",
    "rg foo -g '*.py'",
    "sed -n '1,20p' src/main.py",
    "awk '{print $1}' a.txt",
    "jq .name package.json",
    "python --version",
    "which git",
    "git show HEAD:src/main.py",
    "git branch -a",
    "git blame src/main.py",
    "tree -L 2",
    "stat a.txt",
    "file a.txt",
    "diff a.txt b.txt",
    "date",
    "pwd && ls",
    "env | grep PATH",
    "echo hi",
    "test -f package.json && echo yes || echo no",
    "basename src/main.py .py",
    "cut -d, -f1 a.txt | sort -u",
    "cat a.txt | tr a-z A-Z",
    "nl src/main.py | sed -n '10,20p'",
    "column -t a.txt",
    "comm -12 a.txt b.txt",
    "xxd a.txt | head -5",
    "md5sum a.txt",
    "git status --short && git diff",
    "git --no-pager log -3 --format='%h %s'",
    "cd @ROOT@ && git status",
    "grep -rn 'def main' --include='*.py' . 2>/dev/null | head -20",
    'grep -n "TODO" src/*.py || echo none',
    "ls node_modules 2>&1 | head",
    "cat package.json | jq '.dependencies | keys'",
    "find src -type f ! -name '*.pyc' | sort",
    "[ -d tests ] && ls tests",
    'ls src; echo "exit: $?"',
    "awk -F: '/main/ {print $2}' a.txt | sort | uniq",
    "npm ls --depth=0",
    "pip list | grep pytest",
]
# npm loads settings of the folder.
ASKED = {"npm ls --depth=0"}

# What agents write besides, in the course of an ordinary day.
EVERYDAY = [
    *["grep -rn TODO --include=*.py .", "grep -rn foo --include=*.py --include=*.md src", "ps aux | grep python"],
    *["find . -name '*.py' | xargs wc -l", "grep -rl main src | xargs wc -l", "grep -rl main . | sort | xargs head -5"],
    *[
        "find src -name '*.py' -print0 | xargs -0 grep -n main",
        "rg -l main | xargs wc -l",
        "find . | head | xargs ls -la",
    ],
    *[
        'for f in *.py; do wc -l "$f"; done',
        "for f in src/*.py; do echo $f; head -3 $f; done",
        "ps -ef",
        "ps -eo pid,args",
    ],
    *[
        "for i in 1 2 3; do echo round $i; done | tail -1",
        "for d in src tests; do ls $d | wc -l; done",
        "ps aux --sort=-rss",
    ],
    *['for f in *.txt; do echo "== $f"; cat "$f"; done', "pip list", "pip show pytest", "pgrep -fl python", "ss -tlnp"],
    *[
        "ls -la\ncat README.md\n",
        "# what is here?\nls # all of it\npwd",
        "git log --oneline \\\n  -5",
        "dpkg -l | head",
    ],
    *[
        "cd src\nls\ngrep -n main *.py",
        "ls |\n  wc -l",
        "echo done!",
        "grep -c '!' a.txt",
        "netstat -tln",
        "nm -C a.txt",
    ],
    *["cat <<'EOF' | wc -l\none\n$(two)\nEOF", "openssl version", "openssl x509 -in a.txt -noout -dates", "size a.txt"],
    *[
        "objdump -d a.txt | head",
        "readelf -h a.txt",
        "apt list --installed",
        "dpkg -s bash",
        "dpkg -L bash",
        "which rg",
    ],
    *[
        "wc -l src/*.py | sort -n | tail -5",
        "git status -sb",
        "git diff --stat HEAD~3",
        "du -sh src tests",
        "tail -20 a.txt",
    ],
    *["env | sort", "npm ls", "ls -lt | head -3", "git branch --list"],
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in (
        "src/main.py",
        "src/util.py",
        "tests/test_main.py",
        "README.md",
        "package.json",
        "a.txt",
        "b.txt",
        "x.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text\n")
    return tmp_path


def test_of_fifty_typical_commands_at_most_five_are_asked_about(project: Path) -> None:
    commands = [command.replace("@ROOT@", str(project)) for command in TYPICAL]
    asked = {command for command in commands if RULES.decide(command, folder=str(project)).verdict != "allow"}
    assert len(set(TYPICAL)) == 50
    assert asked == ASKED


def test_of_fifty_everyday_commands_at_least_forty_eight_run_unasked(project: Path) -> None:
    asked = {command for command in EVERYDAY if RULES.decide(command, folder=str(project)).verdict != "allow"}
    assert len(set(EVERYDAY)) == 50
    assert asked == {"npm ls"}


@pytest.mark.parametrize(
    "command", ["env -i sh", "env ls", "env A=1 make", "env -S 'rm x'", "env -", "printenv -0x", "printenv /etc/passwd"]
)
def test_env_with_words_is_asked_about(project: Path, command: str) -> None:
    assert RULES.decide(command, folder=str(project)).verdict != "allow"


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        # loops: what they run is looked at for each word, and goes nowhere
        *["for f in *; do rm $f; done", "for f in ../*; do cat $f; done", "for f in /etc/*; do cat $f; done"],
        *["for f in -delete; do find . $f; done", "for f in a; do cat ../$f; done", "for f in ..; do ls $f; done"],
        *["for f in *; do cat src/$f; done", "for f in *; do sort $f; done", "for f in 'a b'; do cat $f; done"],
        *[
            "for f in src; do cd $f; done",
            "for PATH in .; do ls; done",
            "for f; do ls; done",
        ],
        *["for f in a b; do cat $g; done", "for f in *; do cat $f > x; done", "for f in $(ls); do cat $f; done"],
        *["for f in a; do ls; done > x", "for f in a; do ls", "for f in a; ls; done", "for f in a; do ls; done; rm x"],
        *["for f in a; do for f in b; do ls; done; done", "for f in -R; do grep x $f.; done | tee y"],
        # xargs: where names come from, what is done to them, and who gets them
        *["xargs cat", "cat a.txt | xargs cat", "ls | xargs cat", "find . | xargs rm", "find . | xargs sh -c ls"],
        *["find . | sed s/a/b/ | xargs cat", "find . -printf '/etc/%f' | xargs cat", "find . | xargs -I{} cat {}"],
        *["find /usr | xargs cat", "grep -rn x . | xargs cat", "grep -rlo x . | xargs cat", "find . | xargs sort"],
        *["find . | xargs -a b.txt cat", "find . | xargs", "find . | xargs xargs cat", "echo /etc/passwd | xargs cat"],
        *[
            "find . | grep -o etc | xargs cat",
            "find . | xargs cat ../x",
            "find . | xargs -d / cat",
            "rg --json x | xargs cat",
        ],
        *["find . | xargs git log", "git ls-files | xargs cat", "find . | cut -c2- | xargs cat"],
        # the environment and the files of others
        *["ps e", "ps auxe", "ps -auxe", "ps eww", "ps -E", "ps axe", "ps -p 1 e", "ps -o environ", "ps -eo pid,env"],
        *["ps -C x e", "ps -u x -o e", "pgrep -F x", "ss -K", "ss -D x", "ss -F x", "netstat -c", "ps *"],
        *["objdump -S a.txt", "objdump -dS a.txt", "objdump -dl a.txt", "objdump -W a.txt", "readelf -w a.txt"],
        *["nm @x", "size @x", "nm --plugin x a.txt", "readelf -h ../x", "objdump -d /root/x", "nm -l a.txt"],
        *["openssl x509 -in a.txt", "openssl rsa -in a.txt -out b", "openssl x509 -in file:/etc/x -noout"],
        *[
            "openssl x509 -in ../x -noout",
            "openssl req -new -noout",
            "openssl rsa -noout -passin env:X",
            "openssl enc -d",
        ],
        *["dpkg -i x", "dpkg --purge x", "apt install x", "apt list -o Dir::Bin::dpkg=x", "apt-get update"],
        *[
            "pip install x",
            "pip list --outdated",
            "pip list --python x",
            "pip freeze",
            "pip show -f ../x",
            "pip --python x list",
        ],
        # lines, comments and documents
        *["ls\nrm x", "ls # x\nrm x", "ls \\\n; rm x", "cat <<EOF\n$(rm x)\nEOF", "cat <<EOF\n`rm x`\nEOF", "ls\r\nls"],
        *[
            "cat <<'EOF' > x\na\nEOF",
            "cat <<'EOF'\na\nEOF\nrm x",
            "sh <<'EOF'\nls\nEOF",
            "cat <<'EOF'\na",
            "cat <<'E'\nE ",
        ],
        *["ls 'a\nb'", "ls\n;ls", "ls |", "ls &&\n", "ls\n| wc", "grep --include=../* x .", "grep --i*=x y ."],
        *["! ls", "!ls", "awk '{a\n/x/}' f", "xargs -n1 cat <<'E'\n/etc/passwd\nE"],
    ],
)
def test_harmless_new_commands_write_run_and_reach_nothing(project: Path, command: str) -> None:
    assert RULES.decide(command, folder=str(project)).verdict == "ask"


@pytest.mark.parametrize("name", ["a /etc", "-R", "it's", 'a"b', "a\\b", "tab\tb", "new\nline"])
def test_names_that_xargs_would_split_are_asked_about(project: Path, name: str) -> None:
    commands = ("find . | xargs cat", "grep -rl x . | xargs wc -l")
    assert [RULES.decide(command, folder=str(project)).verdict for command in commands] == ["allow"] * 2
    (project / "src" / name).mkdir(parents=True)
    assert [RULES.decide(command, folder=str(project)).verdict for command in commands] == ["ask"] * 2


def test_links_out_of_the_folder_are_asked_about_in_loops_and_behind_xargs(project: Path, tmp_path: Path) -> None:
    commands = ("cat src/*", 'for f in src/*; do cat "$f"; done', "find . | xargs cat")
    assert [RULES.decide(command, folder=str(project)).verdict for command in commands] == ["allow"] * 3
    (project / "src" / "out.py").symlink_to("/etc/passwd")
    assert [RULES.decide(command, folder=str(project)).verdict for command in commands] == ["ask"] * 3


def test_names_that_a_loop_splits_are_asked_about(project: Path) -> None:
    (project / "src" / "a b.py").touch()
    assert RULES.decide("for f in src/*; do cat $f; done", folder=str(project)).verdict == "ask"
    assert RULES.decide('for f in src/*; do cat "$f"; done', folder=str(project)).verdict == "allow"


def test_a_file_that_is_called_like_an_option_is_asked_about(project: Path) -> None:
    command = "grep -rn foo --include=*.py ."
    assert RULES.decide(command, folder=str(project)).verdict == "allow"
    (project / "--include=x.py").touch()
    assert RULES.decide(command, folder=str(project)).verdict == "ask"


def test_rules_of_your_own_do_not_hold_in_loops(project: Path) -> None:
    rules = CommandRules.standard(allow=["make"], search_path="/usr/bin:/bin")
    assert rules.decide("make", folder=str(project)).verdict == "allow"
    assert rules.decide("for i in 1 2; do make; done", folder=str(project)).verdict == "ask"


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        # the same commands, with a little more than reading in them
        *["git log --oneline -5 | tee f", "ls -la && cat ../README.md", "cd src && ls > f", "cat a.txt 2>errors"],
        *['find . -name "*.py" | xargs rm', "cd .. && ls", "cd / && ls", "cd && ls", "cd - && ls", "cd ~ && ls"],
        *["wc -l $(ls)", "du -sh ~/*", "ls $HOME", "cat /etc/*", "echo $PATH", "sort -o f a.txt | head"],
        *["head -50 README.md | sh", "ls | xargs cat", "ls; npm install", "ls || rm x", "ls & ls", "ls |& cat", "(ls)"],
        *[
            "cd src && npm test",
            "cd nowhere && ls",
            "cd src | ls",
            "ls\ncat ../x",
            "sed -i s/a/b/ x",
            "cat <<< x",
            "cat <(ls)",
        ],
        *[
            "test -f x && rm x",
            "A=b ls | cat",
            "time ls | cat",
            "! ls | cat",
            "ls >/dev/nullx",
            "ls > /dev/null2",
            "cat <x>y",
        ],
        *[
            "git diff > /tmp/x",
            "ls 2>&3",
            "ls >&-",
            "ls 3>/dev/null",
            "ls {src,tests}",
            "ls [a-z]*",
            "cat .*",
            "ls ..*",
        ],
        *["cd src && cd ../.. && ls", "cd src; cd ..; cat ../x", "cd src || ls; cat ../a", "echo ../*", "ls -d /*/"],
        *["git --git-dir=x log | cat", "git -C .. log", "git -c a=b log | cat", "jq -n env", "jq -n '$ENV.HOME'"],
        *["sleep 1000", "tail -f x | head", "printf -v x y", "hostname evil", "date -s x", "tar xf x", "tar tf host:x"],
        *[
            "tar tf x -f host:y",
            "unzip x",
            "strings @x",
            "xxd -r x",
            "uniq a b",
            "column -t *.txt | tee x",
            "command ls",
        ],
    ],
)
def test_with_a_little_more_they_are_asked_about(project: Path, command: str) -> None:
    assert RULES.decide(command, folder=str(project)).verdict == "ask"
