"""Which commands run unasked, which are asked about, and which are denied."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from swink_agent.approvals.commands.named_commands import named_commands
from swink_agent.approvals.commands.places import Place
from swink_agent.approvals.commands.read_only import READ_ONLY
from swink_agent.approvals.commands.rules import CommandRules, Decision
from swink_agent.approvals.commands.shell_words import NotPlain, Word, plain_words, read_script

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


@pytest.mark.parametrize("command", ["ls 'a\nb'", 'ls "a\nb"', "ls 'a\tb'"])
def test_a_text_of_several_lines_is_covered_by_rules_of_a_user_alone(command: str) -> None:
    with pytest.raises(NotPlain):
        plain_words(command)
    assert verdict(command) == "ask"
    assert verdict(command, CommandRules(allow=["ls"])) == "allow"


# No plain words, and yet nothing but commands that read.
JOINED = {
    *("ls; id", "ls;id", "ls && id", "ls || id", "ls | id", "ls 2>&1", "ls < f", "ls *", "ls ?", "ls !", "ls !!"),
    *('ls "!x"', "ls\nid", "ls\n", "\nls", "ls \\\nid", "ls # x"),
}


@pytest.mark.table
@pytest.mark.parametrize("command", sorted(JOINED))
def test_joined_commands_that_each_read_are_allowed(command: str) -> None:
    assert verdict(command) == "allow"


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
        ("sleep 200", "'sleep' is asked about: it may wait for longer than 99 seconds"),
        ("sleep 1?", "'sleep' is asked about: it may wait for longer than 99 seconds"),
        ("sort *", "'sort' is asked about: * may become an option"),
        ("A=b ls", "the command is not a plain one: it begins with the assignment A=b"),
        ("ls 'a\nb'", "'ls' is asked about: a word of it has a tab or several lines"),
        ("ls\nmake", "no rule allows 'make'"),
        ("time ls", "the command is not a plain one: time is a keyword of the shell"),
        ("ls '\u202e'", "the command is not a plain one: it has the character \\u{202e}, which is not plain"),
        ("npm install", "no rule allows 'npm install'"),
        ("find . -delete", "'find' is asked about: -delete is not among its options that only read"),
        ("cat ../secret", "'cat' is asked about: ../secret leads out of the folder"),
    ],
)
def test_the_reason_says_what_was_found(command: str, reason: str) -> None:
    assert STANDARD.decide(command, folder="/home/me/project") == Decision("ask", reason)


@pytest.mark.table
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ls $?</dev/null", [["ls", "0"]]),
        ("for i in 2; do ls $i>/dev/null; done", [["ls", "2"]]),
        ("for f in a b; do ls x$f ${f}y; done", [["ls", "xa", "ay"], ["ls", "xb", "by"]]),
        ('for f in a\ndo\n ls "$f" # c\ndone | wc -l', [["ls", "a"], ["wc", "-l"]]),
        ("cat <<'E' |\n$(x) `y` ' \nE\n wc; ls", [["cat"], ["wc"], ["ls"]]),
        ("ls a\\\nb \\\n c", [["ls", "ab", "c"]]),
        ('ls !x "!y" # it\'s', [["ls", "!x", "!y"]]),
        ("ls a#b ''#c x# #d", [["ls", "a#b", "#c", "x#"]]),
        ("ls 'a\n$(b)' \"c\n\td\"\nls", [["ls", "a\n$(b)", "c\n\td"], ["ls"]]),
        ("ls <<E 'a'\nb\nE\nls", [["ls", "a"], ["ls"]]),
    ],
)
def test_a_script_is_read_as_bash_reads_it(command: str, words: list[list[str]]) -> None:
    parts = [part for pipeline in read_script(command) for part in pipeline.commands]
    assert [[word.text for word in part.words] for part in parts] == words


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        *["for f in a; do ls $fE; done", "for f in a; do ls $g; done", "ls $f", "ls 2\\\n>/dev/null"],
        *["for _ in a; do ls $_; done", "for _ in a; do ls; done"],
        *["for f in a; do ls $f\\\nb; done", "ls &\\\n& ls", "ls |\\\n| ls", "cat <<E\\\nF\nx\nEF\n"],
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
        *["ls\nrm x", "(rm x)", "{ rm x; }", "echo $(rm x)", 'echo "a $(rm x) b"', "echo `rm x`", 'echo "`rm x`"'],
        *["cat <(rm x)", "A=b rm x", "if true; then rm x; fi", "! rm x", "while rm x; do :; done", "ls > f; rm x"],
        *["rm\\\n x", "$'rm' x", "env rm x", "env -i A=b rm x", "xargs rm", "sudo -u me rm x", "nohup rm x &"],
        *["timeout 5 rm x", "find . -exec rm {} +", "bash -c 'rm x'", 'sh -c "ls; rm x"'],
        *["bash -c \"bash -c 'rm x'\"", "eval 'rm x'", "bash <<E\nrm x\nE"],
        # redirections in front and between
        *[">f rm x", "> f rm x", "2>f rm x", "2>&1 rm x", "&>f rm x", ">>f rm x", "<f rm x", "<<<f rm x", ">|f rm x"],
        *["<f >g 2>&1 rm x", "A=b >f rm x", ">f A=b rm x", "ls >f; >g rm x", "ls 2>&1 | >f rm x", "<(ls) rm x"],
        # groups with a name, keywords with options, and other ways to write a name
        *["f() { rm x; }", "function f { rm x; }", "coproc c { rm x; }", "time -p rm x", "case a in a) rm x;; esac"],
        *["for a in b; do rm x; done", "until rm x; do :; done", "$'\\x72m' x", "$'\\162m' x", "r$''m x", "{rm,x}"],
        *["rm$IFS-x", "rm${IFS}x", "/bin/r? x", "r* x", "/b*/rm x", '"rm" x', "r\\m x", "busybox rm x", "rm.exe x"],
        # what runs others
        *["command rm x", "command -p rm x", "builtin rm x", "exec rm x", "exec -a ls rm x", "nice -n 5 rm x"],
        *["strace -f rm x", "setsid rm x", "stdbuf -o0 rm x", "flock f rm x", "doas rm x", "watch rm x"],
        *["env -S 'rm x'", "env -S'rm x'", "parallel rm ::: x", "ls | xargs -I{} sh -c 'rm {}'", "trap 'rm x' EXIT"],
        *[
            "bash5 -c 'rm x'",
            "zsh -c 'rm x'",
            "fish -c 'rm x'",
            "echo rm x | bash",
            "printf 'rm x' | sh",
            "sh <<< 'rm x'",
        ],
        *[
            "find . $how rm x",
            "find . $(echo -exec) rm x",
            "find . `echo -exec` rm x",
            "find . -e*c rm x",
            "find . -ok rm {} +",
            "find . '-ex'ec rm {} +",
            "find . {-exec,rm} {} +",
            "find . -name x -execdir nice rm {} +",
            "command -v ls; rm x",
            'command -v "$(rm x)"',
            "command -p rm x",
            "command $how rm x",
            "command -v ls && command rm x",
            "git bisect run rm x",
            "git submodule foreach 'rm x'",
            "git rebase --exec 'rm x'",
            "git -c alias.a='!rm x' a",
        ],
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
        *[
            "uv run rm x",
            "uv run --with y rm x",
            "uvx rm x",
            "uv tool run rm x",
            "npx rm x",
            "npx -y rm x",
            "bunx rm x",
        ],
        *["poetry run rm x", "pipx run rm x", "pnpm exec rm x", "pnpm dlx rm x", "hatch run rm x", "pdm run rm x"],
        *["bundle exec rm x", "conda run -n e rm x", "mamba run rm x", "npm exec -- rm x"],
        *[
            "npm x rm x",
            "yarn exec rm x",
            "yarn dlx rm x",
            "bun x rm x",
            "pipenv run rm x",
            "rye run rm x",
            "pixi run rm x",
        ],
        *["env rm x", "nice rm x", "timeout 5 rm x", "xargs rm", "sudo rm x", "doas rm x", "command rm x", "exec rm x"],
        *["nohup rm x", "time rm x", "setsid rm x", "stdbuf -oL rm x", "busybox rm x", "direnv exec . rm x"],
        *["docker run -it a rm x", "podman exec c rm x", "kubectl exec p -- rm x", "mise exec -- rm x", "nix run rm x"],
        *["tmux new-session -d 'rm x'", "hyperfine 'rm x'", "npx -c 'rm x'", "nix-shell --run 'rm x'", "chronic rm x"],
        *["yarn run rm x", "volta run rm x", "nvm exec 20 rm x", "tox exec -- rm x", "cross-env A=1 rm x"],
        *[
            "op run -- rm x",
            "doppler run -- rm x",
            "dotenvx run -- rm x",
            "aws-vault exec me -- rm x",
            "ssh-agent rm x",
        ],
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
        # a shell reads it, or something that runs what it reads
        *["bash <<'EOF'\nsudo x\nEOF", "cat <<'EOF' | sh\nsudo x\nEOF", "sh -s <<EOF\nsudo x\nEOF"],
        *["cat <<'EOF' > x.md\nsudo x\nEOF\nbash x.md", "cat <<'EOF' > d/x.md\nsudo x\nEOF\ncd d; . ./x.md"],
        *["cat <<'EOF' > x.md\nsudo x\nEOF\nbash *.md", "cat <<'EOF' > x.md\nsudo x\nEOF\nbash $f"],
        *["cat <<'EOF' > x.md\nsudo x\nEOF\nbash < x.md", "cat <<'EOF' > x.md\nsudo x\nEOF\nhead x.md | bash"],
        *["{ cat <<'EOF' > x.md; cat x.md; } | sh\nsudo x\nEOF", "cat <<'EOF' > x.md\nsudo x\nEOF\nbash <(cat ./x.md)"],
        *["cat <<'EOF' > x.md\nsudo x\nEOF\ncat *.md | sh", "cat <<'EOF' > x.md\nsudo x\nEOF\nmv x.md y; sh y"],
        *["cat <<'EOF' | tee x.md | bash\nsudo x\nEOF", "tee x.md <<'EOF' | bash\nsudo x\nEOF"],
        *["cat <<'EOF' > x.md > x\nsudo x\nEOF\nbash x", "tee x.md x <<'EOF'\nsudo x\nEOF\nbash x"],
        *["bash > x.md <<'EOF'\nsudo x\nEOF", "cat <<'EOF' > >(bash) > x.md\nsudo x\nEOF"],
        *["cat <<'EOF' > x.sh\nsudo x\nEOF\nbash x.sh", "ssh host <<'EOF'\nsudo x\nEOF", "at now <<'EOF'\nsudo x\nEOF"],
        *["env bash <<'EOF'\nsudo x\nEOF", "xargs <<'EOF'\nsudo x\nEOF", "uv run bash <<'EOF'\nsudo x\nEOF"],
        *["docker exec -i c sh <<'EOF'\nsudo x\nEOF", "source /dev/stdin <<'EOF'\nsudo x\nEOF"],
        *["cat <<'EOF' > x.sh\nsudo x\nEOF\nchmod +x x.sh && ./x.sh", ". /dev/stdin <<E\nsudo x\nE"],
        # what bash puts into one that is not quoted
        *["cat <<EOF\n$(sudo x)\nEOF", "cat <<EOF\n`sudo x`\nEOF", "cat <<EOF\na $(ls; sudo x) b\nEOF"],
        *["cat <<-EOF\n\t$(sudo x)\n\tEOF", "cat <<EOF\n${a:-$(sudo x)}\nEOF"],
        # it has ended by then, or never began
        *["cat <<'EOF' > n\nx\nEOF\nsudo x", "cat <<'EOF'; sudo x\nx\nEOF", "cat <<'EOF' | sudo x\nx\nEOF"],
        *["cat <<'EOF'\nx\\\nEOF\nsudo x\nEOF", "echo $((1<<2))\nsudo x\n2", "((x=1<<E))\nsudo x\nE"],
        *[
            "a[1<<E ]=3\nsudo x\nE",
            "echo `cat <<E`\nsudo x\nE",
            "echo $(cat <<E)\nsudo x\nE",
            "echo $[1<<2]\nsudo x\n2",
        ],
        *["echo '<<E'\nsudo x\nE", 'echo "<<E"\nsudo x\nE', "echo \\<<E\nsudo x\nE", "# <<E\nsudo x\nE"],
        *["cat <<E${IFS}\nx\nE${IFS}\nsudo x\nE", "cat <<$'E'\nx\nE\nsudo x\n$E", "cat <<<E\nsudo x\nE"],
        *["cat <<'E F'\nx\nE F\nsudo x\nE", "cat <<E\nE\nsudo x\nE", "cat <<-E\n\tE\nsudo x\nE"],
        # a comment opens no quote
        *["# it's\nsudo x", "ls # don't\nsudo x # don't", "ls;# '\nsudo x", 'echo a # "\nsudo "x"'],
        # where a program stands, a pattern is one
        *["su* x", "/usr/bin/* x", "/usr/bin/s?do x", "env /usr/bin/sud? x", "ls\nsu?o x", "!\nsudo x", "! sudo x"],
    ],
)
def test_a_denied_program_is_denied_whatever_stands_around_it(command: str) -> None:
    assert STANDARD.decide(command, folder="/home/me/project").verdict == "deny"


@pytest.mark.table
@pytest.mark.parametrize(
    ("rule", "command"),
    [
        # options of git with and without a value, in any order
        *[
            ("git push", f"git {options} push origin")
            for options in ("-C . --no-pager", "--git-dir x -p", "-p -C . -P")
        ],
        *[("git push", f"git {options} push") for options in ("-c a=b --no-pager", "-C x --no-pager -c a=b -P")],
        # another name of it
        *[("git push", command) for command in ("git -c alias.p=push p", "/usr/lib/git-core/git-push x", "git-push")],
        ("git push --force", "git -c alias.p='push --force' p"),
        # braces
        *[("rm -rf", command) for command in ("rm {-r,-f} x", "rm -{r,f} x", "{rm,-r} -f x", "rm x {-rf,y}")],
        *[("git push", command) for command in ("git {push,origin}", "{git,push} x", "git {-P,push}")],
        # far behind
        ("rm -rf", "rm " + "x " * 300 + "-rf"),
        ("rm -rf", "env rm " + "x " * 300 + "-rf"),
        # a stream with a name
        *[("rm -rf", command) for command in ("{fd}>/dev/null rm -rf x", "{a}<x {b}>&1 rm -rf x")],
        # text that hangs on an option
        *[("rm -rf", command) for command in ("env -vS'rm -rf x'", "env -iS 'rm -rf x'", "env --split='rm -rf x'")],
        *[("rm -rf", command) for command in ("script -c'rm -rf x' f", "flock f --command='rm -rf x'")],
        *[
            ("rm -rf", command)
            for command in ("ssh h -t'rm -rf x'", "watch -n1 'rm -rf x'", "bash --norc -c 'rm -rf x'")
        ],
        *[
            ("rm -rf", f"bash -c '{text}'")
            for text in ("A=1 rm -rf x", "A=b; rm -rf x", "a-b=c; rm -rf x", "-x; rm -rf x")
        ],
        # another name for it, for the shell
        *[("rm -rf", command) for command in ("alias l='rm -rf'; l x", "alias a=b l='rm -rf x'")],
        # what runs the lines that it reads
        *[("rm -rf", f"{reader} <<'E'\na:\n\trm -rf x\nE") for reader in ("make -f -", "gmake -f - a", "just -f -")],
        *[("rm -rf", f"{reader} <<'E'\n!rm -rf x\nE") for reader in ("ed x", "ex x", "sftp -b - h", "ftp h")],
        ("rm -rf", "cat <<'E' > m\na:\n\trm -rf x\nE\nmake -f m"),
        # what starts others
        *[("rm -rf", f"{runner} rm -rf x") for runner in ("fd . -x", "fdfind -X", "watchexec", "gosu me", "tini --")],
        *[
            ("rm -rf", f"{runner} rm -rf x")
            for runner in ("linux64", "gtimeout 5", "proot", "cpulimit -l 9", "dumb-init")
        ],
        ("rm -rf", "/lib64/ld-linux-x86-64.so.2 /bin/rm -rf x"),
        ("rm -rf", "concurrently 'rm -rf x'"),
    ],
)
def test_no_way_of_writing_it_hides_what_is_denied(rule: str, command: str) -> None:
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
        ("echo", "n "),
        ("id", "-u"),
        (" m",),
        ("[", "-f", "a", "]"),
        ("cat", "a"),
    ]


# -- the standard rules --------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        *["ls", "ls -la", "ls -la src tests", "ls --color=never", "cat README.md", "cat -n a.py", "head -n 20 a.py"],
        *["head -20 a.py", "head -n20 a.py", "tail -n +5 a.py", "wc -l a.py b.py", "pwd", "echo hello -x"],
        *["tree -L 2", "sed -n 1,20p a.py", "sed -n '5p' a.py", "sed -n '10,$p' a.py", "sed -n '1,2p;9p' a.py b.py"],
        *["jq .name a.json", "grep -rn foo src", "grep -rnE 'a|b' .", "grep -A3 -B 2 foo a.py"],
        *["grep --include='*.py' -r foo .", "grep -3 x f", "rg foo", "rg -n 'def \\w+' src", "rg -t py foo"],
        *["rg --files", "rg -g '*.md' foo", "rg -A3 foo", "rg '/api/x' src", "find . -name '*.py'"],
        *["find src -type f -mtime -7 -size +10k", "find . -maxdepth 2 -not -path './.git/*'", "git status"],
        *["git status -s", "git status --porcelain", "git diff", "git diff HEAD~1 --stat", "git diff --cached"],
        *["git log", "git log --oneline -5", "git log -n 3 --format=%H", "git log -p -S foo -- src"],
        *["git show HEAD:a.py", "git branch", "git branch -a", "git branch --show-current", "git branch --list 'f*'"],
        *["git tag", "git tag -l 'v*'", "git blame -L 1,20 a.py", "git ls-files", "git rev-parse HEAD"],
        *["git grep -n foo", "git --version", "git reflog", "python --version", "python3 --version"],
        *["node --version", "date", "date +%Y-%m-%d", "uname -a", "whoami", "id -u", "which python", "du -sh ."],
        *["df -h", "stat a.py", "file a.py", "sha256sum a.py", "diff -u a b", "sort -u a", "nl a"],
        *["cat /usr/share/dict/words", "cat /etc/os-release", "ls /home/me/project/src", "type ls"],
        *["basename /a/b.txt .txt"],
    ],
)
def test_commands_that_only_read_are_allowed(command: str) -> None:
    assert STANDARD.decide(command, folder="/home/me/project").verdict == "allow"


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        # what writes, deletes or runs by an option
        *["find . -exec id +", "find . -exec id \\;", "find . -execdir id +", "find . -ok id +"],
        *["find . -okdir id +", "find . -delete", "find . -fprint f", "find . -fprintf f x", "find . -fprint0 f"],
        *["find . -fls f", "rg --pre id x", "rg --pre=id x", "rg -z x", "rg --search-zip x"],
        *["rg --hostname-bin id x", "rg -e -- --pre=id x", "sort -o f a", "sort -of a", "sort -uo f a"],
        *["sort --output=f a", "sort --outp=f a", "sort --compress-program=id a", "sort -T /tmp a", "tree -o f"],
        *["tree -Io x f", "tree -I x -o f", "diff -l a b", "diff --paginate a b", "file -C -m x", "sed -i s/a/b/ f"],
        *["sed -n 1p -i f", "sed -n '1w f' a", "sed -n wf a", "sed -n '1e id' a", "sed -n s/a/b/e a", "sed wf a"],
        *[
            "sed -n -e wf a",
            "sed -newf a",
            "sed -n",
            "sed -n a.py 1p",
            "sed -n '1,2p;wf' a",
            "sed -ni 1p a",
            "sed -n 1r/etc/x a",
        ],
        *["date -s tomorrow", "date 01011200", "date --set=x", "jq -f x .", "tail -f a", "tail --follow a"],
        *["which -i x", "git -c alias.x=!id x", "git -c core.fsmonitor=id status", "git --exec-path=. status"],
        *["git -C x status", "git -p log", "git --git-dir=x status", "git --work-tree=x diff", "git diff --ext-diff"],
        *["git diff --output=f", "git diff --outp=f", "git log --output f", "git log --show-signature"],
        *["git log --format=%G?", "git show --pretty='%-GK'", "git log -O x", "git grep -O x", "git grep -Oid x"],
        *["git grep --open-files-in-pager=id x", "git blame --contents f a", "git cat-file --textconv x"],
        *["git cat-file --batch", "git status --help", "git help log", "git diff --textconv", "git stash"],
        *["git stash pop", "git tag v1", "git branch new", "git branch -d x", "git branch -D x", "git branch -m x y"],
        *["git branch --list x -d y", "git tag -d v1", "git branch --edit-description", "git reflog expire --all"],
        *["git remote prune x", "git remote add x y", "git config -l", "git tag -s v1", "git tag -v v1", "git push"],
        *["git fetch", "git commit -m x", "git checkout x", "git add .", "git"],
        # programs that run others or write
        *["awk -f x a", "xargs ls", "env ls", "env -i", "tee f", "tar --to-command=id -xf a", "tar xf a", "less a"],
        *["man ls", "vi a", "python -c 1", "python a.py", "python --version -c 1", "python3 -V x", "bash a.sh"],
        *["bash --version -c id", "node a", "npm --version", "cargo --version", "go version", "make", "pip install x"],
        *["uniq a f", "xxd a f", "cp a b", "mkdir a", "timeout 5 ls", "nice ls", "watch ls", "parallel ls", "ssh x"],
        *["curl x", "wget x", "nc x 1", "dd if=a of=b", "printenv -x"],
        # outside of the folder
        *["cat /etc/passwd", "cat ../x", "cat a/../../x", "ls ..", "ls /", "cat /proc/self/environ"],
        *["cat /usr/../etc/passwd", "grep -f/etc/passwd x", "grep --file=/etc/passwd x", "grep -f../x y"],
        *["grep -r x /home/me", "find / -name x", "du -s /home", "cat /home/me/project2/x", "cat //etc/passwd"],
        *["rg x /root", "head -n 5 /etc/shadow", "git diff /etc/passwd /etc/hosts"],
        # other programs of the same name
        *["./ls", "/tmp/ls", "bin/ls", "../ls", "/bin/ls", "/usr/bin/git status"],
    ],
)
def test_commands_that_can_do_more_are_asked_about(command: str) -> None:
    assert verdict(command) == "ask"


def test_no_standard_rule_names_a_program_that_runs_others() -> None:
    programs = {prefix.split()[0] for prefix in READ_ONLY}
    assert READ_ONLY["env"].operands is None, "env alone prints, and with a word it runs that"
    runners = {"xargs", "sh", "tee", "less", "man", "vi", "make", "npm", "cargo", "sudo", "ssh", "docker"}
    assert {prefix for prefix in READ_ONLY if prefix.split()[0] in {"bash", "python", "python3", "node"}} == {
        *(f"{name} --version" for name in ("bash", "python", "python3", "node")),
        *("python -V", "python3 -V", "node -v"),
    }
    assert programs.isdisjoint(runners)


def test_no_word_with_a_dash_passes_that_is_not_named() -> None:
    """Also not behind `--`, which may be the value of the option before it."""
    place = Place("/home/me/project")
    for prefix, check in READ_ONLY.items():
        if check.harmless:
            continue
        first = {"sed": ("1p",), "awk": ("1",), "printf": ("%s",), "tar": ("tf", "a")}.get(prefix, ())
        for word in ("--exec", "--output=x", "-\u00e9", "--pre", "-=", "--help=x=--pre"):
            if word.partition("=")[0] not in check.options and (prefix, word) != ("printf", "-="):
                words = tuple(map(Word, (*first, "--", word)))
                assert check.problem(words, place) is not None, (prefix, word)


def test_own_rules_come_on_top_of_the_standard_ones() -> None:
    rules = CommandRules.standard(allow=["npm test"], deny=["git log"], search_path=SYSTEM)
    commands = ["npm test", "ls", "git log", "sudo ls"]
    assert [verdict(command, rules) for command in commands] == ["allow", "allow", "deny", "ask"]


# -- where the program lies ----------------------------------------------------------------------------------


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    for folder in ("work/bin", "system", "shims"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("work/bin/ls", "system/ls", "system/cat", "shims/jq"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "system/wc").symlink_to(tmp_path / "work/bin/ls")
    return tmp_path


def test_a_program_that_the_model_can_write_is_asked_about(planted: Path) -> None:
    work = str(planted / "work")
    rules = CommandRules.standard(allow=["ls -x"], search_path=f"{work}/bin:{planted}/system")
    assert rules.decide("ls", folder=work) == Decision(
        "ask", f"'ls' is asked about: ls is {work}/bin/ls, in a folder that the model can write"
    )
    assert rules.decide("ls").verdict == "allow"  # nobody said what the model can write
    assert rules.decide("cat a", folder=work).verdict == "allow"
    assert rules.decide("wc a", folder=work).verdict == "ask"  # a link into the folder
    assert rules.decide("nl a", folder=work).verdict == "allow"  # not there, so bash will not find it either
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
    assert "lets files of the folder choose what runs" in rules.decide("jq .").reason


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
    rules = CommandRules.standard(deny=["sudo", "rm -rf", "git push"], search_path=SYSTEM)
    command = start + part * (120_000 // len(part))
    began = time.process_time()
    decision = rules.decide(command)
    words = ("a", "rm ", "'rm x' ", "'ls;rm' ", "'", '"', "\\", "bash -c ", "=", "-r ")
    # Very many words are asked about, whatever they are.
    is_many = part in ("rm ", "'rm x' ", "'ls;rm' ", "bash -c ", "-r ")
    assert (decision.verdict == "allow") == (start == "ls " and part in words and not is_many)
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
        # what reads here reads elsewhere behind cd
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
        ("pytest\nid", "allow"),
        ("pytest\nmake", "ask"),
        ("pytest &&", "ask"),
        ("; pytest", "ask"),
        ("pytest && eval id", "ask"),
        # nothing of ours in it
        ("ls | head", "allow"),
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
        ("cat <<EOF | git commit -F -\nSubject\nEOF", "allow"),
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
        # the table of commands that only read knows words of one line
        ("sed -n '1p\nw x' a.txt", "ask"),
        ("awk '{print}\n{system(\"x\")}' a.txt", "ask"),
        ("cat 'a\nb'", "ask"),
    ],
)
def test_a_rule_covers_texts_of_several_lines_and_nothing_that_bash_would_replace(command: str, verdict: str) -> None:
    assert COMMITS.decide(command, folder="/tmp").verdict == verdict, COMMITS.decide(command).reason


def test_commands_in_a_row_are_asked_about_unless_told_otherwise() -> None:
    assert CommandRules(allow=["pytest"]).decide("pytest && pytest").verdict == "ask"
    rules = CommandRules.standard(allow=["pytest"], search_path=SYSTEM)
    allowed = ["pytest 2>&1 | tail -5", "ls && pytest", "pytest | grep -c x | cat", "pytest; echo $?"]
    asked = ["pytest && cat a.txt", "pytest | tail a.txt", "pytest; ls", "pytest && pytest", "cd / && pytest"]
    assert [rules.decide(command, folder="/tmp").verdict for command in allowed] == ["allow"] * len(allowed)
    assert [rules.decide(command, folder="/tmp").verdict for command in asked] == ["ask"] * len(asked)


# -- options and programs that hide behind others ---------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        # awk: what is the program depends on which words are options
        """awk -- 'BEGIN{system("touch ran")}' '{print}'""",
        """awk -F: -- 'BEGIN{system("touch ran")}' '{print}'""",
        """awk - 'BEGIN{system("touch ran")}' '{print}'""",
        """awk --version 'BEGIN{system("touch ran")}' '{print}'""",
        "awk -F",
        "awk -v",
        # sed: one that does not sort its words takes the first operand for the script
        "sed 'w ran' -e 1p",
        "sed 'w ran' -n -e 1p",
        "sed -- 'w ran' -e 1p",
        # a bracket ends where POSIX has it end
        "sed 's/[[:alpha:]/..]/p;s#a#;touch ran;/e#' f",
        "sed 's/[[=a=]/..]/p;s#a#;touch ran;/e#' f",
        "sed 's/[[.a.]/..]/p;s#a#;touch ran;/e#' f",
        "sed -n '/[[:alpha:]/..]/p;s#a#;touch ran;/e#p' f",
        "sed 's/[]/..]/p;s#a#;touch ran;/e#' f",
        "sed 's/[^]/..]/p;s#a#;touch ran;/e#' f",
        "sed 's/[:alpha:]/x/' f",
        "sed 's/[[:alpha]/x/' f",
        """awk '/[[:alpha:]/ "]/ { system("touch ran"); } /"/ { }' f""",
        """awk '/[[=a=]/ "]/ { system("touch ran"); } /"/ { }' f""",
        """awk '/[[.a.]/ "]/ { system("touch ran"); } /"/ { }' f""",
        """awk '/[]/ "]/ { system("touch ran"); } /"/ { }' f""",
        """awk '/[^]/ "]/ { system("touch ran"); } /"/ { }' f""",
        # an archive with a colon in its name is asked of another host, also one that a pattern finds
        *["tar tf a*", "tar tf *.tar", "tar tf a:b", "tar t -f a", "tar -tf a -- --checkpoint-action=exec=id"],
        # unzip has patterns of its own
        *["unzip -l 'a*'", "unzip -l 'a?.zip'", "unzip -l '[a]'"],
        # a signature is checked by another program
        *["git tag --list --sort=signature", "git branch --list --sort=-signature:grade"],
        # the user's own settings may hold tokens
        *["git config --get user.name", "git config -l", "git config user.name", "git config --global --list"],
        *["git config --get-all x.y", "git config --get-regexp .", "git config list", "git config get user.name"],
        *["git var GIT_AUTHOR_IDENT", "git var -l", "git credential fill", "git credential-store get"],
        *["git ls-remote --get-url", "git remote show origin", "git help -c"],
        # gawk opens these on the network; some awk has a function of that name
        *["awk '{print}' /inet/tcp/0/example.org/80", """awk 'BEGIN { extension ("./x.so", "y") }'"""],
        # a name of a host is looked up
        *[
            "ss -r",
            "ss -tr",
            "ss dst example.org",
            "ss 'dst = example.org'",
            "ss -tn src ab.cd",
            "netstat -a",
            "netstat -tr",
        ],
        # ps reads its words once more, as BSD has it, where there is no user called x
        *["ps -e -aux", "ps -aux -e", "ps -ef -auxww", "ps --sort=pid -e -aux"],
        # bash reads the text of a here-document once, however often a loop goes round
        "for f in a b; do cat <<E; done\nx\nE\ntouch ran\nE",
        "for f in a b; do for g in 1 2; do cat <<E; done; done\nx\nE\ntouch ran\nE\ny\nE\nz\nE",
        "cat <<E; for f in a b; do pwd\nx\nE\ndone",
    ],
)
def test_no_form_of_options_hides_what_runs(command: str) -> None:
    assert verdict(command) == "ask"


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        *["awk -- '{print $1}' f", "awk -F: '{print}' f", "awk -F ' ' -v n=1 '{print n}' f", "awk -v x=y '{print x}'"],
        *[
            "sed -n '/[[:alpha:]]/p' f",
            "sed 's/[^[:space:]]*$//' f",
            "sed -e 's/[]]/x/' -e 's/[^]]/x/g' f",
            "sed -n 1p f",
        ],
        *["awk '/[[:digit:]]+/ {print}' f", "awk '/[]a]/' f", "sed 's/[[:alnum:]_.-]/x/' f", "sed 's/[[=a=]]/x/' f"],
        *["tar tf a.tar", "tar -tzf a.tgz b", "unzip -l a.zip", "zcat a.gz", "git remote -v"],
        *["git tag --list --sort=-version:refname", "git branch --list --sort=-committerdate"],
        *["ps -aux", "ps -aux --sort=pid", "ps -ef", "ps -eo pid,args"],
        *["ss -tlnp", "ss -tn state established", "ss -tn 'sport = :22'", "ss -tn dst 127.0.0.1", "netstat -tulpn"],
        *["cat a#b", "find . ! -name '*.py'", 'echo "done!"', "grep -n ! f", "ls # it's all"],
        *["netstat -rn", "for f in a b; do\ncat <<E\nx\nE\ndone", "cat <<E\nx\nE\nfor f in a; do pwd; done"],
    ],
)
def test_the_same_programs_still_read_unasked(command: str) -> None:
    assert verdict(command) == "allow"


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A folder without links, in which a file names one that lies outside."""
    (tmp_path / "secret").write_text("canary\n")
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("5", "list"):
        (folder / name).write_text(f"main {tmp_path}/secret\n")
    return folder


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        # they print what is in a file: `-l` and `--files` are values here, or names
        *["rg -rl main list", "grep -el list", "rg -el list", "grep -e -l list", "rg -g --files main list"],
        *[
            "rg --glob --files main list",
            "rg -gl main list",
            "rg -t -l main list",
            "grep -- -l list",
            "grep main -- -l list",
            "grep --include -l main list",
        ],
        # they read a file in place of what is piped
        *["find . -name list | head 5", "find . | head -1 5", "find . | tail -1 5", "find . | grep main -r"],
        # their messages name what is not there
        *["grep -l x 'y @OUT@/secret z' 2>&1", "find . 'y @OUT@/secret z' 2>&1", "rg -l '( @OUT@/secret ' 2>&1"],
        "find . | grep '[ @OUT@/secret' 2>&1",
    ],
)
def test_xargs_is_given_nothing_but_names_of_files(listed: Path, command: str) -> None:
    assert verdict(command.replace("@OUT@", str(listed.parent)) + " | xargs cat", folder=str(listed)) == "ask"


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        *["grep -rle main .", "grep -l -e main -r .", "rg -l main -g '*.py'", "rg --files -t py"],
        *["rg -l main -tpy", "rg -l --type py main", "grep -rl main --include '*.py' ."],
        *[
            "find . -name 5 | head -n 3",
            "find . | sort -u | tail -2",
            "grep -l main * | grep -v test",
            "find . 2>/dev/null",
        ],
    ],
)
def test_names_of_files_are_passed_on_by_xargs(listed: Path, command: str) -> None:
    assert verdict(f"{command} | xargs cat", folder=str(listed)) == "allow"


