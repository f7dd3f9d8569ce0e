"""Checks what this repository says about itself: its English, the names in it, its map, tables, flags and changelog.

    python scripts/lint_prose.py             # every check
    python scripts/lint_prose.py flags map   # only these

Each check yields its findings as lines. The phrases and names that it refuses or takes are at the end, as examples,
and are checked first.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import io
import keyword
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src/swink_agent"
SOURCES = sorted(PACKAGE.rglob("*.py"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def page(name: str) -> str:
    return text_of(ROOT / name)


# -- plain English -------------------------------------------------------------------------------------------

PHRASES = {
    "“is no X”: write “is not an X”": (
        r"(?<!there )\b(?:is|are|was|were|be|been) no (?!(?:longer|more|less|fewer|later|earlier|[a-z]+er than)\b)[a-z]"
    ),
    "“is none”: say what it is not": r"(?<!there )\b(?:is|are|was|were) (?-i:none)\b(?! of)",
    "“any more”: write “no longer”": r"\bany ?more\b(?! than)",
    "“that there is”: name it, or say “the only”": r"\bthat there (?:is|are)(?=[.,;:)]|$| (?:is|are)\b)",
    "“Who wants …”: name who it is": (
        r"(?:^|[.;:(] )who (?:asks|calls|does|gives|has|knows|looks|makes|names|needs|reads|says|uses|wants|writes)\b"
        r"(?![^.]*\?)"
    ),
    "“what nobody …”: write a sentence with an actor": r"\bwhat nobody\b",
    "“tells of”, “says of”: reports, describes": r"\b(?:tells?|told|says?|said) of\b",
    "“comes of”, “comes to nothing”: results from, fails": r"\bc[oa]mes? (?:of|to nothing)\b",
    "“in the place of”: instead of": r"\bin the place of\b",
    "“without a word”: silently": r"\bwithout a word\b|\bnot a word (?:of|about)\b",
}
PATTERNS = {advice: re.compile(pattern, re.IGNORECASE) for advice, pattern in PHRASES.items()}


def findings(text: str) -> list[str]:
    """The problems of a text. A sentence may be on two lines."""
    joined = re.sub(r"\s*\n[ \t]*(?:# ?)?", " ", text)
    return [
        f"{advice}: …{match.group()}…" for advice, pattern in PATTERNS.items() for match in pattern.finditer(joined)
    ]


def texts_in(path: Path) -> Iterator[tuple[int, str]]:
    """The strings and comments of a Python file. Comments on consecutive lines are one text."""
    comment: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text_of(path)).readline):
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] != last + 1:
                yield first, " ".join(comment)
                comment = []
            first, last = (first if comment else token.start[0]), token.start[0]
            comment.append(token.string.lstrip("# "))
        elif token.type == tokenize.STRING or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            yield token.start[0], token.string.strip("\"'")
    if comment:
        yield first, " ".join(comment)


def check_english() -> Iterator[str]:
    for path in SOURCES:
        for number, text in texts_in(path):
            yield from (f"{shown(path)}:{number}: {found}" for found in findings(text))
    for path in PAGES:
        yield from (f"{shown(path)}: {found}" for found in findings(text_of(path)))


# -- the names of tests --------------------------------------------------------------------------------------

LONGEST_NAME = 80


def problems_of_name(name: str) -> list[str]:
    """A name is a sentence that a stranger can search for, with its subject first."""
    found = findings(name.removeprefix("test_").replace("_", " "))
    if len(name) > LONGEST_NAME:
        found.append(f"{len(name)} characters, at most {LONGEST_NAME}")
    if re.match(r"test_(what|who)(ever)?(_|$)", name):
        found.append("begins with “what” or “who”: begin with the subject")
    return found


def check_tests() -> Iterator[str]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield from (
                    f"{shown(path)}:{node.lineno}: {node.name}: {found}" for found in problems_of_name(node.name)
                )


# -- names between backticks ---------------------------------------------------------------------------------

OF_OTHERS = {
    *("AfterValidator", "HttpUrl", "NewType", "ScrollView", "Infinity", "multipleOf", "json_schema_to_grammar"),
    *("HF_ENDPOINT", "HF_TOKEN", "RESOLVE_BENEATH", "sock_filter"),
}
"""Names of other programs and libraries that our code does not use itself."""
MADE_UP = {
    *("opnai", "v1beta1", "PORT", "output_file", "configPath", "aa", "aaa", "serverPort", "server_port"),
    *("foo_bar.baz", "docs.python.org"),
}
"""Words that a comment makes up as an example."""
NAMES_OF_GIT = {"core.fsmonitor", "core.hooksPath"}

_PROSE = re.compile(r'(?ms)^[ \t]*r?""".*?"""|(?:^[ \t]*|  )# [^\n]*')
_CLASS = re.compile(r"(?m)^class (\w+)(?:\(([^)]*)\))?")
_PATH = re.compile(r"(?:[a-z]\w*/)+[a-z_]\w*(?:\.py)?/?|\w+\.py")
_DOTTED = re.compile(r"([a-z_]\w*(?:\.\w+)+)(?:\(\))?")
_MEMBER = re.compile(r"(_?[A-Z]\w+)\.(\w+)(?:\(.*\))?")
_WORD = re.compile(r"([A-Za-z_]\w*)(?:\(\))?")


@cache
def code_of(path: Path) -> str:
    """A file without its docstrings and comments."""
    return _PROSE.sub("", text_of(path))


@cache
def words_of(path: Path) -> set[str]:
    return set(re.findall(r"\w+", code_of(path)))


@cache
def modules() -> set[str]:
    """Every module and package by its path beneath ours, as in `core/run/state`."""
    found = {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in SOURCES}
    return found | {name.removesuffix("/__init__") for name in found}


@cache
def folders_of_ours() -> set[str]:
    """The first parts of our paths: packages at any depth, and folders of the repository."""
    return {part for name in modules() for part in name.split("/")} | {each.name for each in ROOT.iterdir()}


@cache
def words_in_code() -> set[str]:
    """Every name in the code, and every word in its strings: options, fields of wire formats, commands."""
    known = set(dir(builtins)) | set(keyword.kwlist) | {part for name in modules() for part in name.split("/")}
    return known.union(*map(words_of, SOURCES))


@cache
def members() -> dict[str, set[str]]:
    """The words in the files of each class of ours, by the class's name, with those of its bases."""
    own, bases = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for path in SOURCES:
        for name, inherited in _CLASS.findall(code_of(path)):
            own[name] |= words_of(path)
            bases[name].update(re.findall(r"\w+", inherited))

    def line_of(name: str, seen: set[str]) -> set[str]:
        if name not in seen:
            seen.add(name)
            for base in bases.get(name, ()):
                line_of(base, seen)
        return seen

    return {name: set[str]().union(*(own.get(each, set()) for each in line_of(name, set()))) for name in own}


