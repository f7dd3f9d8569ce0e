"""When a person is asked, what about, and how long an answer applies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentToolResult,
    Approve,
    ApproveWith,
    Defer,
    PendingCall,
    ProposedCall,
    Reject,
    ToolContext,
    extract_text,
)
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion, Approvals, SessionTrust
from swink_agent.approvals.commands.rules import CommandRules
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.testing import call, check_events, collect, scripted, text

HERE = {"folder": "/home/ada/project", "sandbox": "bubblewrap:1234"}
CONFINED = {**HERE, "backend": "landlock"}
READING = {**CONFINED, "reads_only": True}
RULES = CommandRules.standard(search_path="/usr/bin:/bin")


def bash(command: Any, scope: dict[str, Any] = HERE, **more: Any) -> ProposedCall:
    return ProposedCall("call-1", "bash", {"command": command, **more}, scope)


def other(name: str = "write_file", scope: dict[str, Any] = HERE, **arguments: Any) -> ProposedCall:
    return ProposedCall("call-1", name, arguments, scope)


class Person:
    """Gives the prepared answers and remembers the questions."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.questions: list[ApprovalQuestion] = []

    def __call__(self, question: ApprovalQuestion) -> Any:
        self.questions.append(question)
        answer = self.answers.pop(0)
        return answer(question) if callable(answer) else answer

    @property
    def why(self) -> str:
        return self.questions[-1].why


def approvals(*answers: Any, **options: Any) -> tuple[Approvals, Person]:
    person = Person(*answers)
    return Approvals(person, rules=options.pop("rules", RULES), **options), person


# -- modes ---------------------------------------------------------------------------------------------------


async def test_smart_asks_only_about_what_no_rule_allows() -> None:
    approve, person = approvals("once", "no")
    assert await approve(bash("git status")) == Approve()
    assert await approve(bash("ls -la", timeout=5)) == Approve()
    assert await approve(bash("ls -la", background=True)) == Approve()
    assert person.questions == []
    assert await approve(bash("npm test")) == Approve()
    assert await approve(bash("npm test")) == Reject("the user said no")
    assert [question.why for question in person.questions] == ["no rule allows 'npm test'"] * 2


async def test_the_question_may_be_answered_later() -> None:
    approve, _ = approvals(Defer("ask Ada"))
    assert await approve(bash("npm test")) == Defer("ask Ada")


async def test_ask_asks_about_every_call_and_offers_no_trust() -> None:
    approve, person = approvals("once", "session_tool", "session_prefix", "no", mode="ask")
    for answer in (Approve(), Approve(), Approve(), Reject("the user said no")):
        assert await approve(bash("git status")) == answer
    assert {question.choices for question in person.questions} == {(ApprovalChoice.ONCE, ApprovalChoice.NO)}
    assert repr(approve.trust) == "<SessionTrust 0 tools, 0 command prefixes>"


async def test_all_approves_every_call_and_none_rejects_every_call() -> None:
    approve, person = approvals(mode="all")
    assert await approve(bash("curl x | sh")) == Approve()
    assert await approve(other(path="a", content="b")) == Approve()
    approve.mode = "none"
    for request in (bash("ls"), other(path="a", content="b")):
        assert await approve(request) == Reject(
            "nothing that needs approval may run here (approvals are set to none); do without it"
        )
    assert person.questions == []


@pytest.mark.parametrize("mode", ["smart", "auto", "ask", "all"])
async def test_denied_calls_are_denied_in_every_mode_and_despite_trust(mode: Any) -> None:
    approve, person = approvals(mode=mode, rules=CommandRules(allow=["rm"], deny=["rm -rf"]))
    approve.trust.trust_tool("bash", scope=HERE)
    approve.trust.trust_command("rm", scope=HERE)
    for command in ("rm -rf x", "ls; rm -f -r x", "env rm -rf x"):
        assert await approve(bash(command)) == Reject("the rule 'rm -rf' denies it")
    assert person.questions == []


async def test_without_anybody_to_ask_only_the_rules_and_trust_let_pass() -> None:
    approve = Approvals(rules=RULES)
    assert await approve(bash("git status")) == Approve()
    assert await approve(bash("npm test")) == Reject(
        "no rule allows 'npm test', and no one can answer a question here; use a command that the rules allow, alone "
        "and with plain words, or another tool"
    )
    assert await approve(other(path="a", content="b")) == Reject(
        "write_file needs approval, and no one can answer a question here; work without it, and say in the answer what "
        "is left to do"
    )
    approve.trust.trust_command("npm test", scope=HERE)
    assert await approve(bash("npm test -- x")) == Approve()
    approve.mode = "ask"
    assert isinstance(await approve(bash("git status")), Reject)


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(
        ValueError, match="the mode of Approvals must be one of none, ask, smart, auto, all, not 'yolo'"
    ):
        Approvals(mode="yolo")  # type: ignore[arg-type]
    approve = Approvals()
    with pytest.raises(ValueError, match="must be one of"):
        approve.mode = ""  # type: ignore[assignment]
    assert repr(approve) == "<Approvals smart, asks no one>"


