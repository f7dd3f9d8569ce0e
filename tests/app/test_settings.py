"""Settings: where each value comes from, and the errors for invalid values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.app.errors import SettingsError
from swink_agent.app.settings.settings import (
    DEFINITIONS,
    STANDARD_TOOLS,
    add_hosts,
    load_settings,
    parse_file,
    parse_value,
    set_value,
    unset_value,
)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_last_one_that_says_something_wins_and_each_value_knows_its_source(tmp_path: Path) -> None:
    user = write(tmp_path / "config.toml", 'model = "a:user"\nthinking = "low"\nmax_turns = 10\ntimeout = 5\n')
    project = parse_file("/p/.swink/config.toml", b'model = "a:project"\nthinking = "high"\nmax_turns = 3\n')
    settings = load_settings(
        path=user,
        project=project,
        environ={"SWINK_THINKING": "medium", "SWINK_APPROVE": "none", "SWINK_TOOLS": ""},
        flags={"approve": "ask", "output": None},
    )
    assert {name: (item.value, item.source) for name, item in settings.items() if item.source != "default"} == {
        "model": ("a:project", "/p/.swink/config.toml:1"),
        "thinking": ("medium", "environment SWINK_THINKING"),
        "max_turns": (3, "/p/.swink/config.toml:3"),
        "timeout": (5.0, f"{user}:4"),
        "approve": ("ask", "flag --approve"),
    }
    assert settings.value("tools") == STANDARD_TOOLS
    assert settings.value("output") == "text"


def test_addresses_come_from_the_providers_own_variables(tmp_path: Path) -> None:
    user = write(tmp_path / "config.toml", '[base_url]\nanthropic = "http://file"\nxai = "http://file"\n')
    environ = {"ANTHROPIC_BASE_URL": "http://env", "AZURE_OPENAI_ENDPOINT": "https://azure"}
    settings = load_settings(path=user, environ=environ)
    assert settings["base_url.anthropic"].value == "http://env"
    assert settings["base_url.anthropic"].source == "environment ANTHROPIC_BASE_URL"
    assert settings["base_url.azure"].value == "https://azure"
    assert settings["base_url.xai"].source == f"{user}:3"


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('# x\nmodle = "a:b"\n', "line 2: no setting is called modle; did you mean model?"),
        ("[limits]\nturns = 1\n", "line 2: no setting is called limits.turns"),
        ('max_turns = "ten"\n', "line 1: max_turns cannot be 'ten': it must be a whole number, 1 or more"),
        ("max_turns = true\n", "line 1: max_turns cannot be true: it must be a whole number"),
        ("max_turns = 0\n", "it must be a whole number, 1 or more"),
        ("max_cost = -1\n", "max_cost cannot be -1: it must be a number above 0"),
        ("timeout = inf\n", "timeout cannot be inf"),
        ('approve = "yes"\n', "approve cannot be 'yes': it must be one of none, ask, smart, auto, all"),
        ('tools = ["bash", "rm"]\n', "it must be a list of bash, read_file"),
        ('network = "on"\n', "network cannot be 'on': it must be true or false"),
        ('model = "  "\n', "model cannot be '  ': it must be a non-empty text"),
        ('model = "a\n', "not valid TOML: Illegal character '\\n' (at line 1, column 11)"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "config.toml", text)
    with pytest.raises(SettingsError) as caught:
        load_settings(path=path, environ={})
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("address", ["ftp://x", "nonsense", "http://", "http://a b", "http://x:port", "http://[::1"])
def test_a_bad_address_stops_only_its_provider(tmp_path: Path, address: str) -> None:
    path = write(tmp_path / "config.toml", f'max_turns = 7\n[base_url]\nxai = "{address}"\n')
    settings = load_settings(path=path, environ={"OPENAI_BASE_URL": address, "MISTRAL_BASE_URL": "http://ok"})
    assert (settings.value("max_turns"), settings.value("base_url.mistral")) == (7, "http://ok")
    reason = f"cannot be {address!r}: it must be an http:// or https:// address"
    assert settings["base_url.xai"].problem == f"{path}, line 3: base_url.xai {reason}"
    assert settings["base_url.openai"].problem == f"OPENAI_BASE_URL: base_url.openai {reason}"
    assert settings["base_url.mistral"].problem == ""
    with pytest.raises(SettingsError, match="it must be an http"):
        set_value("base_url.xai", address, path=path)
    assert set_value("base_url.xai", "http://mended", path=path) == "http://mended"
    assert load_settings(path=path, environ={}).value("base_url.xai") == "http://mended"
    write(path, f'[base_url]\nxai = "{address}"\n')
    assert unset_value("base_url.xai", path=path)


def test_a_binary_settings_file_and_a_folder_are_reported(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"model = '\xff'\n")
    with pytest.raises(SettingsError, match="is not UTF-8 text"):
        load_settings(path=tmp_path / "config.toml", environ={})
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(path=tmp_path, environ={})
    with pytest.raises(SettingsError, match="that is not a settings file"):
        parse_file("big", b"#" * (1024 * 1024 + 1))


def test_a_mistake_in_the_environment_and_in_a_flag_is_told() -> None:
    nowhere = Path("/no/such/config.toml")
    with pytest.raises(SettingsError, match="SWINK_MAX_TURNS: max_turns cannot be 'many'"):
        load_settings(path=nowhere, environ={"SWINK_MAX_TURNS": "many"})
    with pytest.raises(SettingsError, match=r"^--tools cannot be"):
        load_settings(path=nowhere, environ={}, flags={"tools": "bash,teleport"})
    with pytest.raises(SettingsError, match=r"^--max-cost cannot be 0\.0"):
        load_settings(path=nowhere, environ={}, flags={"max_cost": 0.0})


@pytest.mark.table
@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("tools", "none", ()),
        ("tools", "bash, search,bash", ("bash", "search")),
        ("network", "Yes", True),
        ("network", "off", False),
        ("max_cost", "0.5", 0.5),
        ("max_turns", " 7 ", 7),
        ("system", "", ""),
        ("allow_hosts", "none", ()),
        ("allow_hosts", "PyPI.org, *.example.org:8443 pypi.org", ("pypi.org", "*.example.org:8443")),
    ],
)
def test_text_becomes_a_value(name: str, text: str, value: object) -> None:
    definition = next(item for item in DEFINITIONS if item.name == name)
    assert parse_value(definition, text, "here") == value


# -- a project -----------------------------------------------------------------------------------------------


def with_project(text: str, **flags: Any) -> Any:
    project = parse_file("/p/.swink/config.toml", text.encode())
    return load_settings(path=Path("/no/such"), environ={}, project=project, flags=flags)


@pytest.mark.parametrize(
    "text",
    [
        'sandbox = "off"',
        'output = "json"',
        'models_dir = "/x"',
        'allow_hosts = ["evil.org"]',
        '[base_url]\nxai = "http://x"',
    ],
)
def test_a_project_cannot_touch_what_is_the_users(text: str) -> None:
    settings = with_project(text + "\nmax_turns = 3\n" if "[" not in text else "max_turns = 3\n" + text)
    (note,) = settings.notes
    assert "a project may not set" in note
    assert {name for name, item in settings.items() if item.source != "default"} == {"max_turns"}


def test_a_project_can_only_tighten(tmp_path: Path) -> None:
    looser = with_project('approve = "all"\nnetwork = true\nmax_turns = 500\ntools = ["bash"]\nmax_cost = 100\n')
    assert looser["approve"].source == "default"
    assert looser.value("network") is False
    assert looser.value("max_turns") == 50
    assert looser.value("tools") == ("bash",)
    assert looser.value("max_cost") == 100.0
    assert [note.split(": ", 1)[1] for note in looser.notes] == [
        f"{name} is looser there than in your own settings, which are used"
        for name in ("approve", "network", "max_turns")
    ]
    stricter = with_project('approve = "none"\ntimeout = 10\n')
    assert (stricter.value("approve"), stricter.value("timeout")) == ("none", 10.0)
    assert stricter.notes == ()
    for mine, theirs, held in (
        ("auto", "smart", "smart"),
        ("smart", "auto", "smart"),
        ("all", "auto", "auto"),
        ("ask", "auto", "ask"),
        ("auto", "none", "none"),
    ):
        (tmp_path / "config.toml").write_text(f'approve = "{mine}"\n')
        project = parse_file("/p/.swink/config.toml", f'approve = "{theirs}"\n'.encode())
        settings = load_settings(path=tmp_path / "config.toml", environ={}, project=project)
        assert settings.value("approve") == held


def test_a_flag_is_the_users_own_and_wins_over_the_project() -> None:
    assert with_project('approve = "none"\n', approve="all").value("approve") == "all"


# -- changing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('[base_url]\nxai = "http://a"\n', ""),
        ('model = "local"\n\n[base_url]\nxai = "http://a"\n', 'model = "local"\n\n'),
        ('[base_url]\nxai = "http://a"\nopenai = "http://b"\n', '[base_url]\nopenai = "http://b"\n'),
        ('[base_url]\n# mine\nxai = "http://a"\n', "[base_url]\n# mine\n"),
    ],
)
def test_a_table_goes_with_the_last_value_in_it(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(before)
    assert unset_value("base_url.xai", path=path)
    assert path.read_text() == after


def test_setting_and_unsetting_keeps_the_rest_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "config.toml", "# mine\nmax_turns = 10 # enough\n")
    assert set_value("model", "anthropic:x", path=path) == "anthropic:x"
    assert set_value("max_turns", "12", path=path) == 12
    assert set_value("tools", "bash,search", path=path) == ("bash", "search")
    assert set_value("base_url.ollama", "127.0.0.1:11434", path=path) == "127.0.0.1:11434"
    assert path.read_text() == (
        '# mine\nmax_turns = 12 # enough\nmodel = "anthropic:x"\ntools = ["bash", "search"]\n'
        '\n[base_url]\nollama = "127.0.0.1:11434"\n'
    )
    assert unset_value("model", path=path)
    assert not unset_value("model", path=path)
    assert load_settings(path=path, environ={})["model"].source == "default"


def test_a_new_file_is_made_with_its_folder_and_a_link_is_followed(tmp_path: Path) -> None:
    real = write(tmp_path / "dotfiles.toml", "")
    link = tmp_path / "new" / "config.toml"
    set_value("approve", "ask", path=tmp_path / "made" / "config.toml")
    link.parent.mkdir()
    link.symlink_to(real)
    set_value("approve", "ask", path=link)
    assert link.is_symlink()
    assert real.read_text() == (tmp_path / "made" / "config.toml").read_text() == 'approve = "ask"\n'
    assert {item.name for item in tmp_path.glob("**/.*")} == {".config.toml.lock", ".dotfiles.toml.lock"}


def test_line_ends_and_the_mode_of_the_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"# mine\r\nmax_turns = 10\r\n")
    path.chmod(0o600)
    set_value("max_turns", "12", path=path)
    set_value("approve", "ask", path=path)
    assert path.read_bytes() == b'# mine\r\nmax_turns = 12\r\napprove = "ask"\r\n'
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_editing_library_is_loaded_only_for_an_edit(tmp_path: Path) -> None:
    path = write(tmp_path / "config.toml", "max_turns = 10\n")
    code = (
        "import sys; from pathlib import Path; from swink_agent.app.settings import settings; "
        "path = Path(sys.argv[1]); settings.load_settings(path=path, environ={}); print('tomlkit' in sys.modules); "
        "settings.set_value('max_turns', '11', path=path); print('tomlkit' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_wrong_value_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "config.toml", "max_turns = 10\n")
    for name, text in (("max_turns", "none"), ("modle", "x"), ("approve", "sure")):
        with pytest.raises(SettingsError):
            set_value(name, text, path=path)
    write(path, "max_turns = \n")
    with pytest.raises(SettingsError, match="not valid TOML"):
        set_value("max_turns", "3", path=path)
    assert path.read_text() == "max_turns = \n"


@pytest.mark.parametrize("text", ["x" * 70_000, "ä" * 40_000])
def test_a_value_that_makes_the_file_too_large_to_be_read_is_not_written(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "config.toml", "max_turns = 10\n")
    with pytest.raises(SettingsError, match="is larger than"):
        set_value("system", text, path=path)
    assert path.read_text() == "max_turns = 10\n"


VALUES = {
    "text": st.text(min_size=1).filter(lambda text: text.strip() == text and "\0" not in text),
    "count": st.integers(1, 10**9),
    "amount": st.floats(0.001, 1e9),
    "temperature": st.floats(0, 2),
    "switch": st.booleans(),
    "names": st.lists(st.sampled_from(STANDARD_TOOLS), unique=True).map(tuple),
    "address": st.just("http://127.0.0.1:8080/v1"),
    "folder": st.just("/models"),
    "hosts": st.sampled_from([(), ("pypi.org",), ("*.example.org:8443", "10.0.0.0/8")]),
    "private": st.sampled_from([(), ("127.0.0.1:8080", "10.0.0.5")]),
    "command": st.sampled_from([(), ("python3", "/home/me/status.py", "-x", "-x")]),
    "rules": st.sampled_from([(), ("bash: pytest *",), ("write_file", "bash: npm test -- 'a, b'")]),
}


@settings(max_examples=40)
@given(st.data())
def test_every_setting_survives_the_file(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("settings") / "config.toml"
    chosen = data.draw(st.lists(st.sampled_from(DEFINITIONS), unique_by=lambda item: item.name, max_size=4))
    wanted: dict[str, Any] = {}
    for item in chosen:
        value = data.draw(st.sampled_from(item.choices) if item.kind == "choice" else VALUES[item.kind])
        between = {"rules": ";", "command": " "}.get(item.kind, ",")
        text = (between.join(value) or "none") if isinstance(value, tuple) else str(value)
        set_value(item.name, text, path=path)
        wanted[item.name] = value
    read = load_settings(path=path, environ={})
    assert {name: item.value for name, item in read.items() if item.source != "default"} == wanted


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[aliases]\na = "b"\nb = "c"\nc = "a"\n', "line 2: aliases.a refers to itself: a -> b -> c -> a"),
        ('\n[aliases]\na = "a"\n', "line 3: aliases.a refers to itself: a -> a"),
        ('aliases.openai = "x:y"\n', "line 1: aliases.openai cannot be set: openai is the name of a provider"),
        ('aliases.local = "x:y"\n', "line 1: aliases.local cannot be set: local is the name of a provider"),
        ('aliases."a:b" = "x:y"\n', "line 1: aliases.a:b cannot be set: a short name for a model has letters"),
        ("aliases.a = 3\n", "line 1: aliases.a cannot be 3: it must be a model: provider:model"),
        ('\naliases = "x"\n', "line 2: aliases must be a table of short names"),
        ("temperature = 2.5\n", "line 1: temperature cannot be 2.5: it must be a number from 0 to 2"),
        ("temperature = true\n", "line 1: temperature cannot be true: it must be a number from 0 to 2"),
        ('\nweb_private = ["169.254.169.254"]\n', "line 2: '169.254.169.254' is the address of a cloud's metadata"),
        ('web_private = ["localhost"]\n', "line 1: 'localhost' is not an address"),
        ("web_private = [1]\n", "line 1: web_private cannot be 1: it must be a list of addresses"),
        ("max_tokens = 0\n", "line 1: max_tokens cannot be 0: it must be a whole number, 1 or more"),
        (f"max_cost = {'9' * 400}\n", "line 1: max_cost cannot be 9999"),
    ],
)
def test_aliases_and_figures_that_cannot_be_are_told_with_their_line(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path / "config.toml", text)
    with pytest.raises(SettingsError) as caught:
        load_settings(path=path, environ={})
    assert f"{path}, {said}" in str(caught.value)


def test_a_project_changes_no_alias_and_sets_no_longer_replies(tmp_path: Path) -> None:
    path = write(tmp_path / "config.toml", 'max_tokens = 100\naliases.fast = "openai:gpt-4o-mini"\n')
    theirs = parse_file("/p/.swink/config.toml", b'max_tokens = 200\ntemperature = 0.5\naliases.fast = "proxy:x"\n')
    found = load_settings(path=path, environ={}, project=theirs)
    assert (found.value("max_tokens"), found.value("temperature")) == (100, 0.5)
    assert found.aliases()["fast"].value == "openai:gpt-4o-mini"
    assert [note.partition(": ")[2][:44] for note in found.notes] == [
        "max_tokens is looser there than in your own ",
        "a project may not set aliases.fast, so it is",
    ]


def test_a_password_in_an_address_is_not_shown(tmp_path: Path) -> None:
    path = write(tmp_path / "config.toml", 'base_url.openai = "ftp://me:hunter2@host"\n')
    problem = load_settings(path=path, environ={})["base_url.openai"].problem
    assert "line 1: base_url.openai cannot be 'ftp://[redacted]@host'" in problem


def test_rules_of_every_source_count_together(tmp_path: Path) -> None:
    path = write(tmp_path / "config.toml", 'allow = ["bash: pytest *"]\ndeny = ["bash: git push"]\n')
    project = parse_file("/p/.swink/config.toml", b'deny = ["bash: npm publish"]\n')
    read = load_settings(
        path=path,
        environ={"SWINK_ALLOW": "edit_file; bash: npm test"},
        flags={"allow": ["bash: pytest *", "write_file: src/**"], "deny": None},
        project=project,
    )
    assert read.value("allow") == ("bash: pytest *", "edit_file", "bash: npm test", "write_file: src/**")
    assert read.value("deny") == ("bash: git push", "bash: npm publish")
    assert read.notes == ()
    assert read["allow"].source == f"{path}:1, environment SWINK_ALLOW, flag --allow"


def test_a_rule_that_says_nothing_is_told_with_its_place_and_the_grammar(tmp_path: Path) -> None:
    path = write(tmp_path / "config.toml", 'allow = ["pytest *"]\n')
    with pytest.raises(SettingsError, match=r"config.toml, line 1: the rule 'pytest \*' names no tool"):
        load_settings(path=path, environ={})
    with pytest.raises(SettingsError, match=r"--deny: the deny rule 'a\|b' is not a plain command: it has the op"):
        load_settings(path=tmp_path / "none", environ={}, flags={"deny": ["bash: a|b"]})
    project = parse_file("/p/.swink/config.toml", b'allow = ["bash"]\n')
    assert load_settings(path=tmp_path / "none", environ={}, project=project).value("allow") == ()


def test_masking_is_turned_off_as_a_whole_or_by_name_and_never_by_a_project() -> None:
    plain = load_settings(path=Path("/no/such"), environ={})
    assert (plain.value("masking"), plain.value("unmask")) == (True, ())
    chosen = load_settings(
        path=Path("/no/such"), environ={"SWINK_UNMASK": "DB_PASSWORD, API_KEY"}, flags={"masking": False}
    )
    assert (chosen.value("masking"), chosen.value("unmask")) == (False, ("DB_PASSWORD", "API_KEY"))
    tried = with_project("masking = false\n")
    assert tried.value("masking") is True
    assert any("masking" in note for note in tried.notes)
    with pytest.raises(SettingsError, match="a list of names"):
        load_settings(path=Path("/no/such"), environ={}, flags={"unmask": [""]})


# -- hosts ---------------------------------------------------------------------------------------------------


def test_hosts_of_all_sources_count_in_their_normal_form(tmp_path: Path) -> None:
    user = write(tmp_path / "config.toml", 'allow_hosts = ["PyPI.org"]\n')
    settings = load_settings(
        path=user, environ={"SWINK_ALLOW_HOSTS": "a.org:8080,B.org"}, flags={"allow_hosts": ("c.org", "pypi.org")}
    )
    assert settings["allow_hosts"].value == ("pypi.org", "a.org:8080", "b.org", "c.org")
    assert settings["allow_hosts"].source == f"{user}:1, environment SWINK_ALLOW_HOSTS, flag --allow-host"


@pytest.mark.parametrize("host", ["https://pypi.org", "pypi.org/simple", "me@pypi.org", "*.org", "a.org:x"])
def test_an_invalid_host_is_reported_by_name(tmp_path: Path, host: str) -> None:
    with pytest.raises(SettingsError, match=r"^--allow-host: .* is not a host that can be allowed"):
        load_settings(path=tmp_path / "none", environ={}, flags={"allow_hosts": (host,)})
    with pytest.raises(SettingsError, match=r"config.toml, line 1: .* is not a host that can be allowed"):
        load_settings(path=write(tmp_path / "config.toml", f'allow_hosts = ["{host}"]\n'), environ={})
    with pytest.raises(SettingsError, match="it must be a list of hosts"):
        load_settings(path=write(tmp_path / "config.toml", 'allow_hosts = "pypi.org"\n'), environ={})


def test_hosts_are_added_to_the_users_file_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    add_hosts(["a.org"], path=path)
    assert path.read_text() == 'allow_hosts = ["a.org"]\n'
    write(path, '# mine\nmax_turns = 3\nallow_hosts = ["A.org"] # first\n')
    add_hosts(["b.org:8080", "a.org"], path=path)
    assert load_settings(path=path, environ={}).value("allow_hosts") == ("a.org", "b.org:8080")
    assert path.read_text().startswith("# mine\nmax_turns = 3\n")