@cache
def attributes() -> set[str]:
    """Every name in the code that stands behind a point, is a field or is in quotes alone, as in JSON."""
    patterns = r"\.(\w+)", r"(?m)^ +(\w+):", r"def (\w+)", r"[\"'](\w+)[\"']"
    return {name for path in SOURCES for pattern in patterns for name in re.findall(pattern, code_of(path))}


@cache
def called_in_code() -> set[str]:
    return set(dir(builtins)).union(*(re.findall(r"(\w+)\(", code_of(path)) for path in SOURCES))


def is_module(name: str) -> bool:
    """Whether a path, as deep as it is given, is one of our modules or packages."""
    return any(f"/{known}".endswith(f"/{name}") for known in modules())


def is_absolute_name(name: str) -> bool:
    """Whether a dotted name that begins with a package of ours is a module, a name in one, or a string of the code."""
    parts = name.removeprefix("swink_agent.").split(".")
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        if path in modules():
            files = [PACKAGE / f"{path}.py", PACKAGE / path / "__init__.py", PACKAGE / path / "_exports.py"]
            return length == len(parts) or any(parts[length] in words_of(file) for file in files if file.is_file())
    return any(f'"{name}"' in code_of(path) for path in SOURCES)


def is_relative_name(name: str) -> bool:
    """Whether a dotted name exists of which the first part is a module, a nested package or a variable of ours.

    A variable may be called like a module (`agent.prompt`): then the rest is an attribute somewhere.
    """
    parts = name.split(".")
    files = [path for path in SOURCES if parts[-2] in (path.stem, path.parent.name)]
    is_attribute = parts[-1] in attributes() and all(part in words_in_code() for part in parts)
    return is_module("/".join(parts)) or any(parts[-1] in words_of(file) for file in files) or is_attribute