@pytest.mark.parametrize("wrong", [{"calls": ["bash: git *"]}, {"ask": 3}, {"rules": ["git *"]}, {"preview": "diff"}])
def test_an_argument_of_the_wrong_kind_is_refused_when_it_is_given(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(wrong))} must be"):
        Approvals(**wrong)


def test_objects_are_not_shared_by_accident() -> None:
    assert Approvals().trust is not Approvals().trust


@pytest.mark.table
@pytest.mark.parametrize(
    "request_",
    [
        bash("ls", cwd="/etc"),
        bash("ls", sandbox="off"),
        bash("ls", env={"PATH": "."}),
        bash(None),
        bash(["ls"]),
        bash(7),
        ProposedCall("1", "bash", {"cmd": "ls"}, HERE),
        ProposedCall("1", "bash", {}, HERE),
        ProposedCall("1", "Bash", {"command": "ls"}, HERE),
        ProposedCall("1", "bash\u200b", {"command": "ls"}, HERE),
        ProposedCall("1", "shell", {"command": "ls"}, HERE),
        bash("cat /home/me/x"),
        bash("ls\nmake"),
        bash("l\u0455"),
    ],
)
async def test_commands_beyond_the_allowed_one_are_asked_about(request_: ProposedCall) -> None:
    approve, person = approvals("no")
    assert await approve(request_) == Reject("the user said no")
    assert len(person.questions) == 1


async def test_other_tools_may_take_commands_too() -> None:
    approve, person = approvals("session_prefix", tools={"run": "line"})
    assert await approve(other("run", line="git status")) == Approve()
    assert await approve(other("run", line="go vet")) == Approve()
    assert await approve(other("run", line="go vet -v")) == Approve()
    assert len(person.questions) == 1
    assert await Approvals(rules=RULES, tools={})(bash("ls")) != Approve()


@pytest.mark.parametrize(
    ("mode", "reads_only"), [("smart", True), ("auto", False), ("all", False), ("ask", False), ("none", None)]
)
async def test_a_command_can_only_read_in_smart_and_may_write_in_other_modes(
    mode: Any, reads_only: bool | None
) -> None:
    person = Person("once")
    approve = Approvals(person, mode=mode, rules=RULES)
    answer = await approve(bash("make > log; touch x", scope=READING))
    assert [type(answer), getattr(answer, "reads_only", None)] == [Reject if mode == "none" else Approve, reads_only]
    assert len(person.questions) == (mode == "ask")


@pytest.mark.table
@pytest.mark.parametrize(
    ("scope", "arguments"),
    [
        (CONFINED, {}),
        (CONFINED, {"write": True}),
        ({**READING, "backend": "off"}, {}),
        ({**READING, "backend": "made up"}, {}),
        ({**READING, "reads_only": 1}, {}),
        ({**HERE, "reads_only": True}, {}),
        (READING, {"other": 1}),
        (READING, {"access": {"network": ["example.org"]}}),
    ],
)
async def test_smart_asks_unless_the_scope_names_a_back_end_that_lets_it_only_read(
    scope: dict[str, Any], arguments: dict[str, Any]
) -> None:
    approve, person = approvals("no")
    assert await approve(bash("make", scope=scope, **arguments)) == Reject("the user said no")
    assert len(person.questions) == 1


async def test_rules_and_trust_let_a_command_write_in_smart() -> None:
    approve, person = approvals("session_prefix", rules=CommandRules.standard(allow=["make"]))
    for command in ("make", "go vet", "go vet ./..."):
        answer = await approve(bash(command, scope=CONFINED if command == "go vet" else READING))
        assert (answer, getattr(answer, "reads_only", None)) == (Approve(), False), command
    assert len(person.questions) == 1


async def test_a_deny_rule_holds_for_what_can_only_read() -> None:
    approve, _ = approvals()
    assert await approve(bash("sudo ls", scope=READING)) == Reject("the rule 'sudo' denies it")


async def test_unattended_a_command_that_writes_is_told_what_can_run() -> None:
    approve = Approvals(rules=RULES)
    assert await approve(bash("make", scope=READING)) == Approve()
    assert await approve(bash("make", scope=CONFINED, write=True)) == Reject(
        "no rule allows 'make', and no one can answer a question here; use a command that only reads, without write, "
        "or another tool"
    )


# -- answers -------------------------------------------------------------------------------------------------


async def test_once_is_once() -> None:
    approve, person = approvals("once", ApprovalChoice.ONCE, ApprovalAnswer(ApprovalChoice.ONCE), "no")
    for _ in range(3):
        assert await approve(bash("make")) == Approve()
    assert await approve(bash("make")) == Reject("the user said no")
    assert len(person.questions) == 4


async def test_a_no_may_say_why() -> None:
    approve, _ = approvals(ApprovalAnswer(ApprovalChoice.NO, "use pnpm"))
    assert await approve(bash("npm i")) == Reject("use pnpm")


@pytest.mark.table
@pytest.mark.parametrize("answer", [None, True, False, "yes", "y", "", 1, "ONCE", object, Approve(), ["once"]])
async def test_an_invalid_answer_is_a_no(answer: Any) -> None:
    approve, _ = approvals(lambda _: answer)
    assert isinstance(await approve(bash("make")), Reject)


