"""Wrong command lines: one line with the reason, exit code 2, nothing on stdout, and no question."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

AGES = ("3x", "30", "d", "-1d", "1 month", "30days", "9999999d", "")
# Each with a part of what is said. `{home}` stands for the home of the test.
WRONG = [
    # what click finds
    (["--nosuch", "-p", "x"], "swink has no option '--nosuch'; see swink --help"),
    (["--modle", "x", "-p", "x"], "swink has no option '--modle'; did you mean --model?"),
    (["-p", "x", "--aprove", "all"], "swink has no option '--aprove'; did you mean --approve?"),
    (["-p", "x", "--max-turns", "abc"], "--max-turns cannot be 'abc': it must be a whole number"),
    (["-p", "x", "--max-cost", "abc"], "--max-cost cannot be 'abc': it must be a number"),
    (
        ["-p", "x", "--thinking", "hihg"],
        "--thinking cannot be 'hihg': did you mean high? It must be one of off, minimal",
    ),
    (["-p"], "-p needs a prompt"),
    (["-m"], "-m needs a value"),
    (["-p", "x", "--quiet=3"], "--quiet takes no value"),
    (["sessions", "foo"], "swink sessions has no command 'foo'; there are: export, fork, import, list"),
    (["sessions", "lst"], "swink sessions has no command 'lst'; did you mean list?"),
    (["sessions", "help"], "swink sessions has no command 'help'; write swink sessions --help"),
    (["sessions", "show"], "ID is missing; usage: swink sessions show [OPTIONS] ID"),
    (["sessions", "rename", "x"], "TITLE is missing; usage: swink sessions rename [OPTIONS] ID TITLE"),
    (["sessions", "prune"], "--older-than is missing; usage: swink sessions prune"),
    (["sessions", "fork", "x", "--at", "y"], "--at cannot be 'y': it must be a whole number"),
    (["sessions", "search", "x", "-n", "0"], "--limit cannot be 0: it must be a whole number from 1 to 1000"),
    (["sessions", "list", "--al"], "swink sessions list has no option '--al'; did you mean --all?"),
    (["completion"], "{bash|zsh|fish} is missing; usage: swink completion"),
    (["completion", "tcsh"], "SHELL cannot be 'tcsh': it must be one of bash, zsh, fish"),
    (["proxy", "--port", "99999"], "--port cannot be 99999: it must be a whole number from 0 to 65535"),
    (["proxy", "--port", "x"], "--port cannot be 'x': it must be a whole number from 0 to 65535"),
    (["proxy", "foo"], "'foo' is not expected; usage: swink proxy [OPTIONS]"),
    (["undo", "foo"], "'foo' is not expected; usage: swink undo [OPTIONS]"),
    (["doctor", "foo"], "'foo' is not expected; usage: swink doctor [OPTIONS]"),
    (["models", "pull", "a", "b", "c"], "'b c' is not expected; usage: swink models pull [OPTIONS] [NAME]"),
    (["eval", "run"], "SET is missing; usage: swink eval run [OPTIONS] SET"),
    (["eval", "run", "x.yaml", "--parallel", "0"], "--parallel cannot be 0: it must be a whole number, 1 or more"),
    (["eval", "run", "x.yaml", "--timeout", "0"], "--timeout cannot be 0: it must be a number above 0"),
    (["eval", "gate", "x", "--min-pass-rate", "3"], "--min-pass-rate cannot be 3: it must be a number from 0 to 1"),
    (["eval", "gate", "x", "--max-duration", "y"], "--max-duration: 'y' is not a time: write 90, 90s, 5m or 1h"),
    (["eval", "gate", "x"], "nothing to check: give --min-pass-rate, --min-pass-rate-low, --max-cost"),
    (["keys", "set"], "PROVIDER is missing; usage: swink keys set [OPTIONS] PROVIDER"),
    (["keys", "set", "openai", "--store", "fil"], "--store cannot be 'fil': did you mean file? It must be one of"),
    (["config", "set", "model"], "VALUE is missing; usage: swink config set [OPTIONS] NAME VALUE"),
    (["-p", "x", "models"], "--prompt goes with a prompt (-p), not with the command models"),
    (["-m", "x", "models"], "--model goes with a prompt (-p), not with the command models"),
    (["--no-network", "models"], "--no-network goes with a prompt (-p), not with the command models"),
    # words that are no command
    (["sesions"], "swink has no command 'sesions'; did you mean sessions?"),
    (["sesions", "list"], "swink has no command 'sesions'; did you mean sessions?"),
    (["help", "sesions"], "swink has no command 'sesions'; did you mean sessions?"),
    (["help", "doctor", "foo"], "swink doctor has no subcommands"),
    (["chat", "-p", "x"], "chat and tui open the terminal UI, and -p prints one answer without it"),
    ([], "stdin is not a terminal. For one answer: swink -p"),
    (["-c"], "stdin is not a terminal. For one answer: swink -p"),
    (["--inline"], "stdin is not a terminal. For one answer: swink -p"),
    (["fix it", "--inline"], "stdin is not a terminal. For one answer: swink -p"),
    (["chat", "fix it", "-m", "xai:grok"], "stdin is not a terminal. For one answer: swink -p"),
    (["tui"], "stdin is not a terminal"),
    # names of models, providers, settings
    (["-p", "x", "-m", "openai:"], "'openai:' has no model after the colon; did you mean openai:gpt-"),
    (["-p", "x", "-m", "anthropc"], "no model is called 'anthropc'; did you mean anthropic?"),
    (["-p", "x", "-m", "openai/gpt-4o"], "did you mean openai:gpt-4o?"),
    (["-p", "x", "-m", "local:nosuch"], "there is no local model 'nosuch'; known are"),
    (["-p", "x", "-m", ""], "--model cannot be '': it must be a non-empty text"),
    (["-p", "x", "--temperature", "2.5"], "--temperature cannot be 2.5: it must be a number from 0 to 2"),
    (["-p", "x", "--max-tokens", "0"], "--max-tokens cannot be 0: it must be a whole number, 1 or more"),
    (["models", "pull", "smolm2"], "there is no local model 'smolm2'; did you mean smollm2-135m?"),
    (["models", "pull", ""], "'local:' has no model after the colon"),
    (["models", "rm", "smolm2"], "there is no local model 'smolm2'; did you mean smollm2-135m?"),
    (["models", "rm", "smollm2-135m"], "smollm2-135m is not on this machine"),
    (["models", "list", "nosuch"], "no model has 'nosuch' in its name; swink models list --all"),
    (["models", "list", "nosuch", "--json"], "no model has 'nosuch' in its name; swink models list --all"),
    (["keys", "set", "antropic"], "no provider is called 'antropic'; did you mean anthropic?"),
    (["keys", "set", ""], "no provider is called ''; there are: anthropic"),
    (["keys", "set", "local"], "models on this machine need no key"),
    (["keys", "remove", "antropic"], "no provider is called 'antropic'; did you mean anthropic?"),
    (["keys", "remove", "openai"], "no key of openai is stored"),
    (["config", "get", ""], "no setting is called ''; there are: model"),
    (["config", "get", ""], "base_url.ollama, aliases.NAME"),
    (["config", "get", "aliases"], "no setting is called aliases; write aliases.NAME, such as aliases.fast"),
    (["config", "get", "aliases.fast"], "no alias is called fast"),
    (["config", "set", "modle", "x"], "no setting is called modle; did you mean model?"),
    (["config", "set", "aliases.fast", "anthropc"], "no model is called 'anthropc'; did you mean anthropic?"),
    (["config", "unset", "aliases.fast"], "aliases.fast is not set in {home}/config/config.toml"),
    (["config", "set", "approve", "sure"], "approve cannot be 'sure'"),
    (["config", "unset", "model"], "model is not set in {home}/config/config.toml"),
    (["config", "set", "model", "claude-sonet-4-6"], "no model is called 'claude-sonet-4-6'; did you mean"),
    (["-p", "x", "--tools", "hammer"], "--tools cannot be"),
    (["-p", "x", "--max-turns", "0"], "--max-turns cannot be 0"),
    (["-p", "x", "-m", "antropic:x"], "did you mean anthropic? There are: "),
    (["-p", "x", "-m", "qqqqq:x"], "no provider is called 'qqqqq'; there are: "),
    (["-p", "x", "-m", "qqqqq"], "such as anthropic:claude-sonnet-4-6; `swink models` lists them"),
    (["-p", "x", "--allow", "mcp__*"], "mcp__SERVER__*"),
    (["-p", "x", "--inline"], "--inline is for the terminal UI"),
    (["mcp", "test", "two"], "two"),
    # prompts
    (["-p", ""], "the prompt is empty"),
    (["-qp"], "-p needs a prompt"),
    (["-cm", "anthropic", "fix it"], "there is no session of"),  # the last flag takes its value
    (["fix", "it", "-cm", "anthropic"], "there is no session of"),
    # schemas
    (["-p", "x", "--schema", "wrong.json"], "is not a JSON Schema that can be used"),
    (["-p", "x", "--schema", ""], "an empty text names no file (--schema)"),
    (["-p", "x", "--schema", "/"], "/ is a folder (--schema)"),
    (["-p", "x", "--schema", "nosuch.json"], "nosuch.json cannot be read: No such file or directory (--schema)"),
    (["-p", "x", "--schema", '{"type": '], "the schema is not JSON: line 1, column 10: a value is missing (--schema)"),
    (["-p", "x", "--schema", '{"a": 1\n"b": 2}'], "the schema is not JSON: line 2, column 1: a comma is missing"),
    (["-p", "x", "--schema", "[1]"], "the schema is JSON, but a JSON Schema must be an object (--schema)"),
    (
        ["-p", "x", "--schema", '{"type": "objct"}'],
        'type cannot be "objct": did you mean object? It must be one of string',
    ),
    (
        ["-p", "x", "--schema", '{"properties": {\n"a": {\n"type": "strng"}}}'],
        'line 3: properties.a.type cannot be "strng": did you mean string?',
    ),
    (["-p", "x", "--schema", '{"required": "a"}'], 'required cannot be "a": it must be a list (--schema)'),
    (["-p", "x", "--schema", '{"properties": 3}'], "properties cannot be 3: it must be an object (--schema)"),
    (["-p", "x", "--schema", '{"minLength": "a"}'], 'minLength cannot be "a": it must be a whole number (--schema)'),
    (["-p", "x", "--schema", '{"pattern": "("}'], 'pattern cannot be "(": it must be a regular expression (--schema)'),
    (["-p", "x", "--schema", '{"$ref": "#/nope"}'], "Pointer '/nope' does not exist (--schema)"),
    # folders, files, ids
    (["config", "trust", ""], "an empty text is not a folder that can be trusted"),
    (["config", "trust", "/no/such"], "/no/such is not a folder that can be trusted"),
    (["config", "trust", "/etc/passwd"], "/etc/passwd is not a folder that can be trusted"),
    (["config", "trust", "~nobody-of-that-name/work"], "is not a path: there is no user of that name (config trust)"),
    (["-p", "x", "-C", ""], "an empty text names no folder (--cwd)"),
    (["-p", "x", "-C", "/not/there"], "/not/there is not a folder (--cwd)"),
    (["-p", "x", "--add-dir", ""], "an empty text names no folder (--add-dir)"),
    (["-p", "x", "--resume", ""], "there is no session ''"),
    (["undo", "-C", ""], "an empty text names no folder (--cwd)"),
    (["undo", "-C", "/no/such"], "/no/such is not a folder (--cwd)"),
    (["undo", "-C", "/etc/passwd"], "/etc/passwd is not a folder (--cwd)"),
    (["undo", "--run", ""], "has an id that begins with '': see swink undo --list"),
    (["sessions", "show", ""], "there is no session ''"),
    (["sessions", "export", "nosuch"], "there is no session 'nosuch'"),
    (["sessions", "rename", "nosuch", "x"], "there is no session 'nosuch'"),
    (["sessions", "fork", "nosuch"], "there is no session 'nosuch'"),
    (["sessions", "replay", ""], "there is no session ''"),
    (["sessions", "rm", "nosuch", ""], "there is no session 'nosuch'"),
    (["sessions", "search", '"'], "there is no word to search for"),
    (["sessions", "search", " "], "there is no word to search for"),
    (["sessions", "list", "-C", ""], "an empty text names no folder (--cwd)"),
    *[(["sessions", "prune", "--older-than", age], f"'{age}' is not an age") for age in AGES],
    (["sessions", "import", "notes.txt"], "not an ATIF"),
    (["sessions", "import", "empty.json"], "no messages"),
    (["sessions", "import", "nosuch.json"], "cannot be read"),
    (["proxy", "--host", ""], "an empty text is not an address to listen at (--host)"),
    (["proxy", "--host", "0.0.0.0"], "--insecure"),
    (["web", "--no-open", "--host", "0.0.0.0"], "--insecure"),
    (["web", "--no-open", "--host", "example.org"], "--insecure"),
    (["web", "--no-open", "--host", "203.0.113.7", "--insecure"], "--host takes another"),
    (["web", "--no-open", "--tls-cert", "c.pem"], "--tls-key"),
    (["web", "--no-open", "--tls-cert", "c.pem", "--tls-key", "k.pem"], "TLS files"),
    (["web", "--no-open", "--allow-origin", "board.example"], "--allow-origin"),
    (["web", "--no-open", "--allow-origin", "https://board.example/agents"], "--allow-origin"),
    (["web", "--no-open", "--allow-host", "http://box.example"], "--allow-host"),
    (["web", "--no-open", "--allow-host", "*.example"], "--allow-host"),
    (["web", "--no-open", "--resume", "nothing"], "nothing"),
    (["-p", "x", "--file", "notes.txt"], "notes.txt is not a picture of a kind that models accept"),
    (["-p", "x", "--file", "none.pdf"], "none.pdf cannot be read: No such file or directory (--file)"),
    (["-p", "x", "--file", "."], "is a folder"),
    (["-p", "x", "--image", "report.pdf"], "report.pdf is not a picture"),
    (["-p", "x", "--image", "none.png"], "cannot be read"),
    (["-p", "x", "--image", "."], "is a folder"),
    (
        ["-p", "x", "--file", "report.pdf", "-m", "mistral:mistral-medium-latest"],
        "mistral:mistral-medium-latest takes no documents: leave --file out, or choose a model of another provider "
        "(anthropic, openai, gemini, openai-responses, bedrock)",
    ),
    (["-p", "x", "--file", "report.pdf", "-m", "openai:o3-mini"], "openai:o3-mini takes no documents"),
    (["eval", "run", ""], "an empty text names no file with cases"),
    (["eval", "run", "nosuch.yaml"], "nosuch.yaml: cannot be read: No such file or directory"),
    (["eval", "run", "/"], "/: cannot be read: Is a directory"),
    (["eval", "list", "--store", "/etc/passwd"], "/etc/passwd is not a folder (--store)"),
    (["eval", "add", "nosuch"], "there is no session 'nosuch'"),
    (["version", "--json"], "swink version has no option '--json'"),
]


KEYS = {f"{provider}_API_KEY": "a-key-of-the-tests" for provider in ("ANTHROPIC", "MISTRAL", "OPENAI")}


@pytest.fixture
def files(swink: Any) -> None:
    (swink.folder / "report.pdf").write_bytes(b"%PDF-1.4\n")
    (swink.folder / "notes.txt").write_text("{}")
    (swink.folder / "wrong.json").write_text('{"type": "nonsense"}')
    agent = {"name": "other", "version": "2", "model_name": "openai/gpt-5"}
    empty = {"schema_version": "ATIF-v1.7", "agent": agent, "steps": []}
    (swink.folder / "empty.json").write_text(json.dumps(empty))


@pytest.mark.table
@pytest.mark.parametrize(("arguments", "said"), WRONG)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    swink: Any, refused: Callable[..., str], files: None, arguments: list[str], said: str
) -> None:
    """In this process: that a process does the same is tested below."""
    keys = KEYS if arguments[0:1] != ["keys"] else {}
    assert said.replace("{home}", str(swink.home)) in refused(*arguments, **keys)
    assert not (swink.home / "config").exists()


async def test_a_process_ends_in_the_same_way(swink: Any, files: None) -> None:
    for arguments, said in WRONG[::24]:
        done = await swink(*arguments)
        assert (done.code, done.stdout) == (2, ""), done
        assert done.stderr.startswith("error: ")
        assert said.replace("{home}", str(swink.home)) in done.stderr


async def test_it_is_one_line_on_a_dumb_terminal_and_in_the_object_too(swink: Any, terminal: Any) -> None:
    terminal.resize(24, 200)
    await terminal.start("models", "pul", environ={"TERM": "dumb"})
    assert await terminal.finish() == 2
    assert terminal.shown == "error: swink models has no command 'pul'; did you mean pull?\r\n"
    done = await swink("-p", "x", "--output", "json", "--modle", "y")
    assert done.code == 2
    assert json.loads(done.stdout)["error"] == "swink has no option '--modle'; did you mean --model?"


async def test_words_for_help_and_version_say_what_the_options_say(swink: Any) -> None:
    for words, options in (
        (["help"], ["--help"]),
        (["help", "models"], ["models", "--help"]),
        (["help", "sessions", "export"], ["sessions", "export", "--help"]),
        (["version"], ["--version"]),
    ):
        by_words, by_options = await swink(*words), await swink(*options)
        assert by_words.code == by_options.code == 0
        assert (by_words.stdout, by_words.stderr) == (by_options.stdout, "")


@pytest.mark.parametrize("word", ["chat", "tui"])
async def test_the_terminal_ui_opens_by_its_name(swink: Any, terminal: Any, word: str) -> None:
    (Path(swink.home) / "config").mkdir()
    await terminal.start(word, "--inline", "-m", "anthropic", environ={"ANTHROPIC_API_KEY": "k", "TERM": "dumb"})
    await terminal.expect("anthropic:")
    terminal.type("\x04")
    assert await terminal.finish() == 0