def is_known(name: str, code: str = "") -> bool:
    """Whether what is between backticks in a file with this code exists, or is not a name of ours by its form."""
    if _PATH.fullmatch(name):
        bare = name.rstrip("/").removesuffix(".py")
        is_ours = name.endswith(".py") or bare.split("/")[0] in folders_of_ours()
        return not is_ours or is_module(bare) or (ROOT / name).exists()
    if member := _MEMBER.fullmatch(name):
        return member[1] not in members() or member[2] in members()[member[1]]
    if dotted := _DOTTED.fullmatch(name):
        first = dotted[1].split(".")[0]
        if first == "swink_agent" or first in modules():
            return is_absolute_name(dotted[1])
        is_of_another = first in sys.stdlib_module_names or find_spec(first) is not None
        return name in MADE_UP or (ROOT / name).exists() or is_of_another or is_relative_name(dotted[1])
    if word := _WORD.fullmatch(name):
        if word[1].startswith("_") and not word[1].endswith("__"):  # a module of ours, or a name of this very file
            return is_module(word[1]) or re.search(rf"\b{word[1]}\b", code) is not None
        known = called_in_code() if name.endswith("()") else words_in_code()
        return word[1] in known | OF_OTHERS | MADE_UP
    return True


def check_names() -> Iterator[str]:
    """Those in docstrings and comments, and those of files, modules and methods in the documents."""
    for path in SOURCES:
        for prose in _PROSE.finditer(text_of(path)):
            for number, line in enumerate(prose.group().split("\n"), 1 + text_of(path).count("\n", 0, prose.start())):
                unknown = [name for name in re.findall(r"`([^`\n]+)`", line) if not is_known(name, code_of(path))]
                yield from (f"{shown(path)}:{number}: `{name}` does not exist" for name in unknown)
    top = "|".join(sorted(name for name in modules() if "/" not in name and (PACKAGE / name).is_dir()))
    of_files = re.compile(r"`((?:src|tests|docs|bench|evals|examples|scripts)/[\w./-]+\.\w+)`")
    of_modules = re.compile(rf"`(?:swink_agent\.)?((?:{top})(?:\.\w+)+)[`(]")
    of_parts = re.compile(rf"`((?:{top})/[\w/]+\.py|[A-Z]\w+\.[a-z_]\w*(?:\(\))?)`")
    for path in [each for each in PAGES if each.name not in ("AGENTS.md", "CHANGELOG.md")]:
        missing = [name for name in of_files.findall(text_of(path)) if not (ROOT / name).exists()]
        missing += [name for name in of_modules.findall(text_of(path)) if not _is_in_a_module(name)]
        missing += [name for name in of_parts.findall(text_of(path)) if not is_known(name)]
        yield from (f"{shown(path)}: {name} does not exist" for name in missing)


def _is_in_a_module(name: str) -> bool:
    parts = name.split(".")
    lengths = [length for length in range(len(parts), 0, -1) if "/".join(parts[:length]) in modules()]
    return name in NAMES_OF_GIT or (bool(lengths) and is_absolute_name(".".join(parts[: lengths[0] + 1])))


# -- AGENTS.md -----------------------------------------------------------------------------------------------


