"""Changes the package in small ways, one at a time, and reports which of the changes the tests notice.

    python scripts/mutants.py --seed 40 --count 320 --out before.json     # a sample over all packages
    python scripts/mutants.py --compare before.json --out after.json      # the same changes, after a cut of the tests
    python scripts/mutants.py --table before.json                         # the figures of a stored run

A change (a mutant) negates a condition, shifts a bound, swaps two arguments, drops a statement or changes a constant.
Each is made in a copy of the tree. The tests run there once under coverage, to know which of them run each line. Then
those that run a mutant's line run against it, until one fails. Tests that start programs are tried too: coverage does
not see what those run. Everything is in a namespace of its own, where only the copy and an empty `/tmp` can be written
and no other process can be seen, because a mutant may delete or kill the wrong thing. That needs Linux and root.

`--folder` keeps the copy, the coverage and the verdicts. Given again, it goes on from there, with the same copy.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NAMING = ("file", "function", "kind", "line", "text", "new", "nth")
KINDS = ("condition", "bound", "arguments", "statement", "constant")
LISTS = {"_exports.py", "hints.py"}  # names only
NOT_SWAPPED = {"isinstance", "issubclass", "getattr", "hasattr", "cast", "TypeVar"}
SHIFTED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
LEAST = 8  # mutants of a small package
MOST_TESTS, MOST_FILES, MOST_SECONDS = 150, 25, 12.0  # for one mutant
PRELOADED = (
    *("pytest", "xdist", "pytest_timeout", "hypothesis", "aiohttp", "click", "idna", "jsonschema_rs", "msgspec"),
    *("platformdirs", "textual.app", "tomlkit", "yaml"),
)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A change, named so that edits elsewhere do not matter: `nth` counts the same one in equal lines of a function."""

    file: str
    function: str
    kind: str
    line: str
    text: str
    new: str
    nth: int = 0
    span: tuple[int, int] = dataclasses.field(default=(0, 0), compare=False)  # bytes that `new` replaces
    lines: tuple[int, int] = dataclasses.field(default=(0, 0), compare=False)

    @property
    def package(self) -> str:
        return self.file.split("/")[0] if "/" in self.file else "."

    @property
    def title(self) -> str:
        return f"{self.file}, {self.function}, {self.kind}: {self.text}  →  {self.new}"

    def stored(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in NAMING}


