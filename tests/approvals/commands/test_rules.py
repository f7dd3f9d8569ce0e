"""Which commands run unasked, which are asked about, and which are denied."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from swink_agent.approvals.commands.denied import RUNNERS, RUNNING_WORDS, named_commands
from swink_agent.approvals.commands.rules import CommandRules, Decision
from swink_agent.approvals.commands.shell_words import NotPlain, plain_words, read_script

SYSTEM = "/usr/bin:/bin"
STANDARD = CommandRules.standard(search_path=SYSTEM)


def verdict(command: str, rules: CommandRules = STANDARD, folder: str = "/home/me/project") -> str:
    return rules.decide(command, folder=folder).verdict


# -- the strict reading --------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ls", ["ls"]),
        ("  ls   -la  ", ["ls", "-la"]),
        ("ls 'a b' \"c d\"", ["ls", "a b", "c d"]),
        ("l''s", ["ls"]),
        ("\\l\\s", ["ls"]),
        ("ls ''", ["ls", ""]),
        ("ls a\\ b", ["ls", "a b"]),
        ("grep 'a;b|c&d' f", ["grep", "a;b|c&d", "f"]),
        ("grep '$HOME `id`' f", ["grep", "$HOME `id`", "f"]),
        ('grep "a\\.b" f', ["grep", "a\\.b", "f"]),
        ('grep "\\$HOME" f', ["grep", "$HOME", "f"]),
        ('grep "say \\"hi\\"" f', ["grep", 'say "hi"', "f"]),
        ("find . -name '*.py'", ["find", ".", "-name", "*.py"]),
        ("find . \\( -name x \\)", ["find", ".", "(", "-name", "x", ")"]),
        ("git diff HEAD~1", ["git", "diff", "HEAD~1"]),
        ("git diff main..HEAD^", ["git", "diff", "main..HEAD^"]),
        ("make CC=gcc", ["make", "CC=gcc"]),
        ("cat 'été.txt' \"日本.txt\"", ["cat", "été.txt", "日本.txt"]),
        ("./run.sh x", ["./run.sh", "x"]),
    ],
)
def test_plain_words_are_read_as_bash_reads_them(command: str, words: list[str]) -> None:
    assert list(plain_words(command)) == words


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        *["", "   ", "''", '""', "' '", "ls; id", "ls;id", "ls & id", "ls&", "ls && id", "ls || id", "ls | id"],
        *["ls |& id", "(ls)", "{ ls; }", "ls )", "ls\nid", "ls\n", "\nls", "ls\r\nid", "ls\rid", "ls \\\nid"],
        *["ls\tid", "ls > f", "ls >f", "ls 2>&1", "ls >> f", "ls < f"],
        *["ls <<E", "ls <<< x", "ls &> f", "ls <(id)", "ls >(id)", "ls $x", "ls ${x}", "ls $(id)", "ls `id`"],
        *["ls $((1))", "ls $[1]", 'ls "$x"', 'ls "`id`"', "ls $'a'", 'ls $"a"', "ls $IFS", "ls a$", 'ls "a$"', "$x"],
        *["`id`", "$(id)", "A=b ls", "A=b", "A+=b ls", "a[0]=b ls", "'A=b' ls", "A= ls", "ls *", "ls ?", "ls [a]"],
        *["ls a]", "ls {a,b}", "ls {1..2}", "ls }", "ls +(a)", "ls @(a)", "ls ~", "ls ~root", "ls x=~", "ls a:~"],
        *["ls ''~", "~/ls", "ls ~/x", "ls !", "ls !!", 'ls "!x"', "! ls", "ls # x", "#ls", "ls 'a"],
        *['ls "a', "ls \\", "'", '"', "\\", "if ls", "then", "time ls", "'time' ls", "coproc ls", "function ls"],
        *["[[ a ]]", "case x", "for x", "while ls", "eval ls", "exec ls", "source x", ". x", "command ls"],
        *["builtin ls", "trap ls EXIT", "alias ls=id", "set -x", "export a=b", "unset 'a[$(id)]'"],
        *["test -v 'a[$(id)]'", "[ -v 'a[$(id)]' ]", "printf -v 'a[$(id)]'", "let a", "read x", "declare -x a"],
        *["local a", "mapfile a", "hash -p /x ls", "enable ls", "shopt -s x", "bind x", ": x", "%1", "-ls", "=ls"],
        *["ls\xa0-la", "ls\u2003x", "ls\u3000x", "ls é", "\uff4c\uff53", "l\u0455", "ls '\u200b'", "ls '\u202e'"],
        *["ls '\u2066'", "ls '\ufeff'", "ls '\u3164'", "ls '\U000e0041'", "ls '\ufe0f'", "ls '\x1b[2J'", "ls '\x00'"],
        *["ls\x00", "ls\x01", "ls '\x7f'", "ls '\x85'", "ls '\u2028'", "ls '\ud800'", 'ls "é\\"x"', "ls\x0bx"],
        *["ls\x0cx"],
    ],
)
def test_anything_else_is_not_read_at_all(command: str) -> None:
    with pytest.raises(NotPlain) as caught:
        plain_words(command)
    assert str(caught.value).isprintable()
    if command not in JOINED:
        assert verdict(command) != "allow"
        assert verdict(command, CommandRules(allow=["ls", "echo", "pwd"])) != "allow"
    if ("id" in command and "\\\n" not in command) or any(mark in command for mark in "*?<"):
        assert verdict(command, CommandRules(allow=["ls", "echo", "pwd"])) != "allow"


# No plain words, and yet nothing but the program that a rule names.
JOINED = {"ls 2>&1", "ls !", "ls !!", 'ls "!x"', "ls\n", "\nls", "ls # x", "ls \\\nid"}


@pytest.mark.parametrize("command", ["ls 'a\nb'", 'ls "a\nb"', "ls 'a\tb'"])
def test_a_text_of_several_lines_is_covered_by_rules_of_a_user_alone(command: str) -> None:
    with pytest.raises(NotPlain):
        plain_words(command)
    assert verdict(command) == "ask"
    assert verdict(command, CommandRules(allow=["ls"])) == "allow"


@pytest.mark.table
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("ls & id", "the command is not a plain one: it has the operator &"),
        ("ls; npm install", "no rule allows 'npm install'"),
        ("ls |& id", "the command is not a plain one: it has the operator |&"),
        ("ls > f", "the command is not a plain one: it has the redirection >"),
        ("ls $x", "the command is not a plain one: it has a substitution, $"),
        ("ls [a]", "the command is not a plain one: it has the file pattern ["),
        ("A=b ls", "the command is not a plain one: it begins with the assignment A=b"),
        ("ls 'a b'", "no rule allows 'ls a b'"),
        ("cat a.txt", "no rule allows 'cat a.txt'"),
        ("ls *", "the command is not a plain one: it has the file pattern *"),
        ("ls | head", "no rule allows 'head'"),
        ("ls\nmake", "no rule allows 'make'"),
        ("time ls", "the command is not a plain one: time is a keyword of the shell"),
        ("ls '\u202e'", "the command is not a plain one: it has the character \\u{202e}, which is not plain"),
        ("npm install", "no rule allows 'npm install'"),
    ],
)
def test_the_reason_says_what_was_found(command: str, reason: str) -> None:
    assert STANDARD.decide(command, folder="/home/me/project") == Decision("ask", reason)


@pytest.mark.table
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("cat <<'E' |\n$(x) `y` ' \nE\n wc; ls", [["cat"], ["wc"], ["ls"]]),
        ("ls a\\\nb \\\n c", [["ls", "ab", "c"]]),
        ('ls !x "!y" # it\'s', [["ls", "!x", "!y"]]),
        ("ls a#b ''#c x# #d", [["ls", "a#b", "#c", "x#"]]),
        ("ls 'a\n$(b)' \"c\n\td\"\nls", [["ls", "a\n$(b)", "c\n\td"], ["ls"]]),
        ("ls <<E 'a'\nb\nE\nls", [["ls", "a"], ["ls"]]),
    ],
)
def test_a_script_is_read_as_bash_reads_it(command: str, words: list[list[str]]) -> None:
    assert [list(part) for pipeline in read_script(command) for part in pipeline] == words


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        *["for f in a; do ls $f; done", "ls $f", "ls $?", "ls 2\\\n>/dev/null", "ls *", "ls < f"],
        *["ls &\\\n& ls", "ls |\\\n| ls", "cat <<E\\\nF\nx\nEF\n"],
        *["cat <<E 'a\nb\nE\n'", 'cat <<E "a\nE\nb"\nE\n', 'ls "a\n$(id)"', 'ls "a\\\nb"'],
    ],
)
def test_unknown_parts_of_a_script_are_not_read(command: str) -> None:
    with pytest.raises(NotPlain):
        read_script(command)


# -- rules ---------------------------------------------------------------------------------------------------


def test_a_rule_is_the_first_words_of_a_command() -> None:
    rules = CommandRules(allow=["git status", "npm test", "ls"])
    allowed = ["git status", "git status -s", "npm test", "npm test -- --watch", "ls", "ls -la 'a b'", "'git' st''atus"]
    asked = [
        "git",
        "git push",
        "git -C x status",
        "npm",
        "npm testing",
        "npm 'test x'",
        "lsof",
        "./ls",
        "/bin/ls",
        "LS",
    ]
    assert [verdict(command, rules) for command in allowed] == ["allow"] * len(allowed)
    assert [verdict(command, rules) for command in asked] == ["ask"] * len(asked)


def test_a_program_named_with_a_path_is_only_that_one() -> None:
    rules = CommandRules(allow=[".venv/bin/pytest -q"])
    assert verdict(".venv/bin/pytest -q tests", rules) == "allow"
    assert [verdict(command, rules) for command in ("pytest -q", "./.venv/bin/pytest -q")] == ["ask", "ask"]


def test_without_rules_everything_is_asked_about() -> None:
    assert CommandRules().decide("ls") == Decision("ask", "no rule allows 'ls'")


def test_unattended_means_deny() -> None:
    for command in ("npm install", "ls; npm install", "", "find . -delete"):
        decision = STANDARD.decide(command, attended=False)
        assert decision.verdict == "deny"
        assert decision.reason.endswith(", and no one can answer a question here")
    assert STANDARD.decide("ls", attended=False).verdict == "allow"


def test_a_command_that_is_not_text_is_asked_about() -> None:
    decision = STANDARD.decide(["ls"])  # type: ignore[arg-type]
    assert decision == Decision("ask", "the command is a list, not a text")


@pytest.mark.table
@pytest.mark.parametrize(
    "rule", ["", "ls; id", "ls *", "A=b ls", "eval", "time", "test", "source x", "echo $x", "ls\n"]
)
def test_a_rule_that_is_not_a_plain_command_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=r"the allow rule .* is not a plain command"):
        CommandRules(allow=[rule])


def test_a_rule_that_is_not_text_is_refused() -> None:
    with pytest.raises(ValueError, match="it is a list; a rule is a program and words that follow it"):
        CommandRules(deny=[["rm"]])  # type: ignore[list-item]


def test_rules_show_how_many_they_are() -> None:
    rules = CommandRules.standard(allow=["make"], deny=["rm", "curl"])
    assert repr(rules) == "<CommandRules standard, 1 to allow, 2 to deny>"
    assert "secret" not in repr(Decision("ask", "no rule allows 'curl secret'"))


# -- denying -------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        *["rm x", "/bin/rm x", "'rm' x", "r''m x", "\\rm x", "RM x", "ls; rm x", "ls && rm x", "ls | rm x"],
        *["ls\nrm x", "(rm x)", "{ rm x; }", "echo $(rm x)", 'echo "a $(rm x) b"', "echo `rm x`"],
        *['echo "`rm x`"', "cat <(rm x)", "A=b rm x", "if true; then rm x; fi", "! rm x"],
        *["while rm x; do :; done", "ls > f; rm x", "rm\\\n x", "env rm x", "env -i A=b rm x", "xargs rm"],
        *["sudo -u me rm x", "nohup rm x &", "timeout 5 rm x", "find . -exec rm {} +", "bash -c 'rm x'"],
        *['sh -c "ls; rm x"', "bash -c \"bash -c 'rm x'\"", "eval 'rm x'", "bash <<E\nrm x\nE", ">f rm x"],
        *["> f rm x", "2>f rm x", "2>&1 rm x", "&>f rm x", ">>f rm x", "<f rm x", "<<<f rm x", ">|f rm x"],
        *["<f >g 2>&1 rm x", "A=b >f rm x", ">f A=b rm x", "ls >f; >g rm x", "ls 2>&1 | >f rm x"],
        *["<(ls) rm x", "f() { rm x; }", "function f { rm x; }", "coproc c { rm x; }", "time -p rm x"],
        *["case a in a) rm x;; esac", "for a in b; do rm x; done", "until rm x; do :; done", "/b*/rm x"],
        *['"rm" x', "r\\m x", "busybox rm x", "rm.exe x", "command rm x", "command -p rm x"],
        *["builtin rm x", "exec rm x", "exec -a ls rm x", "nice -n 5 rm x", "strace -f rm x"],
        *["setsid rm x", "stdbuf -o0 rm x", "flock f rm x", "doas rm x", "watch rm x", "env -S 'rm x'"],
        *["env -S'rm x'", "parallel rm ::: x", "ls | xargs -I{} sh -c 'rm {}'", "trap 'rm x' EXIT"],
        *["bash5 -c 'rm x'", "zsh -c 'rm x'", "fish -c 'rm x'", "echo rm x | bash", "printf 'rm x' | sh"],
        *["sh <<< 'rm x'", "find . -ok rm {} +", "find . '-ex'ec rm {} +"],
        *["find . -name x -execdir nice rm {} +", "command -v ls; rm x", 'command -v "$(rm x)"'],
        *["command -p rm x", "command $how rm x", "command -v ls && command rm x", "git bisect run rm x"],
        *["git submodule foreach 'rm x'", "git rebase --exec 'rm x'"],
    ],
)
def test_a_denied_program_is_denied_wherever_it_shows(command: str) -> None:
    rules = CommandRules(allow=["rm", "env", "xargs", "bash", "ls"], deny=["rm"])
    assert rules.decide(command) == Decision("deny", "the rule 'rm' denies it")


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        "grep rm x",
        "echo 'a; rm x'",
        "git rm x",
        "ls rm",
        "farm x",
        "rm.py",
        "echo rm",
        "cat rm > rm",
        "ls 2>rm",
        "find . -name 'r*'",
        "cat <rm",
        "git log --grep rm",
        "echo 'rm x' | cat",
        "find / -name rm -type f",
        "find . -path ./rm -prune -o -print",
        "command -v rm >/dev/null && echo yes",
        "command -V ls rm",
        "if ! command -pv rm; then echo no; fi",
    ],
)
def test_a_denied_name_that_is_only_mentioned_is_not_denied(command: str) -> None:
    assert CommandRules(deny=["rm"]).decide(command).verdict == "ask"


@pytest.mark.table
@pytest.mark.parametrize(
    ("rule", "denied", "asked"),
    [
        (
            "git push",
            ["git push", "git -C x push", "git --no-pager push -f", "git push x"],
            ["git commit -m push", "git"],
        ),
        (
            "rm -rf",
            ["rm -rf x", "rm -fr x", "rm -r -f x", "rm x -rfv", "rm -f -i -r x"],
            ["rm x", "rm -r x", "rm --rf x"],
        ),
        ("npm publish", ["npm publish", "npm --tag x publish"], ["npm test", "npm run publish"]),
        ("curl --upload-file", ["curl --upload-file x y", "curl y --upload-file=x"], ["curl y"]),
        ("eval", ["eval x", "eval $(x)"], ["evaluate x"]),
        ("/opt/tool", ["/opt/tool x"], ["tool x", "/usr/bin/tool x"]),
    ],
)
def test_a_deny_rule_sees_through_options(rule: str, denied: list[str], asked: list[str]) -> None:
    rules = CommandRules(deny=[rule])
    assert [verdict(command, rules) for command in denied] == ["deny"] * len(denied)
    assert [verdict(command, rules) for command in asked] == ["ask"] * len(asked)


@pytest.mark.table
@pytest.mark.parametrize(
    ("rule", "denied", "asked"),
    [
        (
            "rm -rf",
            [
                *["rm -Rf x", "rm --recursive --force x", "rm -r --force x", "rm --recursive -f x", "rm -fR x"],
                *[
                    "rm --rec --forc x",
                    "rm x -R -f",
                    "rm -vRf x",
                    "sudo rm --force --recursive x",
                    "find . -exec rm -Rf {} +",
                ],
            ],
            ["rm --force x", "rm -R x", "rm --recursive x", "rm -f x", "rm --version"],
        ),
        ("rm --recursive --force", ["rm -rf x", "rm -R -f x", "rm --recursive --force x"], ["rm -r x"]),
        ("rm -r", ["rm -R x", "rm --recursive x"], ["rm x", "rm -f x"]),
        ("chmod -R", ["chmod --recursive 777 .", "chmod -R 777 ."], ["chmod 644 x"]),
        ("git push --force", ["git push -f", "git push --force", "git push origin -fu"], ["git push", "git push -u x"]),
        ("git push -f", ["git push --force origin"], ["git push origin"]),
        ("git commit --no-verify", ["git commit -n -m x", "git commit -nm x"], ["git commit -m n"]),
        ("git clean -f", ["git clean --force -d", "git clean -xdf"], ["git clean -n"]),
        ("curl --upload-file", ["curl -T x y", "curl --upload-file x y"], ["curl -t x y"]),
        ("sed -i", ["sed --in-place s/a/b/ f", "sed -ni p f", "sed -i.bak p f"], ["sed p f"]),
        ("tar -x", ["tar --extract -f a", "tar -xf a"], ["tar -tf a"]),
    ],
)
def test_a_deny_rule_compares_options_as_sets(rule: str, denied: list[str], asked: list[str]) -> None:
    rules = CommandRules(deny=[rule])
    assert {command: verdict(command, rules) for command in denied} == dict.fromkeys(denied, "deny")
    assert {command: verdict(command, rules) for command in asked} == dict.fromkeys(asked, "ask")


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        *["uv run rm x", "uv run --with y rm x", "uvx rm x", "uv tool run rm x", "npx rm x", "npx -y rm x"],
        *["bunx rm x", "poetry run rm x", "pipx run rm x", "pnpm exec rm x", "pnpm dlx rm x"],
        *["hatch run rm x", "pdm run rm x", "bundle exec rm x", "conda run -n e rm x", "mamba run rm x"],
        *["npm exec -- rm x", "npm x rm x", "yarn exec rm x", "yarn dlx rm x", "bun x rm x"],
        *["pipenv run rm x", "rye run rm x", "pixi run rm x", "env rm x", "nice rm x", "timeout 5 rm x"],
        *["xargs rm", "sudo rm x", "doas rm x", "command rm x", "exec rm x", "nohup rm x", "time rm x"],
        *["setsid rm x", "stdbuf -oL rm x", "busybox rm x", "direnv exec . rm x", "docker run -it a rm x"],
        *["podman exec c rm x", "kubectl exec p -- rm x", "mise exec -- rm x", "nix run rm x"],
        *["tmux new-session -d 'rm x'", "hyperfine 'rm x'", "npx -c 'rm x'", "nix-shell --run 'rm x'"],
        *["yarn run rm x", "nvm exec 20 rm x", "tox exec -- rm x", "cross-env A=1 rm x"],
    ],
)
def test_launchers_do_not_hide_a_denied_program(command: str) -> None:
    assert CommandRules(deny=["rm"]).decide(command) == Decision("deny", "the rule 'rm' denies it")


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        *["uv pip install rm", "poetry add rm", "npm install rm", "pnpm add rm", "conda install rm", "docker pull rm"],
        *["yarn add rm", "bun add rm", "uv add rm", "bundle install rm"],
    ],
)
def test_installing_a_package_with_a_denied_name_is_not_denied(command: str) -> None:
    assert CommandRules(deny=["rm"]).decide(command).verdict == "ask"


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        "cat <<'EOF' > n.md\n* item\n* another\nEOF",
        "cat <<'EOF' > n.md\nsudo rm x\nEOF",
        "cat > n.md <<'EOF'\nRun `sudo rm x` or $(sudo x)\nEOF",
        'cat <<"EOF" > n.md\nsudo x\nEOF\necho done',
        "cat <<\\EOF > n.md\nsudo x\nEOF",
        "cat <<-'EOF' > n.md\n\tsudo x\n\tEOF",
        "cat <<EOF > n.md\n* item\nsudo x\nit's; sudo\nEOF",
        "cat <<A <<'B' > n.md\nsudo a\nA\nsudo b\nB\nls",
        "cat <<'EOF' | grep -c x\nsudo x\nEOF",
        "git commit -F - <<'EOF'\nsudo is not used any more\n\n* one\nEOF",
        "python3 - <<'EOF'\nx = 2 * 3\n* 1\nEOF",
        # another program runs besides, and is not given the text
        "cat > n.md <<'EOF'\nsudo x\nEOF\nnpm test",
        "cat >> docs/n.md <<'EOF'\nsudo x\nEOF\nbash check.sh docs",
        "tee n.txt <<'EOF' > /dev/null.txt\nsudo x\nEOF\n./check",
        "cat > n.md <<'EOF'\nsudo x\nEOF\ngit add n.md && bash check.sh",
        "cat > a.py <<'A'\nsudo x\nA\ncat > b.py <<'B'\nsudo x\nB\nmake test",
        *["ls *", "git add *", "timeout 5 ls /tmp/*", "env ls *", "find . -name '*'", "xargs ls *", "nice cat /var/*"],
        *["echo 2 * 3", "* x", "?", "# sudo rm\nls", "ls # sudo rm", "echo a#b"],
    ],
)
def test_plain_data_is_not_denied(command: str) -> None:
    assert STANDARD.decide(command, folder="/home/me/project").verdict != "deny"


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        *["bash <<'EOF'\nsudo x\nEOF", "cat <<'EOF' | sh\nsudo x\nEOF", "sh -s <<EOF\nsudo x\nEOF"],
        *["cat <<'EOF' | tee x.md | bash\nsudo x\nEOF", "tee x.md <<'EOF' | bash\nsudo x\nEOF"],
        *["bash > x.md <<'EOF'\nsudo x\nEOF", "cat <<'EOF' > >(bash) > x.md\nsudo x\nEOF"],
        *["ssh host <<'EOF'\nsudo x\nEOF", "env bash <<'EOF'\nsudo x\nEOF"],
        *["uv run bash <<'EOF'\nsudo x\nEOF", "docker exec -i c sh <<'EOF'\nsudo x\nEOF"],
        *["source /dev/stdin <<'EOF'\nsudo x\nEOF", ". /dev/stdin <<E\nsudo x\nE"],
        *["cat <<EOF\n$(sudo x)\nEOF", "cat <<EOF\n`sudo x`\nEOF", "cat <<EOF\na $(ls; sudo x) b\nEOF"],
        *["cat <<-EOF\n\t$(sudo x)\n\tEOF", "cat <<EOF\n${a:-$(sudo x)}\nEOF"],
        *["cat <<'EOF' > n\nx\nEOF\nsudo x", "cat <<'EOF'; sudo x\nx\nEOF", "cat <<'EOF' | sudo x\nx\nEOF"],
        *["cat <<'EOF'\nx\\\nEOF\nsudo x\nEOF", "echo $((1<<2))\nsudo x\n2", "((x=1<<E))\nsudo x\nE"],
        *["echo `cat <<E`\nsudo x\nE", "echo $(cat <<E)\nsudo x\nE", "echo '<<E'\nsudo x\nE"],
        *['echo "<<E"\nsudo x\nE', "echo \\<<E\nsudo x\nE", "# <<E\nsudo x\nE"],
        *["cat <<E${IFS}\nx\nE${IFS}\nsudo x\nE", "cat <<<E\nsudo x\nE", "cat <<'E F'\nx\nE F\nsudo x\nE"],
        *["cat <<E\nE\nsudo x\nE", "cat <<-E\n\tE\nsudo x\nE", "# it's\nsudo x"],
        *["ls # don't\nsudo x # don't", "ls;# '\nsudo x", 'echo a # "\nsudo "x"', "!\nsudo x", "! sudo x"],
    ],
)
def test_a_denied_program_is_denied_whatever_stands_around_it(command: str) -> None:
    assert STANDARD.decide(command, folder="/home/me/project").verdict == "deny"


@pytest.mark.table
@pytest.mark.parametrize(
    ("rule", "command"),
    [
        *[("git push", "git -C . --no-pager push origin"), ("git push", "git --git-dir x -p push origin")],
        *[("git push", "git -p -C . -P push origin"), ("git push", "git -c a=b --no-pager push")],
        *[("git push", "git -C x --no-pager -c a=b -P push"), ("git push", "/usr/lib/git-core/git-push x")],
        *[("git push", "git-push"), ("rm -rf", "rm -{r,f} x"), ("rm -rf", "env -iS 'rm -rf x'")],
        *[("rm -rf", "env --split='rm -rf x'"), ("rm -rf", "script -c'rm -rf x' f")],
        *[("rm -rf", "flock f --command='rm -rf x'"), ("rm -rf", "ssh h -t'rm -rf x'")],
        *[("rm -rf", "watch -n1 'rm -rf x'"), ("rm -rf", "bash --norc -c 'rm -rf x'")],
        *[("rm -rf", "bash -c 'A=1 rm -rf x'"), ("rm -rf", "bash -c 'A=b; rm -rf x'")],
        *[("rm -rf", "bash -c 'a-b=c; rm -rf x'"), ("rm -rf", "bash -c '-x; rm -rf x'")],
        *[("rm -rf", "fd . -x rm -rf x"), ("rm -rf", "fdfind -X rm -rf x")],
        *[("rm -rf", "watchexec rm -rf x"), ("rm -rf", "gosu me rm -rf x"), ("rm -rf", "tini -- rm -rf x")],
        *[("rm -rf", "dumb-init rm -rf x"), ("rm -rf", "concurrently 'rm -rf x'")],
        ("rm -rf", "rm " + "x " * 300 + "-rf"),
        ("rm -rf", "env rm " + "x " * 300 + "-rf"),
    ],
)
def test_a_denied_command_is_denied_in_other_words(rule: str, command: str) -> None:
    assert verdict(command, CommandRules(deny=[rule])) == "deny"


@pytest.mark.table
@pytest.mark.parametrize(
    ("rule", "command"),
    [
        *[
            ("git push", command)
            for command in ("git log push", "git -C . log push", "git -C x --no-pager log --grep push")
        ],
        *[("git push", command) for command in ("git commit -m push", "git -c alias.p=pull p")],
        *[("rm -rf", command) for command in ("rm {a,b} x", "rm -r {f,g}", "echo {rm,-rf}", "alias l='ls -rf'")],
        *[("rm -rf", command) for command in ("env -u X ls", "make clean", "cat <<'E' > n\nrm -rf x\nE\nls")],
        *[
            ("rm -rf", command)
            for command in ("git commit -F - <<'E'\nrm -rf x\nE", "fd rm", "git log --grep='rm -rf'")
        ],
    ],
)
def test_no_other_command_is_denied_for_it(rule: str, command: str) -> None:
    assert verdict(command, CommandRules(deny=[rule])) == "ask"


def test_denying_wins_over_allowing() -> None:
    rules = CommandRules(allow=["git", "git push"], deny=["git push"])
    assert verdict("git push origin", rules) == "deny"
    assert verdict("git fetch", rules) == "allow"


def test_the_standard_rules_deny_what_takes_over_the_machine() -> None:
    assert [verdict(command) for command in ("sudo ls", "ls && sudo -s", "su -", "shutdown now")] == ["deny"] * 4


def test_a_rough_reading_finds_the_parts() -> None:
    command = "A=b ls 'x y' | wc -l; echo \"n $(id -u) m\" > f; if [ -f a ]; then cat a; fi"
    assert named_commands(command) == [
        ("ls", "x y"),
        ("wc", "-l"),
        ("id", "-u"),
        ("echo", "n $() m"),
        ("[", "-f", "a", "]"),
        ("cat", "a"),
    ]


def test_the_documents_list_the_programs_that_run_others() -> None:
    text = (Path(__file__).parents[3] / "docs/approvals.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`([^`]+)`", text.partition("### Programs that run others")[2].partition("\n## ")[0]))
    assert listed >= RUNNERS | RUNNING_WORDS.keys()
    assert len(RUNNERS) + len(RUNNING_WORDS) < 110


# -- the standard rules --------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    ["pwd", "ls", "ls -la", " ls  -la ", "'ls'", "ls 2>/dev/null", "git status", "git status --short", "git branch"],
)
def test_exact_commands_that_only_read_are_allowed(command: str) -> None:
    decision = STANDARD.decide(command, folder="/home/me/project")
    assert (decision.verdict, decision.reads_only) == ("allow", True)


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    ["ls src", "ls -R", "ls; pwd", "ls | cat", "git status src", "git -C x status", "git log", "git diff", "cat a"],
)
def test_any_other_command_is_asked_about(command: str) -> None:
    assert STANDARD.decide(command, folder="/home/me/project").verdict == "ask"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.txt").write_text("a")
    return tmp_path


def git_verdicts(folder: Path) -> set[str]:
    commands = ("git status", "git branch", "git log --oneline")
    return {verdict(command, folder=str(folder)) for command in commands}


def test_git_reads_unasked_in_an_ordinary_repository_and_beneath_it(repository: Path) -> None:
    (repository / "sub").mkdir()
    assert git_verdicts(repository) == git_verdicts(repository / "sub") == {"allow"}
    with (repository / ".git/config").open("a") as file:
        file.write('[remote "origin"]\n\turl = https://example.org/a.git\n[branch "main"]\n\tremote = origin\n')
    assert git_verdicts(repository) == {"allow"}


SETTINGS = {
    "a monitor": "[core]\n\tfsmonitor = ./evil\n",
    "a filter": '[filter "x"]\n\tclean = ./evil\n',
    "git-lfs": '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n',
    "a folder of hooks": "[core]\n\thooksPath = hooks\n",
    "an include": "[include]\n\tpath = ../more\n",
    "a program that shows": "[diff]\n\texternal = ./evil\n",
    "a work tree elsewhere": "[core]\n\tworktree = /home/me\n",
    "a program that checks signatures": "[branch]\n\tsort = signature\n",
    "half a setting": "[core\n",
}


@pytest.mark.table
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_git_is_asked_about_with_settings_that_may_run_something(repository: Path, settings: str) -> None:
    with (repository / ".git/config").open("a") as file:
        file.write(settings)
    assert git_verdicts(repository) == {"ask"}


UNUSUAL = {
    "a hook": "mkdir -p .git/hooks; echo x > .git/hooks/post-index-change",
    "settings of a worktree": "touch .git/config.worktree",
    "another common folder": "echo x > .git/commondir",
    "a link": "mv .git real; ln -s real .git",
    "a file": "mv .git real; echo 'gitdir: real' > .git",
    "no objects": "rm -r .git/objects",
    "a split index": "touch .git/sharedindex.1",
    "an index with a submodule": "git init -q sub; git -C sub -c user.name=a -c user.email=a@b commit -q "
    "--allow-empty -m x; git add sub 2>/dev/null",
    "a bare repository": "rm -r .git; git init -q --bare .",
}


@pytest.mark.parametrize("change", UNUSUAL.values(), ids=UNUSUAL)
def test_git_is_asked_about_in_an_unusual_repository(repository: Path, change: str) -> None:
    subprocess.run(["sh", "-c", change], cwd=repository, check=True)
    assert git_verdicts(repository) == {"ask"}


def test_own_rules_come_on_top_of_the_standard_ones() -> None:
    rules = CommandRules.standard(allow=["npm test"], deny=["git log"], search_path=SYSTEM)
    commands = ["npm test", "ls", "git log --oneline", "sudo ls"]
    assert [verdict(command, rules) for command in commands] == ["allow", "allow", "deny", "ask"]


# -- where the program lies ----------------------------------------------------------------------------------


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    for folder in ("work/bin", "system", "shims"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("work/bin/ls", "system/ls", "system/date", "shims/ls"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "system/whoami").symlink_to(tmp_path / "work/bin/ls")
    return tmp_path


def test_a_program_that_the_model_can_write_is_asked_about(planted: Path) -> None:
    work = str(planted / "work")
    rules = CommandRules.standard(allow=["ls -x"], search_path=f"{work}/bin:{planted}/system")
    assert rules.decide("ls", folder=work) == Decision(
        "ask", f"'ls' is asked about: ls is {work}/bin/ls, in a folder that the model can write"
    )
    assert rules.decide("ls").verdict == "allow"  # nobody said what the model can write
    assert rules.decide("date", folder=work).verdict == "allow"
    assert rules.decide("whoami", folder=work).verdict == "ask"  # a link into the folder
    assert rules.decide("uname -a", folder=work).verdict == "allow"  # not there, so bash will not find it either
    assert rules.decide("ls -x", folder=work).verdict == "allow"  # a rule of your own is for your own programs
    assert rules.decide("pwd", folder=work).verdict == "allow"  # bash does this itself


def test_a_folder_reached_through_a_link_is_the_same_folder(planted: Path) -> None:
    (planted / "link").symlink_to(planted / "work")
    rules = CommandRules.standard(search_path=f"{planted}/link/bin")
    assert rules.decide("ls", folder=str(planted / "work")).verdict == "ask"
    rules = CommandRules.standard(search_path=str(planted / "work" / "bin"))
    assert rules.decide("ls", folder=str(planted / "link")).verdict == "ask"


@pytest.mark.parametrize("search_path", [":/usr/bin", ".:/usr/bin", "bin:/usr/bin", "node_modules/.bin:/usr/bin", ""])
def test_a_search_path_that_depends_on_the_folder_is_asked_about(search_path: str) -> None:
    assert CommandRules.standard(search_path=search_path).decide("ls").verdict == "ask"


def test_a_program_that_lets_the_folder_choose_what_runs_is_asked_about(planted: Path) -> None:
    rules = CommandRules.standard(search_path=str(planted / "shims"))
    assert "lets files of the folder choose what runs" in rules.decide("ls").reason


def test_the_search_path_of_the_environment_is_the_default(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = CommandRules.standard()
    monkeypatch.setenv("PATH", str(planted / "work" / "bin"))
    assert rules.decide("ls", folder=str(planted / "work")).verdict == "ask"
    monkeypatch.setenv("PATH", f"{planted}/system")
    assert rules.decide("ls", folder=str(planted / "work")).verdict == "allow"


# -- size ----------------------------------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize(
    "part",
    ["a", "rm ", "'rm x' ", "'ls;rm' ", "(", "$(", '"$(', "`", "'", '"', "\\", ";", "{ ", "bash -c ", "=", "-r "],
)
@pytest.mark.parametrize("start", ["ls ", "env ", "bash -c ", "bash -c '"])
def test_a_long_command_is_decided_in_a_moment(start: str, part: str) -> None:
    rules = CommandRules.standard(allow=["ls"], deny=["sudo", "rm -rf", "git push"], search_path=SYSTEM)
    command = start + part * (120_000 // len(part))
    began = time.process_time()
    decision = rules.decide(command)
    words = ("a", "rm ", "'rm x' ", "'ls;rm' ", "'", '"', "\\", "bash -c ", "=", "-r ")
    assert (decision.verdict == "allow") == (start == "ls " and part in words)
    assert time.process_time() - began < 5.0


def test_a_command_longer_than_a_shell_takes_is_denied() -> None:
    decision = STANDARD.decide("ls " + "a" * 200_000)
    assert decision == Decision(
        "deny", "the command has 200,003 characters, and no shell takes more than 131,071: put it in a file"
    )


def test_a_rule_is_not_outrun_by_naming_its_program_often() -> None:
    rules = CommandRules(deny=["rm -rf"])
    assert rules.decide(f"env {'rm ' * 1000} rm -rf x").verdict == "deny"
    assert rules.decide("env rm x").verdict == "ask"
    assert rules.decide(f"env {'rm ' * 1000}").verdict == "deny", "as often as this, it is not looked at"


# -- patterns, and commands joined by operators ------------------------------------------------------------------


def test_a_pattern_says_where_a_command_ends() -> None:
    rules = CommandRules(patterns=["npm test", "pytest *", "npm run test:*", "deploy * --dry", "cat src/*.py"])
    allowed = ("npm test", "pytest", "pytest -q 'a b.py'", "npm run test:unit", "deploy 'a web' --dry", "cat src/a.py")
    asked = ("npm test --watch", "npm", "pytests", "./pytest", "npm run test:unit -- x", "npm run tests", "deploy web")
    asked += ("deploy --all --dry", "cat src/../a.py", "cat src/a.pyc", "cat ../src/a.py", "cat src/a.py b.py")
    assert {command: rules.decide(command).verdict for command in (*allowed, *asked)} == {
        **dict.fromkeys(allowed, "allow"),
        **dict.fromkeys(asked, "ask"),
    }


def test_a_star_in_quotes_is_a_star_and_the_program_is_always_named() -> None:
    rules = CommandRules(patterns=["grep '*' *"])
    assert rules.decide("grep '*' a b").verdict == "allow"
    assert rules.decide("grep x a").verdict == "ask"
    for pattern in ("*", "py*", "* test", "pytest; *", "pytest $*", "pytest > *", ""):
        with pytest.raises(ValueError, match="is not a plain command"):
            CommandRules(patterns=[pattern])


def test_a_rule_on_git_covers_no_option_that_runs_or_writes_something_else() -> None:
    rules = CommandRules(allow=["git merge", "git rebase -x make"], patterns=["git diff *", "git log"])
    allowed = ("git merge main", "git merge --squash x", "git diff --stat", "git log", "git rebase -x make main")
    asked = ("git merge -nsevil x", "git merge -s evil x", "git diff --output=f", "git rebase -x make -x evil")
    assert [verdict(command, rules) for command in allowed] == ["allow"] * len(allowed)
    assert [verdict(command, rules) for command in asked] == ["ask"] * len(asked)
    assert verdict("git diff --output=f", CommandRules(allow=["git"])) == "allow"  # all of git, as it says


OURS = CommandRules.standard(
    patterns=["pytest *", "cd *"], deny=["git push"], compound=True, search_path="/usr/bin:/bin"
)


@pytest.mark.table
@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("pytest -q && pytest tests/a.py", "allow"),
        ("pytest -q | tail -5", "allow"),
        ("pytest;pytest||pytest|head", "allow"),
        ("pytest 2>&1 | tail", "allow"),
        ("cd sub && pytest", "allow"),
        ("pytest 'a; b' && pytest", "allow"),
        # one part that nobody allowed
        ("pytest && make", "ask"),
        ("pytest | sh", "ask"),
        ("pytest; rm -rf x", "ask"),
        ("pytest && git push", "deny"),
        ("pytest | xargs git push", "deny"),
        ("pytest && git status", "allow"),
        ("ls && pytest", "allow"),
        ("cd sub && cat a.txt", "ask"),
        ("cd / && pytest && cat etc/passwd", "ask"),
        # more than commands in a row
        ("pytest > out.txt", "ask"),
        ("pytest 2>pytest.log | tail", "ask"),
        ("pytest & pytest", "ask"),
        ("pytest &", "ask"),
        ("pytest |& tail", "ask"),
        ("pytest;; pytest", "ask"),
        ("pytest &&& pytest", "ask"),
        ("pytest && $(id)", "ask"),
        ("pytest && `id`", "ask"),
        ("pytest && (id)", "ask"),
        ("pytest && { id; }", "ask"),
        ("! pytest && pytest", "ask"),
        ("pytest && A=b pytest", "ask"),
        ("pytest\npwd", "allow"),
        ("pytest | tail a.txt", "ask"),
        ("pytest | grep x a.txt", "ask"),
        ("pytest | sort -o f", "ask"),
        ("tail | pytest", "ask"),
        ("pytest\nmake", "ask"),
        ("pytest &&", "ask"),
        ("; pytest", "ask"),
        ("pytest && eval id", "ask"),
        # nothing of ours in it
        ("ls | head", "ask"),
        ("ls | xargs rm", "ask"),
    ],
)
def test_commands_in_a_row_are_allowed_if_each_of_them_is(command: str, verdict: str) -> None:
    assert OURS.decide(command, folder="/tmp").verdict == verdict, OURS.decide(command)


COMMITS = CommandRules.standard(
    patterns=["git commit *", "git add *"], deny=["sudo"], compound=True, search_path="/usr/bin:/bin"
)


@pytest.mark.table
@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ('git commit -m "Subject\n\n- one; two | three\n\t- four & more"', "allow"),
        ("git commit -m 'Subject\n\nRun `x` or $(y) for $1'", "allow"),
        ("git add a.py && git commit -m 'a\nb' && git status", "allow"),
        ("git commit -m 'a\nsudo is not used any more'", "allow"),
        ("git commit -F - <<EOF\nSubject\n\nit's; rm -rf x\nEOF", "allow"),
        ("git commit -F - <<'EOF'\nRun `x` or $(y)\nEOF\ngit status", "allow"),
        ("git commit -F - <<-EOF\n\tSubject\n\tEOF", "allow"),
        ("git commit -m 'a\nb' < /dev/null", "allow"),
        # what bash replaces, in quotes and in a here-document
        *[(f'git commit -m "a\n{text}"', "ask") for text in ("$(touch x)", "`touch x`", "$HOME", "${x}", "$((1))")],
        *[(f"git commit -F - <<EOF\n{text}\nEOF", "ask") for text in ("$(touch x)", "`x`", "$HOME", "${x}", "\\$(x)")],
        # another command behind it, and another place for what goes in or out
        ('git commit -m "a\nb"; rm -rf x', "ask"),
        ("git commit -m 'a\nb'\nrm -rf x", "ask"),
        ("git commit -m 'a\nb' | sh", "ask"),
        ("git commit -m 'a\nb' > f", "ask"),
        ("git commit -F - <<EOF; rm -rf x\na\nEOF", "ask"),
        ("git commit -F - <<EOF | sh\nrm -rf x\nEOF", "ask"),
        ("git commit -F - <<EOF > f\na\nEOF", "ask"),
        ("git commit -F - <<EOF\na\nEOF\nrm -rf x", "ask"),
        ("git commit -F - <<'EOF'\na\nEOF \nrm -rf x\nEOF", "allow"),  # the end of a document is a whole line
        ("git commit -F - <<EOF\na", "ask"),
        ("git commit -F - < secret.txt", "ask"),
        ("git commit -F - <<EOF < secret.txt\na\nEOF", "ask"),
        ("git commit -F - <<< a", "ask"),
        ("git commit -F - <<EOF -m 'a\nEOF\nb'\nEOF", "ask"),
        ("git commit -F - <<EOF\na\nEOF\nsudo x", "deny"),
    ],
)
def test_a_rule_covers_texts_of_several_lines_and_nothing_that_bash_would_replace(command: str, verdict: str) -> None:
    assert COMMITS.decide(command, folder="/tmp").verdict == verdict, COMMITS.decide(command).reason


def test_commands_in_a_row_are_asked_about_unless_told_otherwise() -> None:
    assert CommandRules(allow=["pytest"]).decide("pytest && pytest").verdict == "ask"
    rules = CommandRules.standard(allow=["pytest"], search_path=SYSTEM)
    allowed = ["pytest 2>&1 | tail -5", "ls && pytest", "pytest | grep -c x | cat"]
    asked = ["pytest && cat a.txt", "pytest | tail a.txt", "pytest; ls", "pytest && pytest", "cd / && pytest"]
    assert [rules.decide(command, folder="/tmp").verdict for command in allowed] == ["allow"] * len(allowed)
    assert [rules.decide(command, folder="/tmp").verdict for command in asked] == ["ask"] * len(asked)


def test_a_link_to_a_program_that_the_model_could_still_make_is_asked_about(planted: Path) -> None:
    (planted / "first").mkdir()
    (planted / "first" / "ls").symlink_to(planted / "work" / "bin" / "later")
    rules = CommandRules.standard(search_path=f"{planted}/first:{planted}/system")
    assert rules.decide("ls", folder=str(planted / "work")).verdict == "ask"