def test_a_pattern_finds_names_by_characters_and_by_bytes(tmp_path: Path) -> None:
    """In the locale C a letter with an accent is two characters to bash."""
    (tmp_path / "secret").write_text("canary\n")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "\u00e9").symlink_to(tmp_path / "secret")
    assert [verdict(command, folder=str(folder)) for command in ("cat ?", "cat ??", "head -5 ??")] == ["ask"] * 3
    assert verdict("cat ?x", folder=str(folder)) == "allow"


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A folder with links out of it."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("x")
    folder = tmp_path / "work"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "out").symlink_to(tmp_path / "secret")
    for name in ("notes.gz", "data.Z", "bundle.zip", "old.tgz.Z"):
        (folder / name).symlink_to(tmp_path / "secret" / "key")
    (folder / "plain.gz").write_text("")
    return folder


@pytest.mark.table
@pytest.mark.parametrize(
    "command",
    [
        *["rg -0L note .", "rg -.L note", "rg -.0nL note", "rg -L note", "rg -0 -L note", "ls -1LR .", "ls -1L sub"],
        *["ls -LR", "grep -0R x .", "grep -2R x .", "grep -iR x .", "du -0L", "du -hL .", "tree -l", "tree -al"],
        *["find -L . -name x", "find . -follow", "rg --follow x"],
        # these put an ending to a name that is not there
        *["zcat notes", "zcat ./notes", "zcat data", "unzip -l bundle", "zcat not*", "zcat old.tgz", "zcat notes.gz"],
    ],
)
def test_links_are_not_followed_out_of_the_folder_by_any_spelling(linked: Path, command: str) -> None:
    assert verdict(command, folder=str(linked)) == "ask"