class Changes(ast.NodeVisitor):
    """All changes of a file."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source, self.found = file, source, list[Mutant]()
        self._starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
        self._names: list[str] = []
        self._counts: Counter[Mutant] = Counter()
        self.visit(ast.parse(source))

    def _add(self, kind: str, node: Any, new: str) -> None:
        start, end = (self._starts[line - 1] + column for line, column in _ends(node))
        old = " ".join(self.source[start:end].decode().split())
        if new.strip("()") == old.strip("()"):
            return
        function = ".".join(self._names) or "<module>"
        line = self.source[self._starts[node.lineno - 1] : self._starts[node.lineno]].decode().strip()
        made = Mutant(self.file, function, kind, line, old, new)
        nth, self._counts[made] = self._counts[made], self._counts[made] + 1
        lines = node.lineno, node.end_lineno
        self.found.append(dataclasses.replace(made, nth=nth, span=(start, end), lines=lines))

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Constant):
            self._add("condition", test, f"(not ({ast.unparse(test)}))")

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                return
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                self._negate(test)
            case ast.comprehension(ifs=tests):
                for test in tests:
                    self._negate(test)
            case ast.Return(value=ast.Compare() | ast.UnaryOp(op=ast.Not()) as value):
                self._negate(value)
            case ast.BoolOp(op=op, values=values):
                other = ast.Or() if isinstance(op, ast.And) else ast.And()
                self._add("condition", node, f"({ast.unparse(ast.BoolOp(other, values))})")
            case ast.Compare(left=left, ops=[op], comparators=right) if type(op) in SHIFTED:
                self._add("bound", node, f"({ast.unparse(ast.Compare(left, [SHIFTED[type(op)]()], right))})")
            case ast.Call(func=func, args=[first, second, *others]) if ast.unparse(func) not in NOT_SWAPPED:
                if not any(isinstance(each, ast.Starred) for each in (first, second)):
                    swapped = ast.Call(func, [second, first, *others], node.keywords)
                    self._add("arguments", node, ast.unparse(swapped))
            case ast.Expr(value=ast.Constant()):
                return  # a docstring
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete():
                self._add("statement", node, "pass")
            case ast.Return(value=None) | ast.Continue() | ast.Break():
                self._add("statement", node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                self._add("statement", node, "pass")
            case ast.Constant(value=bool() | int() | float() | str() | bytes() as value) if value not in ("", b""):
                changed = not value if isinstance(value, bool) else value + {str: "~", bytes: b"~"}.get(type(value), 1)
                self._add("constant", node, repr(changed))
            case ast.JoinedStr(values=values):
                for each in values:  # what is between braces; the text of an f-string has no place of its own
                    if isinstance(each, ast.FormattedValue):
                        self.visit(each.value)
                return
        for name, child in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "bases"):
                named = name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                self._names += [node.name] if named else []
                for each in child if isinstance(child, list) else [child]:
                    if isinstance(each, ast.AST):
                        self.visit(each)
                if named:
                    self._names.pop()


def _ends(node: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


@cache
def mutants_of(package: Path) -> list[Mutant]:
    paths = sorted(path for path in package.rglob("*.py") if path.name not in LISTS)
    return [each for path in paths for each in Changes(path.relative_to(package).as_posix(), path.read_bytes()).found]


def sample(package: Path, seed: int, count: int) -> list[Mutant]:
    """So many mutants, of each package as many as fit its size, and of each kind alike; constants are half texts."""
    by_package: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants_of(package):
        by_package[mutant.package].append(mutant)
    free = count - LEAST * len(by_package)
    total = sum(map(len, by_package.values()))
    chosen: list[Mutant] = []
    for name, mutants in sorted(by_package.items()):
        chance = random.Random(f"{seed} {name}")
        kinds: dict[str, list[Mutant]] = defaultdict(list)
        for mutant in chance.sample(mutants, len(mutants)):
            kinds[mutant.kind].append(mutant)
        texts = [each for each in kinds["constant"] if each.text[-1] in "\"')"]
        others = [each for each in kinds["constant"] if each.text[-1] not in "\"')"]
        mixed = [each for pair in itertools.zip_longest(others, texts) for each in pair if each is not None]
        kinds["constant"] = mixed
        turns = itertools.chain.from_iterable(itertools.zip_longest(*(kinds[kind] for kind in KINDS)))
        fit = (each for each in turns if each is not None and _compiles(package, each))
        chosen += itertools.islice(fit, LEAST + round(free * len(mutants) / total))
    return chosen


def changed(package: Path, mutant: Mutant) -> bytes:
    source = (package / mutant.file).read_bytes()
    start, end = mutant.span
    return source[:start] + mutant.new.encode() + source[end:]


def _compiles(package: Path, mutant: Mutant) -> bool:
    try:
        return compile(changed(package, mutant), mutant.file, "exec", dont_inherit=True) is not None
    except SyntaxError:
        return False


def found_again(package: Path, stored: Sequence[Mapping[str, Any]]) -> dict[Mutant, Mapping[str, Any]]:
    """The mutants of an earlier run in the code of today, also where a function is in another file now."""
    by_name: dict[tuple[Any, ...], list[Mutant]] = defaultdict(list)
    for mutant in mutants_of(package):
        by_name[tuple(mutant.stored().values())[1:]].append(mutant)
    found: dict[Mutant, Mapping[str, Any]] = {}
    for each in stored:
        same = by_name.get(tuple(each[name] for name in NAMING[1:]), [])
        here = [mutant for mutant in same if mutant.file == each["file"]]
        if here or len(same) == 1:
            found[(here or same)[0]] = each
    return found


# -- the copy ------------------------------------------------------------------------------------------------


def copy_tree(folder: Path) -> None:
    """Copies what git knows or would know, and gives the copy an environment that finds the package only there."""
    copy, finished = folder / "copy", folder / "home"
    if finished.exists():
        return
    listed = subprocess.check_output(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, text=True)
    for name in listed.split("\0"):
        if name and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", copy / ".venv"], check=True)
    site = next((copy / ".venv/lib").glob("python3*/site-packages"))
    used = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    (site / "copy.pth").write_text(f"{copy / 'src'}\n{used}\n")
    for script in filter(Path.is_file, (ROOT / ".venv/bin").iterdir()):
        head = script.read_bytes()
        if head.startswith(b"#!") and not (to := copy / ".venv/bin" / script.name).exists():
            to.write_bytes(head.replace(f"{ROOT}/.venv".encode(), f"{copy}/.venv".encode()))
            to.chmod(0o755)
    (folder / "tmp").mkdir(exist_ok=True)
    finished.mkdir()


CONFINED = """
mount --bind "$1" "$1" && mount --bind "$1/tmp" /tmp && mount -o remount,bind,ro / && cd "$1/copy" && shift && exec "$@"
"""


def confine(folder: Path, arguments: Sequence[str]) -> int:
    """Runs this program again, as the first process of namespaces in which nothing else can be hurt."""
    for path in (folder / "tmp").iterdir():  # of a run that was interrupted
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    python = folder / "copy/.venv/bin/python"
    script = shutil.copy(__file__, folder)  # this one may be edited meanwhile
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # which ends the child
    command = ["sh", "-c", CONFINED, "sh", str(folder), str(python), str(script)]
    kept = {name: value for name in ("PATH", "LANG", "TERM") if (value := os.environ.get(name)) is not None}
    environ = {**kept, "HOME": str(folder / "home")}
    inside = [*unshare, *command, "--inside", str(folder), *arguments]
    return subprocess.run(inside, env=environ, check=False).returncode


# -- within the namespaces -----------------------------------------------------------------------------------


class Measuring:
    """A plugin of pytest: which lines each test runs, how long it takes, and whether it starts a program."""

    def __init__(self, coverage: Any) -> None:
        self.coverage, self.tests, self._starts = coverage, dict[str, Any](), False
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: object) -> None:
        if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "socket.sendmsg"):
            self._starts = True

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._starts = False
        self.coverage.switch_context(nodeid)
        self.tests[nodeid] = [-self._cost(), False, True]

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.tests[report.nodeid][2] &= report.outcome == "passed"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.tests[nodeid][0] += self._cost()
        self.tests[nodeid][1] = self._starts
        self.coverage.switch_context("")

    def _cost(self) -> float:
        """The processor's time, and a part of the time that passes: the machine may be busy, or the test may wait."""
        times = os.times()
        return sum(times[:4]) + times.elapsed / 8


