"""A model that never stops, spends, floods, forks, or gives the tools input that takes forever."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from typing import Any

import pytest

from swink_agent import Agent, Cost, ErrorKind, StreamOptions, Usage
from swink_agent.core.retry import DefaultRetryStrategy
from swink_agent.policies import Budget, LoopDetection, MaxDuration, MaxTurns
from swink_agent.sandbox import ProcessLimits, open_sandbox
from swink_agent.testing import FakeClock, ModelRequest, call, fail, reply, scripted
from swink_agent.tools import BashTool, ListDirTool, ReadFileTool, SearchTool

from .world import Attack, World, running_with, write

LIMIT = 100 * 1024


def price(model: Any, tokens: int, output: int | None) -> tuple[float, int]:
    """A cent for a thousand tokens, in or out."""
    output = 1000 if output is None else output
    return (tokens + output) / 100_000, output


# -- turns, time and money -----------------------------------------------------------------------------------


async def test_a_model_that_always_has_one_more_call_is_stopped(world: World) -> None:
    calls = [call("read_file", path="hello.txt", limit=number) for number in range(1, 100)]
    run = await world.run(*calls, policies=[MaxTurns(7)])
    assert len(run.model.requests) == 7
    assert run.result.stopped_by is not None
    assert run.result.stopped_by.policy == "max_turns"


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    "cycle",
    [
        [call("read_file", path="hello.txt")],
        [call("read_file", path="hello.txt"), call("list_dir")],
        [call("list_dir"), call("search", glob="*.txt"), call("read_file", path="nowhere")],
        [call("no_such_tool", x=1)],
        [[call("list_dir"), call("list_dir")]],
    ],
)
async def test_a_model_that_goes_in_circles_is_stopped(world: World, cycle: list[Any]) -> None:
    run = await world.run(*(cycle * 40)[:60], policies=[LoopDetection()])
    assert run.result.stopped_by is not None
    assert run.result.stopped_by.policy == "loop_detection"
    assert len(run.model.requests) <= 20


async def test_time_runs_out(world: World) -> None:
    clock = FakeClock()

    def slowly(request: ModelRequest) -> Any:
        clock.now += 10
        return call("read_file", path="hello.txt", limit=len(request.messages))

    run = await world.run(*[slowly] * 50, policies=[MaxDuration(60, clock=clock.time)])
    assert len(run.model.requests) <= 8
    assert run.result.stopped_by is not None


async def test_no_call_is_made_that_could_cost_too_much(world: World) -> None:
    budget = Budget(max_cost=0.50, worst_case=price)
    used = Usage(input=1000, output=1000, total=2000)
    model = scripted(
        *[call("read_file", path="hello.txt", limit=n + 1) for n in range(50)], usage=used, cost=Cost(total=0.02)
    )
    run = await world.run(stream_fn=model, policies=[budget], stream_options=StreamOptions(max_tokens=1000))
    assert run.result.stopped_by is not None
    assert 0 < budget.spent <= 0.50


async def test_agents_at_once_do_not_overshoot_together(world: World) -> None:
    budget = Budget(max_cost=0.30, max_tokens=30_000, worst_case=price)
    used = Usage(input=500, output=1000, total=1500)

    async def spend() -> None:
        model = scripted(
            *[call("list_dir", depth=n % 5 + 1) for n in range(30)], usage=used, cost=Cost(total=0.015), suspend=True
        )
        agent = Agent(
            "scripted:x",
            stream_fn=model,
            tools=[ListDirTool(world.root)],
            policies=[budget],
            stream_options=StreamOptions(max_tokens=1000),
        )
        await agent.prompt("go")

    await asyncio.gather(*(spend() for _ in range(12)))
    assert 0.1 < budget.spent <= 0.30
    assert budget.spent_tokens <= 30_000


async def test_failures_that_were_paid_for_count(world: World) -> None:
    budget = Budget(max_cost=0.10, worst_case=price)
    failing = [
        reply("some", fail(ErrorKind.NETWORK, usage=Usage(input=2000, output=1000, total=3000))) for _ in range(50)
    ]

    async def no_wait(seconds: float) -> None:
        await asyncio.sleep(0)

    run = await world.run(
        *failing,
        policies=[budget],
        stream_options=StreamOptions(max_tokens=1000),
        retry_strategy=DefaultRetryStrategy(max_attempts=40),
        sleep=no_wait,
    )
    assert len(run.model.requests) <= 4
    assert budget.spent <= 0.10


async def test_a_model_without_a_price_is_not_asked(world: World) -> None:
    run = await world.run(call("list_dir"), policies=[Budget(max_cost=1.0)], model="acme:new")
    assert run.model.requests == []


async def test_results_of_a_tool_are_in_the_next_reservation(world: World) -> None:
    """The model reads a large file to blow up the next request: it is not sent."""
    write(world.root / "large.txt", "word " * 18_000)
    budget = Budget(max_tokens=40_000, worst_case=price)
    run = await world.run(
        call("read_file", path="large.txt"), policies=[budget], stream_options=StreamOptions(max_tokens=1000)
    )
    assert len(run.model.requests) == 1
    assert run.result.stopped_by is not None


async def test_usage_below_zero_gives_no_money_back(world: World) -> None:
    budget = Budget(max_cost=0.20, max_tokens=20_000, worst_case=price)
    model = scripted(
        *[call("list_dir", depth=n % 5 + 1) for n in range(60)],
        usage=Usage(input=-10_000, output=-10_000, total=-20_000),
        cost=Cost(total=-5.0),
    )
    await world.run(stream_fn=model, policies=[budget], stream_options=StreamOptions(max_tokens=1000))
    assert budget.spent >= 0
    assert budget.spent_tokens >= 0


@pytest.mark.sweep
async def test_very_many_calls_in_one_reply_all_come_to_an_end(world: World) -> None:
    calls = [call("bash", command="ls") for _ in range(60)] + [call("read_file", path="hello.txt") for _ in range(500)]
    run = await world.run(calls, within=50)
    assert len(run.results) == 560
    assert not any(event.is_error for event in run.results), [t for t in run.texts if "hello" not in t][:3]
    assert run.questions == []
    assert world.breaches(run) == []


# -- commands ------------------------------------------------------------------------------------------------


def bash(command: str, timeout: float = 0.4, **more: Any) -> Attack:
    return Attack([call("bash", command=command, timeout=timeout)], within=15, **more)


COMMANDS = {
    "a fork bomb": bash("b() { b | b & }; b; sleep @MARK@"),
    # Twice as many each 50 ms. Without the pause, some twenty thousand where the user is root, whose processes nobody
    # counts: enough to leave others on the machine without a number for theirs.
    "a fork bomb of an interpreter": bash(
        '@PY@ -c "import os, time\nwhile 1:\n try: os.fork()\n except OSError: pass\n time.sleep(0.05)\n# @MARK@"'
    ),
    "processes that multiply and let go": bash("f() { (setsid sleep @MARK@ & setsid sleep @MARK@ &) & f; }; f"),
    "yes": bash("yes @MARK@"),
    "a line without an end": bash("cat /dev/zero # @MARK@"),
    "noise": bash("cat /dev/urandom # @MARK@"),
    "ten million lines": bash("seq 10000000 # @MARK@", 10),
    "escape sequences": bash("for i in $(seq 20000); do printf '\\033[2J\\033]0;x\\007\\b\\b\\r'; done", 5),
    "a file without an end": bash(
        "yes > big; cat /dev/zero > zero; head -c 99999999 /dev/zero > more; exec sleep @MARK@"
    ),
    "a file of the temporary folder": bash("cat /dev/zero > $TMPDIR/big; sleep @MARK@"),
    "a processor that spins": bash("while :; do :; done & while :; do :; done; sleep @MARK@"),
    "a command that never reads": bash("sleep @MARK@ | sleep @MARK@"),
    "deaf ears": bash("trap '' TERM INT HUP QUIT; while :; do sleep @MARK@; done"),
    "both outputs closed": bash("exec >&- 2>&-; sleep @MARK@"),
    "very many descriptors": bash('for i in $(seq 20000); do eval "exec {fd}</dev/null"; done; sleep @MARK@', 1),
    "a loop of links and folders": bash(
        "ln -s . a; for i in $(seq 200); do mkdir -p d; cd d; done; ls -R / > /dev/null & sleep @MARK@"
    ),
    "memory that is written": bash('@PY@ -c "x = bytearray(10**8); import time; time.sleep(@MARK@ % 10)"'),
}


BOTH = ("a fork bomb", "a fork bomb of an interpreter", "processes that multiply and let go", "yes", "deaf ears")
BOTH += ("a file without an end", "both outputs closed", "a loop of links and folders")
MULTIPLY = BOTH[:3]


def greedy() -> list[Any]:
    """Each command with each back end; what multiplies leaves others without a process for their own, and is alone."""
    pairs = [*((name, "auto") for name in COMMANDS), *((name, "landlock") for name in BOTH)]
    return [
        pytest.param(name, backend, marks=[pytest.mark.alone] if name in MULTIPLY else []) for name, backend in pairs
    ]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "backend"), greedy())
async def test_a_greedy_command_is_ended_whole_and_in_time(world: World, name: str, backend: str) -> None:
    limits = ProcessLimits(processes=80, file_size=2_000_000)
    chosen = {} if backend == "auto" else {"backend": backend}
    sandbox = world.resources.enter_context(open_sandbox(world.profile(limits=limits), **chosen))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = await world.attack(COMMANDS[name], tools=[BashTool(world.root, sandbox, most_output=8 * 1024 * 1024)])
    assert world.breaches(run) == []
    assert all(len(said.encode()) <= LIMIT for said in run.texts)
    assert run.seconds < 14
    assert sum(path.stat().st_size for path in world.root.iterdir() if path.is_file()) < 10_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000


async def test_the_agent_stays_awake_during_a_flood(world: World) -> None:
    late: list[float] = []

    async def tick() -> None:
        while True:
            started = time.monotonic()
            await asyncio.sleep(0.01)
            late.append(time.monotonic() - started - 0.01)

    ticking = asyncio.ensure_future(tick())
    await world.run([call("bash", command="yes", timeout=1), call("search", pattern="h"), call("list_dir")])
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)
    assert sorted(late)[len(late) * 9 // 10] < 0.5


async def test_an_abort_ends_everything_at_once(world: World) -> None:
    tools = world.tools()
    calls = [call("bash", command=world.fill("setsid sleep @MARK@ & trap '' TERM; sleep @MARK@")) for _ in range(4)]
    agent = Agent("scripted:x", stream_fn=scripted(calls), tools=tools, approve=lambda request: True)
    started = asyncio.Event()
    agent.subscribe(lambda event: started.set() if type(event).__name__ == "ToolExecutionStart" else None)
    running = asyncio.ensure_future(agent.prompt("go"))
    await started.wait()
    await asyncio.sleep(0.3)
    agent.abort()
    result = await asyncio.wait_for(running, 30)
    assert result.stop_reason == "aborted"
    tools[-1].close()
    assert running_with(world.marker) == []


# -- files that are too much ---------------------------------------------------------------------------------


def sparse(world: World) -> None:
    with open(world.root / "sparse", "wb") as file:
        file.truncate(50 * 1024**3)


def one_line(world: World) -> None:
    (world.root / "line.txt").write_bytes(b"needle" + b"a" * 20_000_000)


def many_lines(world: World) -> None:
    (world.root / "lines.txt").write_bytes(b"needle\n" * 300_000)


def many_names(world: World) -> None:
    (world.root / "many").mkdir()
    for number in range(50_000):
        os.close(os.open(world.root / f"many/{number:05}", os.O_CREAT | os.O_WRONLY))


def deep(world: World) -> None:
    folder = world.root
    for _ in range(300):
        folder = folder / "d"
        os.mkdir(folder)


def strange_bytes(world: World) -> None:
    (world.root / "bytes.bin").write_bytes(bytes(range(256)) * 1000)
    (world.root / "half.txt").write_bytes(b"\xc3\x28 needle \xff\xfe\n" * 50)
    (world.root / "wide.txt").write_bytes("needle \u0434\u0430\n".encode("utf-16"))
    with open(os.fsencode(world.root) + b"/\xff\xfename", "wb") as file:
        file.write(b"needle\n")


FILES = {
    "one line of twenty megabytes": Attack(
        [
            call("read_file", path="line.txt"),
            call("search", pattern="needle"),
            call("edit_file", path="line.txt", edits=[{"old": "nothing", "new": "x"}]),
        ],
        one_line,
    ),
    "lines without number": Attack(
        [
            call("read_file", path="lines.txt"),
            call("read_file", path="lines.txt", offset=299_999),
            call("search", pattern="needle", limit=1000),
            call("read_file", path="lines.txt", offset=10**15, limit=10**15),
        ],
        many_lines,
    ),
    "fifty thousand names": Attack([call("list_dir", path="many"), call("list_dir", depth=5)], many_names),
    "three hundred folders deep": Attack(
        [
            call("list_dir", depth=5),
            call("search", glob="**"),
            call("search", pattern="x"),
            call("read_file", path="d/" * 300),
        ],
        deep,
    ),
    "bytes that are no text": Attack(
        [
            call("read_file", path="bytes.bin"),
            call("read_file", path="half.txt"),
            call("read_file", path="wide.txt"),
            call("search", pattern="needle"),
            call("list_dir"),
            call("edit_file", path="half.txt", edits=[{"old": "needle", "new": "x"}]),
        ],
        strange_bytes,
    ),
    "an edit of much that is not there": Attack(
        [call("edit_file", path="lines.txt", edits=[{"old": "needle\nneedles" * 3000, "new": "x"}])], many_lines
    ),
    "an edit of everything": Attack(
        [
            call(
                "edit_file",
                path="lines.txt",
                edits=[{"old": "needle", "new": "needle needle", "replace_all": True}] * 5,
            )
        ],
        many_lines,
    ),
    "edits that double a file": Attack(
        [call("edit_file", path="hello.txt", edits=[{"old": "l", "new": "ll", "replace_all": True}] * 200)]
    ),
    "edits that go back and forth": Attack(
        [
            call(
                "edit_file",
                path="a.txt",
                edits=[{"old": "a", "new": "b", "replace_all": True}, {"old": "b", "new": "a", "replace_all": True}]
                * 100,
            )
        ],
        lambda world: write(world.root / "a.txt", "a" * 10_000_000),
    ),
    "an edit that is found everywhere at once": Attack(
        [call("edit_file", path="a.txt", edits=[{"old": "a" * 200_000, "new": "b"}])],
        lambda world: write(world.root / "a.txt", "a" * 10_000_000),
    ),
    "a write of megabytes that do not show": Attack(
        [call("write_file", path="big.txt", content="x\x1b\u202e\n" * 200_000)]
    ),
    "a glob of braces": Attack(
        [call("search", glob="{a,b}" * 12), call("search", glob="{" * 2000), call("search", glob="{a,{b,{c,{d," * 200)]
    ),
    "a glob of stars": Attack(
        [call("search", glob="**/" * 300 + "x"), call("search", glob="*a" * 200 + "b"), call("search", glob="[" * 500)],
        lambda world: write(world.root / ("a" * 250), "x"),
    ),
    "an expression that is linear for some": Attack(
        [
            call("search", pattern="(a+)+$|(x|x)*y|(.*)*!"),
            call("search", pattern="((((a{1,100}){1,100}){1,100}){1,100})"),
        ],
        lambda world: write(world.root / "a.txt", "a" * 5000),
    ),
    "an expression of brackets": Attack(
        [
            call("search", pattern="(" * 3900),
            call("search", pattern="[" * 3900),
            call("search", pattern="a{1000000000}"),
        ]
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", FILES)
async def test_files_and_patterns_without_measure_are_answered_in_measure(world: World, name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = await world.attack(FILES[name], within=45)
    assert world.breaches(run) == []
    assert all(len(said.encode("utf-8", "surrogatepass")) <= LIMIT for said in run.texts)
    assert len(run.results) == len(FILES[name].replies)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700_000


async def test_a_sparse_file_of_fifty_gigabytes_is_not_read_to_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swink_agent.tools.files.read_file._LONGEST_SEEK", 0.5)
    sparse(world)
    search = SearchTool(world.root, time_limit=1.0)
    calls = [
        call("read_file", path="sparse"),
        call("read_file", path="sparse", offset=10**9),
        call("search", pattern="needle"),
    ]
    run = await world.run(calls, tools=[search, ReadFileTool(world.root)], within=40)
    search.close()
    assert [event.is_error for event in run.results[:2]] == [True, True]
    assert "needle" not in run.texts[2]
    assert run.seconds < 30
    assert world.breaches(run) == []


@pytest.mark.parametrize(
    ("pattern", "answer"), [(r"(a|aa|aaa)+!", "No matches"), (r"(a|aa|aaa)+\1!", "a reference to a group")]
)
async def test_an_expression_that_explodes_elsewhere_is_answered_at_once(
    world: World, pattern: str, answer: str
) -> None:
    """Both engines take time in proportion to the text; what would need more is refused."""
    write(world.root / "a.txt", "a" * 200 + "\n")
    search = SearchTool(world.root, time_limit=20.0)
    run = await world.run(call("search", pattern=pattern), tools=[search, ReadFileTool(world.root)], within=40)
    search.close()
    assert answer.lower() in run.texts[0].lower()
    assert world.breaches(run) == []


ATTACKS = {
    **{f"command: {name}": attack for name, attack in COMMANDS.items()},
    **{f"file: {name}": attack for name, attack in FILES.items()},
}