@pytest.mark.parametrize(
    "command", ["rg -0 note .", "ls -1R .", "zcat plain.gz", "zcat plain", "zcat *in.gz", "rg -.n x"]
)
def test_commands_that_follow_no_link_out_are_allowed(linked: Path, command: str) -> None:
    assert verdict(command, folder=str(linked)) == "allow"


@pytest.mark.parametrize(
    ("command", "helper"),
    [
        *[("tar tzf a.tgz", "gzip"), ("tar tf a.tar", "xz"), ("tar tJf a", "xz"), ("tar tjf a", "bzip2")],
        *[("tar tf a.tar", "zstd"), ("zcat a.gz", "gzip"), ("dpkg -l", "dpkg-query")],
    ],
)
def test_a_helper_that_a_program_starts_is_the_system_s_own(tmp_path: Path, command: str, helper: str) -> None:
    work = tmp_path / "work"
    (work / "bin").mkdir(parents=True)
    rules = CommandRules.standard(search_path=f"{work}/bin:{SYSTEM}")
    assert rules.decide(command, folder=str(work)).verdict == "allow"
    (work / "bin" / helper).write_text("")
    (work / "bin" / helper).chmod(0o755)
    decision = rules.decide(command, folder=str(work))
    assert decision.verdict == "ask"
    assert f"{helper} is {work}/bin/{helper}, in a folder that the model can write" in decision.reason