def check_map() -> Iterator[str]:
    """The map, the layers and the names in AGENTS.md are those of the code."""
    text = page("AGENTS.md")
    blocks = re.findall(r"(?ms)^```\w*\n(.*?)^```$", text)
    (drawn,) = [block for block in blocks if block.startswith("src/swink_agent/\n")]
    on_map: dict[Path, set[str]] = {}
    around: list[tuple[int, Path]] = []
    for line in drawn.splitlines():
        first, indent = line.split()[0], len(line) - len(line.lstrip())
        while around and around[-1][0] >= indent:
            around.pop()
        if first.endswith("/"):
            around.append((indent, (around[-1][1] if around else Path()) / first))
        on_map.setdefault(around[-1][1], set()).update(re.findall(r"[\w/]+\.py\b", line))
    packages = {module.parent.relative_to(ROOT) for module in SOURCES} - {PACKAGE.relative_to(ROOT)}
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    folders = {Path(name).parts[0] for name in listed.split("\0") if "/" in name and not name.startswith(".")}
    unknown = packages - on_map.keys() | {Path(name) for name in folders - {each.parts[0] for each in on_map}}
    yield from (f"AGENTS.md: {folder}/ has no line on the map" for folder in sorted(unknown))
    named = {folder / name for folder, names in on_map.items() for name in ("", *names)}
    yield from (f"AGENTS.md: the map shows {path}" for path in sorted(named) if not (ROOT / path).exists())

    (arrows,) = [block for block in blocks if "→" in block]
    described = [{"testing"}, *(set(layer.strip("{} ").split()) for layer in arrows.strip().split("→"))]
    contracts = tomllib.loads(page("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    checked = [set(re.findall(r"swink_agent\.(\w+)", layer)) for layer in layers]
    if described != checked:
        yield "AGENTS.md: the layers are not those in pyproject.toml"
    if {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()} != set().union(*checked):
        yield "pyproject.toml: the layers do not have every package"

    for owner, name in re.findall(r"`(_?[A-Z]\w+)\.(\w+)`", text):
        if name not in members().get(owner, ()):
            yield f"AGENTS.md: {owner}.{name} does not exist"
    for path in set(re.findall(r"`([\w./-]+\.(?:py|txt|toml)|\.ci/\w+)`", text)):
        if not any((place / path).is_file() for place in (ROOT, PACKAGE, PACKAGE / "core")):
            yield f"AGENTS.md: {path} does not exist"


def check_modules() -> Iterator[str]:
    """One name for one thing: no two modules of one package have the same name, in whatever folders they are."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in SOURCES:
        place = path.relative_to(PACKAGE)
        if len(place.parts) > 1 and path.stem not in ("__init__", "_exports"):
            found[place.parts[0], path.stem].append(shown(path))
    for key, places in found.items():
        if len(places) > 1 and key != ("sandbox", "backend"):  # both back ends have a module of this name
            yield f"one name for several modules: {', '.join(places)}"


# -- flags, tables, changelog --------------------------------------------------------------------------------

_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b(?!-)")
_COMMAND = re.compile(r"\bswink((?: [a-z]+)*)[^`,;:()]*$")
"""A command line that continues to the end of the text."""
SPEAKING = ("app", "cli", "tui", "local", "evals", "memory", "core", "policies", "adapters")
"""The packages with messages for users of the command."""


def flags_by_command() -> dict[str, set[str]]:
    import click

    from swink_agent.cli.root import swink

    found: dict[str, set[str]] = {}

    def visit(command: click.Command, parent: click.Context | None) -> None:
        ctx = click.Context(command, parent=parent, info_name=command.name if parent else "swink")
        options = [item for item in command.get_params(ctx) if isinstance(item, click.Option)]
        found[ctx.command_path] = {flag for option in options for flag in (*option.opts, *option.secondary_opts)}
        for name in command.list_commands(ctx) if isinstance(command, click.Group) else ():
            if (inner := command.get_command(ctx, name)) is not None:
                visit(inner, ctx)

    visit(swink, None)
    return found


def named_command(text: str, known: dict[str, set[str]]) -> str | None:
    """The command at the end of the text, with as many of its words as make a command."""
    if (match := _COMMAND.search(text)) is None:
        return None
    words = match[1].split()
    while " ".join(["swink", *words]) not in known:
        words.pop()
    return " ".join(["swink", *words])


def messages_in(path: Path) -> Iterator[tuple[int, str]]:
    """The texts in a module that have words and a flag; an argument for another program has no words."""
    for node in ast.walk(ast.parse(text_of(path))) if "--" in text_of(path) else ():
        match node:
            case ast.JoinedStr(values=values):
                text = "".join(str(item.value) if isinstance(item, ast.Constant) else "{}" for item in values)
            case ast.Constant(value=str(text)):
                pass
            case _:
                continue
        if "--" in text and " " in text.strip():
            yield node.lineno, text


def check_flags() -> Iterator[str]:
    """Flags that are named in messages, help and documents exist."""
    known = flags_by_command()
    every = set[str]().union(*known.values())
    for path in SOURCES:
        # The scripts for completion use flags of other programs.
        if path.relative_to(PACKAGE).parts[0] in SPEAKING and path != PACKAGE / "cli/completion/scripts.py":
            for line, text in messages_in(path):
                for match in _FLAG.finditer(text):
                    command = named_command(text[: match.start()].rpartition("\n")[2], known)
                    if match[0] not in (every if command is None else known[command]):
                        yield f"{shown(path)}:{line}: {match[0]} is not a flag of {command or 'any command'}"
    for path in [each for each in PAGES if each.name not in ("AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md")]:
        for number, line in enumerate(text_of(path).splitlines(), 1):
            is_code = line.startswith(("swink ", "git diff | swink"))
            for code in [line] if is_code else re.findall(r"`(swink [^`]*)`", line):
                command = named_command(code.partition("#")[0].partition(" -")[0], known)
                for flag in _FLAG.findall(re.sub(r'"[^"]*"|\'[^\']*\'', "", code)):
                    if command is not None and flag not in known[command]:
                        yield f"{shown(path)}:{number}: {flag} is not a flag of {command}"


def tables() -> Iterator[tuple[str, str, Iterable[str]]]:
    """Pages with tables that have every name of something, and the line above the table."""
    agent, records = (importlib.import_module(name) for name in ("swink_agent", "swink_agent.core.record"))
    run = agent.RunRecord
    fields = {name for name, member in vars(run).items() if isinstance(member, property)}
    fields.update(records.TurnRecord.__struct_fields__, records.CallRecord.__struct_fields__)
    output, headless, errors = (
        importlib.import_module(f"swink_agent.app.{name}") for name in ("runs.output", "runs.headless", "errors")
    )
    settings, talk = (importlib.import_module(f"swink_agent.app.{name}") for name in ("settings", "talk.commands"))
    keys, servers = (importlib.import_module(f"{settings.__name__}.{name}") for name in ("key_bindings", "mcp_servers"))
    provider = importlib.import_module("swink_agent.adapters.kit").ProviderDescription
    case = importlib.import_module("swink_agent.evals").EvalCase
    info = importlib.import_module("swink_agent.memory").SessionInfo
    yield "agent.md", "| Field of an `AgentResult` |", {*agent.AgentResult.__struct_fields__, "text", "total_usage"}
    yield "events.md", "| a record (`RunRecord`) |", fields
    yield "sessions.md", "| Field of a `SessionInfo` |", info.__struct_fields__
    yield "loop.md", "| `ErrorKind` | What it means |", [kind.value for kind in agent.ErrorKind]
    yield "loop.md", "| Outcome | |", [outcome.value for outcome in agent.ToolOutcome]
    yield "providers.md", "| Field | |", provider.__struct_fields__
    yield "evals.md", "| Field | |", case.__struct_fields__
    yield "cli.md", "| Field | |", output.summary(headless.Outcome(exit_code=errors.ExitCode.DONE)).keys()
    yield "mcp.md", "| Key | |", servers.SERVER_KEYS
    yield "tui.md", "| Action | Usual keys | |", [action.name for action in keys.ACTIONS]
    yield "tui.md", "## Commands\n", [command.name for command in talk.COMMANDS]


def check_tables() -> Iterator[str]:
    """Tables in the guides have every name that the code has: fields, actions, commands, outcomes."""
    for name, heading, wanted in tables():
        _, found, rest = page(f"docs/{name}").partition(heading)
        if not found:
            yield f"docs/{name}: no table follows {heading!r}"
            continue
        spans = re.findall(r"`([^`]+)`", rest.strip("\n").partition("\n\n")[0])
        missing = set(wanted) - {word for span in spans for word in re.findall(r"[#/]?[\w.]+", span)}
        if missing:
            yield f"docs/{name}: the table after {heading.strip()!r} has no {', '.join(sorted(missing))}"


MOST_WORDS = 25


def check_changelog() -> Iterator[str]:
    """It can be read in a minute: one heading for each version, three kinds of lines, short lines."""
    text = page("CHANGELOG.md")
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    if versions != sorted(set(versions), reverse=True) or not versions[-1].startswith("0.1 "):
        yield "CHANGELOG.md: each version has one heading, the newest first"
    for version in versions:
        if not re.fullmatch(r"\d+\.\d+(\.\d+)? \((unreleased|\d{4}-\d\d-\d\d)\)", version):
            yield f"CHANGELOG.md: {version}: write the number and the date, or “unreleased”"
    for part in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.*)$", part, re.MULTILINE)
        if kinds != [kind for kind in ("Added", "Changed", "Fixed") if kind in kinds]:
            yield f"CHANGELOG.md: the headings {', '.join(kinds)}: write Added, Changed, Fixed, in this order"
    for line in filter(str.strip, text.partition("\n## ")[2].splitlines()):
        if not line.startswith(("- ", "### ", "0.", "## ", "**")):
            yield f"CHANGELOG.md: one line for each item: {line}"
        if line.startswith("- ") and len(line[2:].split()) > MOST_WORDS:
            yield f"CHANGELOG.md: more than {MOST_WORDS} words: {line}"


# -- the checks themselves -----------------------------------------------------------------------------------

NOT_PLAIN = """\
'x' is no command
what is no JSON object keeps its text
these are no numbers
a value that is none
nobody reads it any more
the one that there is is 'sse'
Who wants another one says so.
It is read once. Who asks again gets the same.
What nobody can watch is ended.
the error tells of it
what the provider says of itself
a request that came to nothing
what comes of it
it stands in the place of the value
it ends without a word"""
PLAIN = """\
There is no file of that name, and there are no others.
The file is no longer open. It is no larger than that, and no more than 10 are kept.
None of them is none of ours; if there is none, it is made.
It does not say that any more than the other does.
It says that there is a limit and that there are no exceptions.
The person who wants it asks. Who wants it?
Says nothing of the kind? It tells the model what happened.
It comes to the same, and goes on until the end.
The answer is no. A limit is None if unknown, and it is not a word or code.
A variable shows that there are credentials."""
EXIST = (
    "core/lazy.py run/transcript docs/evals.md application/json core.journal swink_agent.core.types.Usage asyncio.run "
    "opening.read_contents log.records agent.prompt() Agent.prompt() ModelSpec.parse Popen.wait extract_text"
)
DO_NOT_EXIST = (
    "core/lost.py run/lost lost_module.py swink_agent.core.lost core.diffs opening.read_nothing log.tally "
    "agent.tally_up() Agent.lost extract_lost() lost() _lost_helper LostClass"
)
WRONG_TEST_NAMES = ("test_what_is_read_stays", "test_who_asks", "test_a_text_is_no_path", "test_" + "long" * 20)


def check_examples() -> Iterator[str]:
    """The checks find what they should, and nothing else."""
    yield from (f"found too little in: {text}" for text in NOT_PLAIN.splitlines() if len(findings(text)) != 1)
    yield from (f"found too much in: {text}" for text in PLAIN.splitlines() if findings(text))
    yield from (f"taken for a name that does not exist: {name}" for name in EXIST.split() if not is_known(name))
    yield from (f"taken for a name that exists: {name}" for name in DO_NOT_EXIST.split() if is_known(name))
    yield from (f"not found in: {name}" for name in WRONG_TEST_NAMES if not problems_of_name(name))
    if problems_of_name("test_delete_removes_remains_of_sessions"):
        yield "found too much in the name of a test"


CHECKS = {
    "examples": check_examples,
    "english": check_english,
    "tests": check_tests,
    "names": check_names,
    "map": check_map,
    "modules": check_modules,
    "flags": check_flags,
    "tables": check_tables,
    "changelog": check_changelog,
}


def main() -> int:
    found = [line for name in sys.argv[1:] or CHECKS for line in CHECKS[name]()]
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