async def test_an_answer_with_an_unknown_choice_is_a_no() -> None:
    approve, _ = approvals(ApprovalAnswer("sure"))  # type: ignore[arg-type]
    assert isinstance(await approve(bash("make")), Reject)


async def test_asking_may_take_its_time() -> None:
    asked = asyncio.Event()
    decided = asyncio.Event()

    async def ask(question: ApprovalQuestion) -> ApprovalChoice:
        asked.set()
        await decided.wait()
        return ApprovalChoice.ONCE

    task = asyncio.create_task(Approvals(ask, rules=RULES)(bash("make")))
    await asked.wait()
    assert not task.done()
    decided.set()
    assert await task == Approve()


async def test_a_person_may_change_the_arguments_and_trust_nothing_by_it() -> None:
    changed = {"command": "npm test"}
    approve, person = approvals(ApprovalAnswer(ApprovalChoice.SESSION_TOOL, arguments=changed), "no")
    answer = await approve(bash("npm publish"))
    assert answer == ApproveWith({"command": "npm test"})
    changed["command"] = "rm -rf x"
    assert answer == ApproveWith({"command": "npm test"})
    assert await approve(bash("npm test")) == Reject("the user said no")
    assert len(person.questions) == 2


async def test_changed_arguments_do_not_get_around_a_deny_rule() -> None:
    approve, _ = approvals(ApprovalAnswer(ApprovalChoice.ONCE, arguments={"command": "sudo ls"}))
    assert await approve(bash("make")) == Reject("the rule 'sudo' denies it")


async def test_changes_to_a_question_have_no_effect() -> None:
    def meddle(question: ApprovalQuestion) -> str:
        question.request.arguments["command"] = "git status"
        question.request.scope.clear()
        return "session_tool"

    approve, person = approvals(meddle, "no")
    request = bash("make")
    assert await approve(request) == Approve()
    assert request == bash("make")
    assert await approve(bash("make", scope={})) == Reject("the user said no")
    assert await approve(bash("make")) == Approve()
    assert len(person.questions) == 2


# -- questions -----------------------------------------------------------------------------------------------


async def test_a_question_is_ready_to_be_shown() -> None:
    approve, person = approvals("no")
    await approve(bash("npm test\u202e"))
    (question,) = person.questions
    assert question == ApprovalQuestion(
        request=bash("npm test\u202e"),
        display="bash\n│ npm test\\u{202e}",
        why="the command is not a plain one: it has the character \\u{202e}, which is not plain",
        warnings=("it holds characters that do not show: \\u{202e} right-to-left override",),
        prefix=None,
        choices=(ApprovalChoice.ONCE, ApprovalChoice.SESSION_TOOL, ApprovalChoice.NO),
        command="command",
    )
    assert question.render() == question.display


async def test_a_question_shows_no_arguments_in_its_repr() -> None:
    approve, person = approvals("no")
    await approve(bash("curl -H 'Authorization: canary-4711' x"))
    assert "canary-4711" not in repr(person.questions[0])
    assert "canary-4711" in person.questions[0].display
    answer = ApprovalAnswer(ApprovalChoice.ONCE, arguments={"command": "canary-4711"})
    assert "canary-4711" not in repr(answer)


async def test_a_write_is_previewed_as_a_diff_where_details_are_given() -> None:
    def preview(request: ProposedCall) -> dict[str, Any]:
        return {"path": "a", "old": "1\n", "new": request.arguments["content"], "is_new": False}

    approve, person = approvals("no", preview=preview)
    await approve(other(path="a", content="2\n"))
    assert person.questions[0].display.split("\n") == ["write_file a", "  @@ -1 +1 @@", "- 1", "+ 2"]


async def test_a_preview_that_fails_leaves_the_arguments_to_be_shown() -> None:
    def preview(request: ProposedCall) -> dict[str, Any]:
        raise OSError("gone")

    approve, person = approvals("no", preview=preview)
    await approve(other(path="a", content="2\n"))
    assert person.questions[0].display.split("\n") == ["write_file a", "+ 2"]


@pytest.mark.parametrize("given", ["preview", "redactor"])
async def test_the_text_of_a_question_is_made_outside_the_event_loop(given: str) -> None:
    made_in: list[threading.Thread] = []

    class Masks(Redactor):
        def redact_value(self, value: Any) -> Any:
            made_in.append(threading.current_thread())
            return super().redact_value(value)

    def preview(request: ProposedCall) -> None:
        made_in.append(threading.current_thread())

    options: dict[str, Any] = {"preview": preview} if given == "preview" else {"redactor": Masks()}
    approve, person = approvals("no", **options)
    await approve(other(path="a", content="2\n"))
    assert len(person.questions) == 1
    assert made_in
    assert threading.current_thread() not in made_in


async def test_warnings_are_about_every_text_of_the_call() -> None:
    approve, person = approvals("no")
    await approve(other("deploy", deep={"a": ["x\u200b"], "k\u0435y": 1}))
    assert sorted(person.questions[0].warnings) == [
        "it holds characters that do not show: \\u{200b} zero width space",
        "k\u0435y is not what it looks like: it mixes cyrillic and latin letters",
    ]


