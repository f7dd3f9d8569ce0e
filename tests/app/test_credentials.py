"""Keys: the order of their sources, private storage, and that they are never shown."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent.app.agent.providers import PROVIDERS, Provider
from swink_agent.app.errors import CredentialsError, UsageProblem
from swink_agent.app.keys.credentials import Credentials, Key, masked

SECRET = "-".join(["sk", "ant", "canary" * 5 + "zzzz"])
OTHER = "-".join(["sk", "proj", "canary" * 5 + "0000"])


class FakeKeyring:
    """A keyring in memory; `fails` makes it locked."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.fails = False

    def get_password(self, service_name: str, username: str, /) -> str | None:
        if self.fails:
            raise RuntimeError(f"locked, and a text that quotes {SECRET}")
        return self.kept.get((service_name, username))

    def set_password(self, service_name: str, username: str, password: str, /) -> None:
        if self.fails:
            raise RuntimeError(f"locked: {password}")
        self.kept[service_name, username] = password

    def delete_password(self, service_name: str, username: str, /) -> None:
        del self.kept[service_name, username]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "keys.json"


def test_the_environment_comes_first_then_what_was_kept(path: Path) -> None:
    Credentials(path, environ={}).set("anthropic", f" {SECRET}\n", "file")
    assert Credentials(path, environ={}).find("anthropic") == Key("anthropic", SECRET, str(path))
    with_variable = Credentials(path, environ={"ANTHROPIC_API_KEY": OTHER})
    assert with_variable.find("anthropic") == Key("anthropic", OTHER, "environment ANTHROPIC_API_KEY")
    assert with_variable.find("mistral") is None
    assert Credentials(path, environ={"GOOGLE_API_KEY": OTHER}).in_environment("gemini") == "GOOGLE_API_KEY"


def test_the_file_is_for_the_user_alone(path: Path) -> None:
    Credentials(path, environ={}).set("anthropic", SECRET, "file")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    os.chmod(path, 0o640)
    with pytest.raises(CredentialsError, match=r"others can read the keys .* chmod 600"):
        Credentials(path, environ={}).find("anthropic")


def test_a_keyring_holds_the_key_and_the_file_only_a_note(path: Path) -> None:
    keyring = FakeKeyring()
    credentials = Credentials(path, environ={}, keyring=keyring)
    assert credentials.set("anthropic", SECRET) == "the keyring"
    assert keyring.kept == {("swink-agent", "anthropic"): SECRET}
    assert SECRET not in path.read_text()
    assert credentials.find("anthropic") == Key("anthropic", SECRET, "keyring")
    keyring.fails = True
    assert credentials.listing() == [("anthropic", "sk-…zzzz", "keyring")]
    assert credentials.has_key("anthropic")
    assert credentials.secrets() == {}
    keyring.fails = False
    assert credentials.remove("anthropic")
    assert keyring.kept == {}
    assert credentials.find("anthropic") is None


def test_a_locked_keyring_is_told_without_its_own_words(path: Path) -> None:
    keyring = FakeKeyring()
    credentials = Credentials(path, environ={}, keyring=keyring)
    credentials.set("anthropic", SECRET)
    keyring.fails = True
    acts: tuple[Callable[[], object], ...] = (
        lambda: credentials.find("anthropic"),
        lambda: credentials.set("xai", SECRET),
        lambda: credentials.remove("anthropic"),
    )
    for act in acts:
        with pytest.raises(CredentialsError, match="it may be locked") as caught:
            act()
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.exit_code == 3
    keyring.fails = False
    keyring.kept.clear()
    with pytest.raises(CredentialsError, match="swink keys set anthropic"):
        credentials.find("anthropic")
    assert credentials.remove("anthropic"), "the keyring has no such key any more, so the note goes too"
    assert credentials.listing() == []


def test_a_key_in_the_file_replaces_the_one_in_the_keyring(path: Path) -> None:
    keyring = FakeKeyring()
    credentials = Credentials(path, environ={}, keyring=keyring)
    credentials.set("anthropic", SECRET)
    assert credentials.set("anthropic", OTHER, "file") == str(path)
    assert keyring.kept == {}
    assert credentials.find("anthropic") == Key("anthropic", OTHER, str(path))


def test_an_older_key_that_a_keyring_does_not_remove_is_told(path: Path) -> None:
    keyring = FakeKeyring()
    Credentials(path, environ={}, keyring=keyring).set("anthropic", SECRET)
    keyring.fails = True
    credentials = Credentials(path, environ={}, keyring=keyring)
    left = f"{path}, and the older key is still in the keyring, which did not remove it"
    assert credentials.set("anthropic", OTHER, "file") == left
    assert credentials.find("anthropic") == Key("anthropic", OTHER, str(path))
    assert credentials.set("anthropic", SECRET, "file") == str(path)