class Choosing:
    """A plugin of pytest: runs the wanted tests in their order, and writes down which one fails."""

    def __init__(self, wanted: Sequence[str], failed: Path) -> None:
        self.wanted, self.failed = {name: number for number, name in enumerate(wanted)}, failed

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((each for each in items if each.nodeid in self.wanted), key=lambda it: self.wanted[it.nodeid])

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.write_text(report.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed.exists():
            self.failed.write_text(report.nodeid)


def in_child(folder: Path, seconds: float, arguments: Sequence[str], plugin: Any, finish: Any = None) -> int | None:
    """The exit code of pytest in a process of its own, or None if it hangs. Whatever it leaves running is ended."""
    child = os.fork()
    if child == 0:
        code = 2  # as pytest does for what is not a failed test
        try:
            log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream, opened in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
                os.dup2(opened, stream)
            os.setsid()
            resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
            import pytest

            early = "-Wignore::pytest.PytestAssertRewriteWarning"  # plugins are loaded before the fork
            usual = ["-p", "no:cacheprovider", "--tb=short", "--basetemp=/tmp/tests", early]
            code = int(pytest.main([*usual, *arguments], plugins=[plugin]))
            if finish is not None:
                finish()
        finally:
            os._exit(code)
    deadline, code = time.monotonic() + seconds, None
    while code is None and time.monotonic() < deadline:
        ended, status = os.waitpid(-1, os.WNOHANG)  # as the first process here, also those that lost their parent
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
        elif not ended:
            time.sleep(0.01)
    try:
        os.kill(-1, signal.SIGKILL)  # all that this namespace has
        while True:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        return code


def measure(folder: Path, packages: Sequence[str], chosen: Sequence[str]) -> None:
    """Runs the tests of each folder under coverage, or the chosen ones, or those of some packages, if not yet done."""
    import coverage

    folders = [path for path in Path("tests").iterdir() if path.is_dir() and any(path.rglob("test_*.py"))]
    folders = [path for path in folders if not packages or path.name in packages]
    folders = [Path(name) for name in chosen] or folders
    for tests in sorted(folders, key=lambda path: sum(file.stat().st_size for file in path.rglob("*.py"))):
        name = ".".join(tests.parts[1:])
        done = folder / f"{name}.tests.json"
        if done.exists():
            continue
        data = folder / f"{name}.coverage"
        data.unlink(missing_ok=True)
        source = str(folder / "copy/src/swink_agent")
        # Made before the fork and started in it, as coverage counts from where the package is loaded.
        measured = coverage.Coverage(data_file=str(data), source=[source], config_file=False, messages=False)
        plugin = Measuring(measured)

        def finish(measured: Any = measured, plugin: Measuring = plugin, done: Path = done) -> None:
            measured.stop()
            measured.save()
            done.write_text(json.dumps(plugin.tests))

        start = time.monotonic()
        in_child(folder, 3600, [str(tests), "--timeout=300"], _Started(measured, plugin), finish)
        if not done.exists():
            sys.exit(f"the tests of {tests} did not run to their end: {folder / 'log'}")
        found = json.loads(done.read_text())
        failed = [name for name, (_, _, passed) in found.items() if not passed]
        say(f"{tests}: {len(found)} tests in {time.monotonic() - start:.0f} s; {len(failed)} did not pass")
        (folder / f"{name}.log").write_bytes((folder / "log").read_bytes())


class _Started:
    """Starts coverage in the process that runs the tests, before they are loaded."""

    def __init__(self, measured: Any, plugin: Measuring) -> None:
        self.measured, self.plugin = measured, plugin

    def pytest_load_initial_conftests(self) -> None:
        self.measured.start()

    def pytest_configure(self, config: Any) -> None:
        config.pluginmanager.register(self.plugin)


class Reach:
    """Which tests run a line, and in which order they are best tried."""

    def __init__(self, folder: Path) -> None:
        import coverage

        self.tests: dict[str, tuple[float, bool, bool]] = {}
        self.data: list[Any] = []
        self.source = folder / "copy/src/swink_agent"
        for path in sorted(folder.glob("*.tests.json")):
            self.tests.update(json.loads(path.read_text()))
            data = coverage.CoverageData(str(folder / f"{path.name.removesuffix('.tests.json')}.coverage"))
            data.read()
            self.data.append(data)

    def for_mutant(self, mutant: Mutant, first: str | None) -> list[str]:
        lines = range(mutant.lines[0], mutant.lines[1] + 1)
        running, of_file = set[str](), set[str]()
        for data in self.data:
            for line, names in data.contexts_by_lineno(str(self.source / mutant.file)).items():
                of_file.update(names)
                if line in lines:
                    running.update(names)
        # Code outside functions runs once, while some test or none is running: any that uses the file may notice.
        running = of_file if len(running) < 2 and mutant.function.rpartition(".")[2][:1].isupper() else running
        running = of_file if mutant.function == "<module>" else running
        own = f"tests/{mutant.package if mutant.package != '.' else 'cli'}/"
        starting = {name for name, (_, starts, _) in self.tests.items() if starts and name.startswith(own)} - running
        usable = [name for name in self._ordered(running, mutant) if self._passes(name)]
        others = [name for name in self._ordered(starting, mutant) if self._passes(name)]
        front = [first] if first in self.tests else []
        chosen = _bounded([*front, *usable], self.tests, 1.0)
        return chosen + _bounded(others, self.tests, 0.5 if chosen else 1.0)

    def _passes(self, name: str) -> bool:
        return name in self.tests and self.tests[name][2]

    def _ordered(self, names: set[str], mutant: Mutant) -> list[str]:
        """In turns: of each file the cheapest, more of those files whose names suggest that they are about the code."""
        parts = {part for part in mutant.file.removesuffix(".py").split("/")[1:] if part != "__init__"}
        by_file: dict[str, list[str]] = defaultdict(list)
        for name in sorted(names & self.tests.keys(), key=lambda name: self.tests[name][0]):
            by_file[name.split("::")[0]].append(name)
        ranked: list[tuple[int, int, float, str]] = []
        for file, tests in by_file.items():
            is_own = file.startswith(f"tests/{mutant.package}/")
            is_about = is_own and parts & {*file.removesuffix(".py").replace("/test_", "/").split("/")[2:]}
            near = 0 if is_about else 1 if is_own else 2
            for number, name in enumerate(tests):
                ranked.append((number // (16, 6, 2)[near], near, self.tests[name][0], name))
        return [name for *_, name in sorted(ranked)]


def _bounded(names: Sequence[str], tests: Mapping[str, Any], share: float) -> list[str]:
    chosen, files, seconds = list[str](), set[str](), 0.0
    for name in dict.fromkeys(names):
        file, cost = name.split("::")[0], tests[name][0]
        if (seconds + cost <= MOST_SECONDS * share and len(files | {file}) <= MOST_FILES * share) or not chosen:
            chosen.append(name)
            files.add(file)
            seconds += cost
        if len(chosen) >= MOST_TESTS * share:
            break
    return chosen


def verdict(folder: Path, reach: Reach, mutant: Mutant, first: str | None, tick: Iterator[int]) -> tuple[str, str]:
    """Caught, hung or missed, and the test that noticed."""
    path = folder / "copy/src/swink_agent" / mutant.file
    wanted, failed = reach.for_mutant(mutant, first), folder / "failed"
    if not wanted:
        return "missed", ""
    original, kept = path.read_bytes(), folder / "original"
    kept.with_suffix(".new").write_bytes(f"{path}\n".encode() + original)
    kept.with_suffix(".new").rename(kept)
    try:
        path.write_bytes(changed(folder / "copy/src/swink_agent", mutant))
        os.utime(path, (moment := next(tick), moment))  # compiled files go by time and size
        for again in (False, True):
            failed.unlink(missing_ok=True)
            seconds = 60 + 5 * sum(reach.tests[name][0] for name in wanted)
            files = sorted({name.split("::")[0] for name in wanted})
            code = in_child(folder, seconds, [*files, "-x", "--timeout=60"], Choosing(wanted, failed))
            by = failed.read_text() if failed.exists() else ""
            if code in (0, 5):
                return "missed", ""
            if code is None:
                return "hung", ""
            if again or by not in reach.tests or not reach.tests[by][1]:
                break
            wanted = [by]  # a test that starts programs may fail because the machine is busy
        return "caught", by
    finally:
        restore(folder, next(tick))


def restore(folder: Path, moment: int) -> None:
    """Undoes a change, also after an interruption."""
    if (kept := folder / "original").exists():
        name, _, original = kept.read_bytes().partition(b"\n")
        Path(name.decode()).write_bytes(original)
        os.utime(name, (moment, moment))
        kept.unlink()


def run_inside(folder: Path, options: argparse.Namespace) -> None:
    tick = itertools.count(int(time.time()) - 1_000_000_000)  # never the same, also after an interruption
    restore(folder, next(tick))
    for name in PRELOADED:
        try:
            __import__(name)  # all children have it loaded then
        except ImportError:
            pass
    measure(folder, options.package, options.tests)
    if options.measure:
        return
    package = folder / "copy/src/swink_agent"
    before = json.loads(options.compare.read_text())["mutants"] if options.compare else []
    hints = found_again(package, before)
    chosen = list(hints) if before else sample(package, options.seed, options.count)
    chosen = [each for each in chosen if not options.package or each.package in options.package]
    reach, kept = Reach(folder), folder / "verdicts"
    lines = map(json.loads, kept.read_text().splitlines()) if kept.exists() else ()
    # A mutant that was missed is tried again once the tests of more folders are measured.
    known = {name: made for name, made, folders in lines if made[0] != "missed" or folders >= len(reach.data)}
    results: list[dict[str, Any]] = []
    for number, mutant in enumerate(chosen, 1):
        name = json.dumps(mutant.stored())
        if name not in known:
            known[name] = verdict(folder, reach, mutant, hints.get(mutant, {}).get("by"), tick)
            with kept.open("a") as file:
                file.write(json.dumps([name, known[name], len(reach.data)]) + "\n")
        outcome, by = known[name]
        say(f"{number}/{len(chosen)} {outcome}: {mutant.title[:150]}")
        results.append({**mutant.stored(), "verdict": outcome, "by": by})
    seed = json.loads(options.compare.read_text())["seed"] if options.compare else options.seed
    write(folder / "result.json", seed, results)
    lost = [made for made, each in hints.items() if each["verdict"] != "missed" and made in chosen]
    lost = [made for made in lost if known[json.dumps(made.stored())][0] == "missed"]
    if before:
        say(f"The code of {len(before) - len(hints)} of {len(before)} mutants is gone.")
        say(
            "\n".join(["Caught before and missed now:", *(each.title for each in lost)]) if lost else "Nothing is lost."
        )


def write(path: Path, seed: int, results: Sequence[Mapping[str, Any]]) -> None:
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in results)
    path.write_text(f'{{"seed": {seed}, "mutants": [\n{lines}\n]}}\n', encoding="utf-8")


def table(path: Path) -> str:
    mutants = json.loads(path.read_text(encoding="utf-8"))["mutants"]
    rows = [f"{'package':<12}{'mutants':>9}{'caught':>8}{'missed':>8}"]
    packages = sorted({each["file"].split("/")[0] if "/" in each["file"] else "." for each in mutants})
    for package in [*packages, "all"]:
        of_it = [each for each in mutants if package == "all" or each["file"].split("/")[0] == package]
        if package == ".":
            of_it = [each for each in mutants if "/" not in each["file"]]
        missed = sum(each["verdict"] == "missed" for each in of_it)
        rows.append(f"{package:<12}{len(of_it):>9}{len(of_it) - missed:>8}{missed:>8}")
    return "\n".join(rows)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=40)
    parser.add_argument("--count", type=int, default=320)
    parser.add_argument("--package", action="append", default=[], help="only mutants of this, and tests of its folder")
    parser.add_argument("--tests", action="append", default=[], help="only these tests: a file or folder in tests/")
    parser.add_argument("--out", type=Path, help="where the verdicts are written, as JSON")
    parser.add_argument("--compare", type=Path, help="a stored run: its mutants again, and those that are missed now")
    parser.add_argument("--table", type=Path, help="show the figures of a stored run, and run nothing")
    parser.add_argument("--folder", type=Path, help="where the copy and the coverage are kept")
    parser.add_argument("--measure", action="store_true", help="run the tests under coverage, and nothing else")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        run_inside(options.inside, options)
    elif options.table is not None:
        say(table(options.table))
    else:
        folder = options.folder or Path(tempfile.mkdtemp(prefix="swink-mutants-", dir="/var/tmp"))
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.resolve()
        copy_tree(folder)
        if options.compare is not None:
            options.compare = options.compare.resolve()
        passed = [f"--seed={options.seed}", f"--count={options.count}", *(["--measure"] if options.measure else [])]
        passed += [*(f"--package={name}" for name in options.package), *(f"--tests={path}" for path in options.tests)]
        passed += [f"--compare={options.compare}"] if options.compare else []
        if (code := confine(folder, passed)) or options.measure:
            sys.exit(code)
        say(table(folder / "result.json"))
        if options.out is not None:
            shutil.copy(folder / "result.json", options.out)
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