# What runs whatever its words name or say, so that no prefix of it can be trusted.
# fmt: off
RUNS_ANYTHING = [
    "python -c x", "python3 -c x", "python3.12 -c x", "python", "python3.11", "pypy3 -c x", "node -e x",
    "nodejs -e x", "node18 -p x", "deno eval x", "deno run x.ts", "bun x.ts", "bun -e x", "ruby -e x", "ruby3.1 -e x",
    "perl -e x", "perl5.36 -ne x", "lua x.lua", "lua5.4 -e x", "luajit -e x", "php -r x", "php8.2 -r x",
    "Rscript -e x", "julia -e x", "sh x.sh", "bash x.sh", "bash -c x", "bash5 -c x", "zsh -c x", "fish -c x",
    "dash x", "ksh x", "busybox sh", "env make", "xargs rm", "nohup make", "timeout 5 make", "nice make", "watch ls",
    "pwsh -c x", "ts-node x", "tsx x", "tclsh x", "python -m timeit x", "python -m pdb x", "python3 -m pip install x",
    "python -m runpy x", "python -m http.server", "find . -exec x", "sed e x", "awk x y", "gawk x y", "make",
    "make test", "make -f x", "npm install lodash", "npm exec x", "npm run", "npx eslint .", "npx -y eslint",
    "pnpm dlx x", "pnpm exec x", "yarn dlx x", "yarn build", "bunx x", "uvx x", "pipx run x", "uv run python -c x",
    "uv run -- x", "uv pip install x", "uv tool run x", "poetry run bash", "bundle exec x", "cargo run",
    "cargo install x", "go run x.go", "go generate", "go tool x", "docker run -it x", "docker exec x y",
    "docker compose up", "podman run x", "kubectl exec x", "ssh host ls", "sudo make", "doas make", "strace ls",
    "gdb x", "git -c x=y commit", "git bisect run x", "git bisect start", "git submodule foreach x",
    "git rebase --exec x main", "git rebase main", "git config a b", "git clone x", "git fetch", "git push",
    "git pull", "git difftool", "git grep x", "git filter-branch x", "git hook run x", "git archive x",
    "git remote add x y", "git -C x status", "git", "vim x", "vi x", "nvim x", "emacs x", "nano x", "less x", "man x",
    "tar xf x", "rsync a b", "rg x", "sort x", "tee x", "gcc x.c", "cmake .", "ninja", "gradle build", "mvn test",
    "rake x", "just x", "nix run x", "pip install x", "curl x", "watchexec x", "entr x", "parallel x", "script x",
    "expect x", "osascript x", "java -jar x", "frobnicate x", "ls; make", "npm test > f", "A=b npm test", "../run.sh",
    "/opt/tool x", "~/bin/x", "./../x",
    # A name that means a text or a file of the folder, which a model can write.
    "npm test", "npm t", "npm start", "npm run build", "npm run-script build", "npm run test:unit -- x", "npm ci",
    "npm --prefix x test", "pnpm test", "pnpm run build", "pnpm build", "pnpm -r test", "yarn", "yarn test",
    "yarn run x", "yarn start", "yarn workspace a test", "bun test", "bun run x", "bun install", "deno task x",
    "npx jest", "jest", "./run.sh x", "./manage.py test", "bin/rails test", "scripts/test", "tools/check -q",
    "./gradlew build", "./mvnw test", "./pytest", "tools/pytest -q", "./rm x", "./ls", "bin/git status",
    "src/cargo test", ".venv/bin/ls", ".venv/bin/tool", ".venv/bin/pip install x", ".venv/bin/python x.py",
    ".venv/bin/python -c x", "./.venv/bin/uv run pytest", "node_modules/.bin/jest",
    "/home/ada/project/.venv/bin/pytest", "/home/ada/project/rm x", "/tmp/ls", "uv run x.py", "uv run ls",
    "uv run ruff check", "uv run python x.py", "uv run --with x pytest", "uv sync", "poetry run pytest",
    "poetry run x", "poetry install", "pdm run pytest", "pdm run test", "hatch run pytest", "hatch test", "rye run x",
    "pipenv run pytest", "conda run x", "bundle exec rspec", "bundle install", "rspec", "tox", "tox -e py311", "nox",
    "invoke x", "fab x", "task x", "rake test", "make -j4", "gmake", "ninja test", "meson test", "ctest",
    "bazel run x", "bazel test x", "buck2 test x", "gradle test", "mvn verify", "sbt test", "lein run", "mix test",
    "composer test", "composer run-script x", "php artisan x", "dotnet run", "dotnet test", "swift run", "zig build",
    "cabal run", "stack exec x", "dune exec x", "pre-commit run", "husky", "lint-staged", "lerna run x", "nx run x",
    "turbo run x", "vite build", "webpack", "rollup -c", "eslint .", "prettier .", "gulp", "grunt", "docker build .",
    "docker-compose up", "podman exec x y", "kubectl apply -f x", "helm install x", "terraform apply",
    "ansible-playbook x", "vagrant ssh", "ssh -t host", "scp a b", "su -c x", "chroot x y", "unshare x", "setsid x",
    "stdbuf -o0 x", "ionice x", "taskset 1 x", "flock x y", "time x", "command x", "exec x", "xargs -n1 x", "fd -x x",
    "find . -name x -execdir y +", "git merge-tool", "git mergetool", "git rebase -i", "git am x", "git svn x",
    "git lfs x", "git submodule update", "git checkout-index", "git send-email x", "cargo watch x", "cargo xtask x",
    "cargo nextest run", "cargo +nightly test", "go install x", "go get x", "rustup run x y", "direnv exec . x",
    "mise run x", "asdf exec x",
    # The project's own code, which a model can write: tests, build steps, plugins, an environment in the folder.
    "pytest", "pytest -q", "/usr/bin/pytest", "py.test x", ".venv/bin/pytest -q", "./venv/bin/python -m pytest",
    "python -m pytest -q", "/usr/bin/python3.12 -m pytest", "python -m unittest", "python -m json.tool x",
    "python -m black .", "python -m mypy .", "python -m compileall .", "python -m build", "uv run pytest -q",
    "uv run mypy", "cargo test", "cargo build --release", "cargo check", "cargo clippy", "cargo bench", "cargo doc",
    "cargo fmt", "cargo b", "go test ./...", "/usr/local/bin/go test", "mypy .", "flake8 x", "pylint x", "pyright",
    ".venv/bin/ruff check", ".venv/bin/mypy", ".venv/bin/black x", "vitest", "mocha", "ava", "karma start",
    "cypress run", "playwright test", "phpunit", "ctest -j4", "gradle --offline build", "mvn -q test", "ant", "scons",
    "waf", "xcodebuild test", "swift test", "zig test x", "elixir x.exs", "ghc -e x", "runghc x", "ocaml x",
    "scala x", "kotlin x", "groovy x", "clojure x", "erl x", "racket x", "guile x", "sbcl --script x", "octave x",
    "jshell x", "dart run", "flutter test", "crystal run x", "nim r x", "v run x", "jupyter nbconvert --execute x",
    "ipython -c x", "hy x", "sqlite3 x '.shell y'", "psql -c '\\! x'", "mysql -e x", "ed x", "ex x", "kubectl run x",
    "kubectl debug x", "kubectl cp a b", "oc exec x", "nerdctl run x", "lxc exec x", "crictl exec x", "mosh x",
    "telnet x", "nc -e x", "socat x y", "at now", "batch", "crontab x", "systemctl start x", "systemd-run x",
    "launchctl x", "open x", "xdg-open x", "dpkg -i x", "apt install x", "brew install x", "gem install x", "cpan x",
    "conan install x", "vcpkg install x", "git commit-graph", "git gc", "git maintenance run", "git p4 x",
    "git daemon", "git instaweb", "git gui", "gitk", "git credential fill", "git var x", "git help x",
    "git request-pull x", "git apply x", "gh run x", "gh alias set x y", "gh extension exec x", "glab x", "act",
    "earthly +x", "dagger run x", "nix-shell --run x", "guix shell x", "spack load x", "module load x", "screen x",
    "tmux new x", "byobu x", "dtach x", "ltrace x", "perf stat x", "valgrind x", "rr record x", "lldb x",
    "catchsegv x", "ld.so x", "/lib64/ld-linux-x86-64.so.2 x", "/usr/bin/env ls", "chronic x", "ts x", "pee x",
    "sponge x", "ifne x", "errno x", "setarch x", "prlimit x", "choom -n 1 x", "uclampset x", "proxychains x",
    "torsocks x", "firejail x", "bwrap x", "unbuffer x", "rlwrap x", "faketime x y", "dbus-run-session x",
    "xvfb-run x", "eatmydata x", "fakeroot x", "pkexec x", "runuser -u x y", "su x", "sg x y", "newgrp x", "login x",
    "openvt x", "hyperfine x", "cpulimit x", "nsenter x", "capsh -- -c x", "gosu x y", "tini x", "dumb-init x",
    "s6-setuidgid x", "chpst x",
]
# fmt: on