def test_a_link_to_a_program_that_the_model_could_still_make_is_asked_about(planted: Path) -> None:
    (planted / "first").mkdir()
    (planted / "first" / "ls").symlink_to(planted / "work" / "bin" / "later")
    rules = CommandRules.standard(search_path=f"{planted}/first:{planted}/system")
    assert rules.decide("ls", folder=str(planted / "work")).verdict == "ask"


def test_addresses_of_remotes_with_a_password_are_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work / ".git" / "objects", work / ".git" / "refs"):
        folder.mkdir(parents=True)
    (work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    commands = ("git remote -v", "git remote get-url origin", "git remote --verbose")
    config, own = work / ".git" / "config", home / ".gitconfig"
    plain = '[remote "origin"]\n\turl = https://example.org/a.git\n'
    for text, settings, wanted in (
        (plain, "", "allow"),
        ('[remote "origin"]\n\turl = git@example.org:a.git\n', "", "allow"),
        ('[remote "origin"]\n\turl = https://me:secret@example.org/a.git\n', "", "ask"),
        ('[remote "origin"]\n\turl = https://ghp_secret@example.org/a.git\n', "", "ask"),
        (plain, '[url "https://me:secret@example.org/"]\n\tinsteadOf = https://example.org/\n', "ask"),
        (plain, '[url "https://secret@example.org/"]\n\tpushInsteadOf = https://example.org/\n', "ask"),
        (plain, '[url "git@example.org:"]\n\tinsteadOf = https://example.org/\n', "allow"),
    ):
        config.write_text(text)
        own.write_text(settings)
        assert [verdict(command, folder=str(work)) for command in commands] == [wanted] * 3, (text, settings)
        assert verdict("git remote", folder=str(work)) == "allow"  # names alone


def test_a_helper_of_git_s_that_your_settings_name_is_the_system_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work / "bin", work / ".git" / "objects", work / ".git" / "refs"):
        folder.mkdir(parents=True)
    (work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (home / ".gitconfig").write_text('[diff "pdf"]\n\ttextconv = readpdf -q\n')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    rules = CommandRules.standard(search_path=f"{work}/bin:{SYSTEM}")
    assert rules.decide("git diff", folder=str(work)).verdict == "allow"
    (work / "bin" / "readpdf").write_text("")
    (work / "bin" / "readpdf").chmod(0o755)
    assert rules.decide("git diff", folder=str(work)).verdict == "ask"