def test_keys_of_one_account_serve_all_its_providers(path: Path) -> None:
    credentials = Credentials(path, environ={})
    credentials.set("openai-responses", OTHER, "file")
    assert credentials.find("openai") == Key("openai", OTHER, str(path))
    assert [row[0] for row in credentials.listing()] == ["openai"]


def test_keys_are_listed_masked_with_their_source(path: Path) -> None:
    credentials = Credentials(path, environ={"XAI_API_KEY": OTHER, "SWINK_PROXY_TOKEN": "short"})
    credentials.set("anthropic", SECRET, "file")
    credentials.set("third-party", SECRET, "file")
    assert credentials.listing() == [
        ("anthropic", "sk-…zzzz", str(path)),
        ("xai", "sk-…0000", "environment XAI_API_KEY"),
        ("proxy", "…", "environment SWINK_PROXY_TOKEN"),
        ("third-party", "sk-…zzzz", str(path)),
    ]


@pytest.mark.parametrize("key", ["", "  ", "two words", "line\nbreak", "bell\x07"])
def test_invalid_keys_are_refused(path: Path, key: str) -> None:
    with pytest.raises(UsageProblem, match="that is not a key"):
        Credentials(path, environ={}).set("anthropic", key, "file")
    assert not path.exists()


def test_providers_without_such_a_key_and_odd_names_are_refused(path: Path) -> None:
    with pytest.raises(UsageProblem, match="its own variables"):
        Credentials(path, environ={}).set("bedrock", SECRET, "file")
    with pytest.raises(UsageProblem, match="is not a provider's name"):
        Credentials(path, environ={}).set("../x", SECRET, "file")
    with pytest.raises(CredentialsError, match="no keyring works"):
        NoKeyring(path, environ={}).set("xai", SECRET, "keyring")


class NoKeyring(Credentials):
    def _open_keyring(self) -> None:
        return None


def test_a_key_in_a_keyring_that_is_gone_is_told(path: Path) -> None:
    Credentials(path, environ={}, keyring=FakeKeyring()).set("xai", SECRET)
    with pytest.raises(CredentialsError, match=r"pip install 'swink-agent\[keyring\]'"):
        NoKeyring(path, environ={}).find("xai")
    assert NoKeyring(path, environ={}).set("xai", SECRET).startswith(f"{path}, and the older key is still in")
    assert NoKeyring(path, environ={}).set("xai", SECRET) == str(path)


def test_a_broken_file_is_told_without_its_content(path: Path) -> None:
    Credentials(path, environ={}).set("xai", SECRET, "file")
    path.write_text(path.read_text().replace('"file"', f'"{SECRET}"'))
    with pytest.raises(CredentialsError, match="cannot be read as a file of keys") as caught:
        Credentials(path, environ={}).find("xai")
    assert SECRET not in str(caught.value)


def test_no_key_shows(path: Path) -> None:
    credentials = Credentials(path, environ={"ANTHROPIC_API_KEY": SECRET})
    key = credentials.find("anthropic")
    assert SECRET not in f"{key!r} {credentials!r}"
    assert pickle.loads(pickle.dumps(key)) == key
    assert masked("short") == "…"
    assert masked(SECRET) == "sk-…zzzz"
    assert masked("AIzaSyA-example-of-a-google-key") == "AI…-key"


def test_every_key_is_known_to_the_redactor(path: Path) -> None:
    credentials = Credentials(
        path, environ={"MISTRAL_API_KEY": "mistral-odd-key-1234", "OTHER_TOKEN": "another-secret"}
    )
    credentials.set("xai", "stored-odd-key-5678", "file")
    masked_text = credentials.redactor().redact("mistral-odd-key-1234 stored-odd-key-5678 another-secret")
    named = re.findall(r"\[redacted:([\w-]+):[0-9a-f]{8}\]", masked_text)
    assert named == ["MISTRAL_API_KEY", "xai", "OTHER_TOKEN"]
    assert len(masked_text.split()) == 3


@pytest.mark.table
@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_an_adapter_knows_its_provider_by_the_one_description_of_it(provider: Provider) -> None:
    if provider.name == "bedrock":
        pytest.importorskip("botocore")
    stream_fn: Any = provider.make("http://127.0.0.1:9")
    assert stream_fn.description is provider
    assert stream_fn.provider == provider.name
    assert "127.0.0.1:9" in stream_fn.base_url