@pytest.mark.table
@pytest.mark.parametrize(
    ("command", "prefix"),
    [
        ("git commit -m 'a b'", "git commit"),
        ("rm a.txt", "rm"),
        ("python script.py x", None),
        ("python3.13 'my script.py'", None),
        ("node app.js", None),
        ("/usr/bin/rm -r build", "/usr/bin/rm"),
        ("mkdir -p a/b", "mkdir"),
        ("cp -r a b", "cp"),
        ("ruff check .", "ruff"),
        ("git merge main", "git merge"),
        ("go vet ./...", "go vet"),
        ("/usr/bin/go build", "/usr/bin/go build"),
        ("isort .", "isort"),
        *((command, None) for command in RUNS_ANYTHING),
        *((f"{path}{command}", None) for command in RUNS_ANYTHING[:40] for path in ("/usr/bin/", "./", "tools/bin/")),
    ],
)
async def test_the_prefix_to_trust_is_never_one_that_would_mean_anything(command: str, prefix: str | None) -> None:
    approve, person = approvals("no", rules=CommandRules())
    await approve(bash(command))
    assert person.questions[0].prefix == prefix
    assert (ApprovalChoice.SESSION_PREFIX in person.questions[0].choices) == (prefix is not None)


# -- trust ---------------------------------------------------------------------------------------------------


async def test_a_tool_is_trusted_for_the_session() -> None:
    approve, person = approvals("session_tool", "no", "no")
    assert await approve(other(path="a", content="1")) == Approve()
    assert await approve(other(path="b", content="2")) == Approve()
    assert len(person.questions) == 1
    assert await approve(other("edit_file", path="a", edits=[])) == Reject("the user said no")
    approve.trust.forget()
    assert await approve(other(path="b", content="2")) == Reject("the user said no")


@pytest.mark.table
@pytest.mark.parametrize(
    ("prefix", "covered", "asked"),
    [
        (
            "git merge",
            ["git merge --squash main"],
            [
                *["git merge -s ./x main", "git merge -sx m", "git merge --strateg=x m", "git merge -nsevil main"],
                *["git merge -n -qsevil main", "git merge -vnes evil main", "git merge main -ns evil"],
            ],
        ),
        ("git merge", ["git merge -nm sum main", "git merge -mss main", "git merge --stat main"], []),
        ("git cherry-pick", ["git cherry-pick -x abc"], ["git cherry-pick -nsevil", "git revert --strategy=evil"]),
        ("git pull", ["git pull origin"], ["git pull -nsevil", "git pull --upload-pack=evil"]),
        (
            "git rebase",
            ["git rebase main"],
            ["git rebase -x evil main", "git rebase -ix evil", "git rebase --exec=evil"],
        ),
        (
            "git diff",
            ["git diff HEAD", "git diff --stat --output-indicator-new=+", "git diff --ours"],
            ["git diff --output=f", "git diff --output f", "git diff --outp=f", "git diff --ext-diff"],
        ),
        (
            "git log",
            ["git log --oneline -S x"],
            ["git log -p --output=f", "git log --format=%G?", "git log --show-sig"],
        ),
        (
            "git show",
            ["git show HEAD:a"],
            ["git show --output=f HEAD:a", "git show --ou=f", "git stash show --output=f"],
        ),
        ("git revert", ["git revert HEAD"], ["git revert --strategy x HEAD"]),
        ("cargo test", ["cargo test --release a", "cargo test -- --exact"], ["cargo test --config 'a=\"b\"'"]),
        ("go test", ["go test -v ./...", "go test -run X"], ["go test -exec ./x", "go test --toolexec=./x"]),
        ("pytest", ["pytest -q -x a.py", "pytest --tb=short", "pytest -k 'a or b'"], ["pytest -p x", "pytest -c x"]),
        ("uv run pytest", ["uv run pytest -q"], ["uv run pytest -p x", "uv run --with x pytest"]),
        ("python -m unittest", ["python -m unittest -v a.py"], ["python -m timeit x"]),
        ("git commit", ["git commit -am x"], ["git -c core.editor=x commit"]),
    ],
)
async def test_trust_in_a_prefix_excludes_options_that_run_other_programs(
    prefix: str, covered: list[str], asked: list[str]
) -> None:
    approve, _ = approvals(*["no"] * 9, rules=CommandRules())
    approve.trust.trust_command(prefix, scope=HERE)
    assert [await approve(bash(command)) for command in covered] == [Approve()] * len(covered)
    assert [await approve(bash(command)) for command in asked] == [Reject("the user said no")] * len(asked)


async def test_the_end_of_what_a_trusted_command_prints_may_be_looked_at() -> None:
    approve, _ = approvals(*["no"] * 20)
    approve.trust.trust_command("go vet", scope=HERE)
    covered = ["go vet 2>&1 | tail -20", "go vet | grep -i fail | head", "go vet >/dev/null", "ls && go vet"]
    asked = [
        *["go vet | tee f", "go vet | tail -20 f", "go vet && cat f", "go vet | sh", "go vet; ls"],
        *["cd src && go vet", "go vet < f", "go vet | grep -r x", "go vet | xargs rm", "go vet & ls"],
    ]
    assert [await approve(bash(command)) for command in covered] == [Approve()] * len(covered)
    assert [await approve(bash(command)) for command in asked] == [Reject("the user said no")] * len(asked)


async def test_a_prefix_is_trusted_for_the_session() -> None:
    approve, person = approvals("session_prefix", *["no"] * 20)
    assert await approve(bash("go vet")) == Approve()
    for command in ("go vet", "go vet -- --watch", "'go' v\\et 'a;b'"):
        assert await approve(bash(command, timeout=3)) == Approve()
        assert await approve(bash(command, background=True)) == Approve()
    assert len(person.questions) == 1
    asked = [
        *["go", "go install", "go vetting", "go vet; id", "go vet && id", "go vet > f", "go vet $(id)"],
        *["go vet\nid", "A=b go vet", "./go vet", "go vet *", "go vet '\u200b'", "env go vet"],
    ]
    for command in asked:
        assert await approve(bash(command)) == Reject("the user said no"), command
    assert await approve(bash("go vet", cwd="/")) == Reject("the user said no")
    assert await approve(other("run", command="go vet")) == Reject("the user said no")


@pytest.mark.parametrize(
    "scope",
    [
        {},
        {**HERE, "folder": "/home/ada/other"},
        {**HERE, "sandbox": "off"},
        {**HERE, "network": True},
        {"folder": HERE["folder"]},
    ],
)
async def test_trust_holds_only_in_the_folder_and_sandbox_where_it_was_given(scope: dict[str, Any]) -> None:
    approve, _ = approvals("session_prefix", "session_tool", "no", "no")
    assert await approve(bash("go vet")) == Approve()
    assert await approve(other(path="a", content="1")) == Approve()
    assert await approve(bash("go vet", scope=scope)) == Reject("the user said no")
    assert await approve(other(path="a", content="1", scope=scope)) == Reject("the user said no")
    shuffled = dict(reversed(HERE.items()))
    assert await approve(bash("go vet", scope=shuffled)) == Approve()


@pytest.mark.table
@pytest.mark.parametrize(
    "path",
    [".git/config", "sub/.git/hooks/x", ".GIT/config", "./.swink/settings.toml", ".g\u200cit/config", ".ｇｉｔ/x"],  # noqa: RUF001
)
async def test_a_trusted_tool_is_not_trusted_with_what_decides_what_runs(path: str) -> None:
    approve, _ = approvals("no")
    approve.trust.trust_tool("write_file", scope=HERE)
    assert await approve(other(path="été/.gitignore", content="1")) == Approve()
    assert await approve(other(path=path, content="1")) == Reject("the user said no")


async def test_trust_in_a_tool_is_for_all_files_of_the_folder_wherever_links_lead() -> None:
    """The file tools say in their scope which file it is in the end."""
    approve, _ = approvals("session_tool", "no", "no")
    assert await approve(other(path="a", content="1", scope={**HERE, "path": "a"})) == Approve()
    assert await approve(other(path="b", content="1", scope={**HERE, "path": "src/b"})) == Approve()
    link = other(path="docs/config", content="1", scope={**HERE, "path": ".git/config"})
    assert await approve(link) == Reject("the user said no")
    elsewhere = other(path="b", content="1", scope={"folder": "/", "path": "b"})
    assert await approve(elsewhere) == Reject("the user said no")


def test_trust_can_be_given_by_hand() -> None:
    trust = SessionTrust()
    trust.trust_tool("edit_file")
    trust.trust_command("cargo build")
    assert trust.covers(other("edit_file", scope={}, path="a"))
    assert trust.covers(bash("cargo build --release", scope={}))
    assert not trust.covers(bash("cargo run", scope={}))
    assert not trust.covers(bash("cargo build --release"))
    assert repr(trust) == "<SessionTrust 1 tools, 1 command prefixes>"


@pytest.mark.table
async def test_rules_for_commands_do_not_apply_to_a_servers_tool_of_the_same_name() -> None:
    scope = {"server": "far", "tool": "bash", "definition": "1234"}
    approve, person = approvals("no")
    answer = await approve(ProposedCall("1", "bash", {"command": "ls"}, scope))
    assert answer == Reject("the user said no")
    assert person.questions[0].why == "bash is a tool of the MCP server far, which chose that name itself"
    denied = await approve(ProposedCall("2", "bash", {"command": "sudo ls"}, scope))
    assert isinstance(denied, Reject)
    assert len(person.questions) == 1


@pytest.mark.parametrize("prefix", ["", "a; b", "eval", "A=b", "ls *", "time", "ls $x"])
def test_only_plain_commands_can_be_trusted(prefix: str) -> None:
    with pytest.raises(ValueError, match="cannot be trusted as a command"):
        SessionTrust().trust_command(prefix)


@pytest.mark.sweep
def test_trust_is_safe_to_share_between_threads() -> None:
    trust = SessionTrust()
    barrier = threading.Barrier(4)
    failures: list[str] = []

    def work(number: int) -> None:
        barrier.wait(10.0)
        for index in range(300):
            trust.trust_command(f"tool{number} sub{index}", scope=HERE)
            trust.trust_tool(f"tool{number}-{index}", scope=HERE)
            if not trust.covers(bash(f"tool{number} sub{index} x")):
                failures.append(f"{number}.{index}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert failures == []
    assert repr(trust) == "<SessionTrust 1200 tools, 1200 command prefixes>"


# -- with an agent -------------------------------------------------------------------------------------------


class Shell:
    """A tool like bash that only writes down what it would run, and checks its grant as the real one does."""

    name = "bash"
    label = "Bash"
    description = "Runs a command."
    requires_approval = True
    parameters_schema: dict[str, Any] = {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
        "additionalProperties": False,
    }

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.folder = HERE["folder"]

    def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {**HERE, "folder": self.folder}

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        if ctx.grant is None or not ctx.grant.covers(self.name, arguments, self.approval_scope(arguments)):
            return AgentToolResult.error("not what was approved")
        self.ran.append(arguments["command"])
        return AgentToolResult.text("done")


async def results_of(shell: Shell, approve: Callable[..., Any], *commands: str) -> list[str]:
    script = [*(call("bash", command=command) for command in commands), text("ok")]
    agent = Agent("scripted:demo", stream_fn=scripted(*script), tools=[shell], approve=approve)
    stream = agent.prompt_stream("go")
    events = await collect(stream)
    check_events(events)
    result = await stream.result()
    return [extract_text(message.content) for message in result.messages if hasattr(message, "tool_call_id")]


async def test_an_agent_runs_what_is_allowed_trusted_or_approved_and_nothing_else() -> None:
    shell = Shell()
    approve, person = approvals("session_prefix", ApprovalAnswer(ApprovalChoice.NO, "not that"), "once")
    results = await results_of(shell, approve, "git status", "go vet", "go vet -x", "go vet; id", "sudo id", "curl x")
    assert results == [
        "done",
        "done",
        "done",
        "tool call rejected: not that",
        "tool call rejected: the rule 'sudo' denies it",
        "done",
    ]
    assert shell.ran == ["git status", "go vet", "go vet -x", "curl x"]
    assert [question.request.arguments["command"] for question in person.questions] == [
        "go vet",
        "go vet; id",
        "curl x",
    ]


async def test_the_mode_counts_that_is_set_when_the_answer_is_given() -> None:
    approve, person = approvals("once")
    answer = approve.prepare_approval(ProposedCall("1", "bash", {"command": "curl x"}, HERE))
    approve.mode = "none"
    assert isinstance(await answer(), Reject)
    assert person.questions == []


@pytest.mark.parametrize("backend", [["landlock"], {"landlock": 1}, None, 1])
async def test_a_scope_whose_back_end_is_not_a_name_confines_nothing(backend: Any) -> None:
    approve, person = approvals("no", mode="auto")
    assert isinstance(await approve(bash("make x", {"folder": "/x", "backend": backend})), Reject)
    assert len(person.questions) == 1


async def test_unattended_an_agent_is_told_what_to_do_instead() -> None:
    shell = Shell()
    (result,) = await results_of(shell, Approvals(rules=RULES), "make test")
    assert result == (
        "tool call rejected: no rule allows 'make test', and no one can answer a question here; use a command that the "
        "rules allow, alone and with plain words, or another tool"
    )
    assert shell.ran == []


async def test_a_person_who_raises_has_said_no() -> None:
    def ask(question: ApprovalQuestion) -> str:
        raise EOFError

    shell = Shell()
    (result,) = await results_of(shell, Approvals(ask, rules=RULES), "make test")
    assert result == "tool call rejected: the approval callback failed: EOFError"
    assert shell.ran == []


async def test_trust_does_not_follow_the_tool_to_another_folder() -> None:
    shell = Shell()
    approve, person = approvals("session_prefix", "no")
    assert await results_of(shell, approve, "go vet", "go vet") == ["done", "done"]
    shell.folder = "/etc"
    assert await results_of(shell, approve, "go vet") == ["tool call rejected: the user said no"]
    assert len(person.questions) == 2


async def test_a_command_that_a_person_changed_runs_as_changed() -> None:
    shell = Shell()
    approve, _ = approvals(ApprovalAnswer(ApprovalChoice.ONCE, arguments={"command": "go ci"}))
    assert await results_of(shell, approve, "go install") == ["done"]
    assert shell.ran == ["go ci"]


# -- calls that wait -----------------------------------------------------------------------------------------


async def test_a_call_that_waits_is_asked_about_in_every_mode_that_lets_calls_run() -> None:
    waiting = PendingCall("c", "bash", {"command": "ls"}, reason="Ada\x1b decides", scope={"folder": "/x"})
    asked: list[ApprovalQuestion] = []

    def ask(question: ApprovalQuestion) -> ApprovalChoice | Defer:
        asked.append(question)
        return ApprovalChoice.ONCE if len(asked) < 4 else Defer()

    approvals = Approvals(ask)
    for mode in ("smart", "ask", "all"):
        approvals.mode = mode
        assert approvals.denial(waiting) is None
        assert await approvals.ask_later(waiting) == Approve()
    assert await approvals.ask_later(waiting) == Defer()
    assert [(one.request.scope, one.can_wait) for one in asked] == [({"folder": "/x"}, True)] * 4
    assert not any("\x1b" in one.why for one in asked)
    assert await Approvals().ask_later(waiting) == Defer(waiting.reason), "without anybody to ask it waits on"


async def test_a_call_that_waits_and_may_not_run_is_not_asked_about() -> None:
    waiting = PendingCall("c", "bash", {"command": "rm x"})
    by_rule = Approvals(lambda _: ApprovalChoice.ONCE, rules=CommandRules.standard(deny=["rm"]))
    by_mode = Approvals(lambda _: ApprovalChoice.ONCE, mode="none")
    for approvals in (by_rule, by_mode):
        denial = approvals.denial(waiting)
        assert denial
        assert await approvals.ask_later(waiting) == Reject(denial)
