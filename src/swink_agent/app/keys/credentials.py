"""Keys, from the environment first, then from the system's keyring or a private file.

The file is `keys.json` in the user's folder, readable by the user alone. It has the keys themselves or, for keys in the
keyring, only a note. So listing keys unlocks nothing, and without keys in a keyring that package is not loaded. No key
appears in a repr, a log or an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import msgspec

from swink_agent.core.machine.extras import install
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import StreamFn
from swink_agent.core.values.decoders import json_decoder
from swink_agent.core.values.value import Value

from ..agent.providers import LOCAL, PROVIDERS, Provider, all_providers, provider_named
from ..errors import ApplicationError, CredentialsError, UsageProblem
from ..settings.paths import changing, config_folder, write_whole

SERVICE = "swink-agent"
_LONGEST_NAME = 24
Store: TypeAlias = Literal["keyring", "file"]


class KeyringLike(Protocol):
    """The part of the `keyring` package that is used."""

    def get_password(self, service_name: str, username: str, /) -> str | None: ...

    def set_password(self, service_name: str, username: str, password: str, /) -> None: ...

    def delete_password(self, service_name: str, username: str, /) -> None: ...


class Key(Value, frozen=True):
    """A key and where it was found."""

    hidden_fields: ClassVar[frozenset[str]] = frozenset({"value"})

    provider: str
    value: str
    source: str


class _Entry(Value, frozen=True, omit_defaults=True):
    """One entry of the file: the key, or where it is and its masked form."""

    hidden_fields: ClassVar[frozenset[str]] = frozenset({"key"})

    store: Store
    key: str = ""
    shown: str = ""


class Credentials:
    """The keys available on this machine.

    `keyring` is the system's store; by default the `keyring` package, if it is installed and has a usable back end.
    Raises `CredentialsError` for a file that cannot be used, such as one that others can read.
    """

    def __init__(
        self, path: Path | None = None, *, environ: Mapping[str, str] = os.environ, keyring: KeyringLike | None = None
    ) -> None:
        self.path = path or config_folder(environ) / "keys.json"
        self._environ = environ
        self._keyring = keyring

    def find(self, provider: str) -> Key | None:
        known = _known(provider)
        for variable in known.key_variables:
            if value := self._environ.get(variable, "").strip():
                return Key(provider, value, f"environment {variable}")
        return self._stored(provider, known.account)

    def refusal(self, provider: str) -> str:
        """A message that the provider refused the request, with the source of its key but never the key."""
        try:
            key = self.find(provider)
        except ApplicationError:
            key = None
        found = f"its key came from {key.source}" if key is not None else "no key for it was found"
        return f"{provider} refused the request: {found}"

    def has_key(self, provider: str) -> bool:
        """Whether there is a key. Unlocks nothing."""
        known = _known(provider)
        others = any(self._environ.get(name) for name in known.credential_variables)
        return others or self.in_environment(provider) is not None or known.account in self._entries()

    def in_environment(self, provider: str) -> str | None:
        """The environment variable that holds a key for the provider."""
        known = _known(provider)
        return next((name for name in known.key_variables if self._environ.get(name, "").strip()), None)

    def listing(self) -> list[tuple[str, str, str]]:
        """Provider, masked key and source of every key that would be used. Unlocks nothing."""
        rows: list[tuple[str, str, str]] = []
        entries = self._entries()
        with_keys = [provider.account for provider in all_providers() if provider.key_variables]
        names = dict.fromkeys([*with_keys, *entries])
        for name in names:
            if variable := self.in_environment(name):
                rows.append((name, masked(self._environ[variable].strip()), f"environment {variable}"))
            elif entry := entries.get(name):
                shown = entry.shown if entry.store == "keyring" else masked(entry.key)
                rows.append((name, shown, "keyring" if entry.store == "keyring" else str(self.path)))
        return rows

    def secrets(self) -> dict[str, str]:
        """Every key that is available without unlocking a store, by name. For a redactor."""
        found = {
            variable: value
            for provider in PROVIDERS
            for variable in provider.key_variables
            if (value := self._environ.get(variable, "").strip())
        }
        return found | {name: entry.key for name, entry in self._entries().items() if entry.key}

    def redactor(self, *, enabled: bool = True, unmasked: Iterable[str] = (), key: bytes | None = None) -> Redactor:
        """A redactor that knows these keys and other secrets in the environment."""
        redactor = Redactor(environment=self._environ, enabled=enabled, unmasked=unmasked, key=key)
        for name, secret in self.secrets().items():
            redactor.learn(secret, name)
        return redactor

    # -- changing them -----------------------------------------------------------------------------------------

    def set(self, provider: str, value: str, store: Store | None = None) -> str:
        """Stores a key, in the keyring if one works, and returns where. Raises `CredentialsError`.

        A key that the file replaces is removed from the keyring. If that is not possible, the returned text says so.
        """
        value = value.strip()
        if not value or any(character.isspace() or not character.isprintable() for character in value):
            raise UsageProblem("that is not a key: it is empty, or contains spaces or control characters")
        account = self._account(provider)
        before = self._entries().get(account)
        keyring = None if store == "file" else self._open_keyring()
        if keyring is None and store == "keyring":
            raise CredentialsError("no keyring works here; --store file keeps the key in a private file")
        if keyring is not None:
            try:
                keyring.set_password(SERVICE, account, value)
            except Exception:  # a back end may raise any error, with any text
                raise CredentialsError(
                    "the keyring did not store the key: it may be locked; --store file keeps it in a file"
                ) from None
        entry = _Entry("keyring", shown=masked(value)) if keyring is not None else _Entry("file", value)
        self._change(lambda entries: {**entries, account: entry})
        if keyring is not None:
            return "the keyring"
        if before is None or before.store == "file" or _has_removed(self._open_keyring(), account):
            return str(self.path)
        return f"{self.path}, and the older key is still in the keyring, which did not remove it"

    def check_name(self, provider: str) -> None:
        """Raises `UsageProblem`, with the nearest name, unless a key can be stored for a provider of that name."""
        if provider == LOCAL:
            raise UsageProblem("models on this machine need no key")
        if provider_named(provider) is None:
            from swink_agent.core.texts.likeness import which_name

            hint = which_name(provider, dict.fromkeys([item.account for item in all_providers() if item.key_variables]))
            if len(provider) > _LONGEST_NAME:  # perhaps a key in the wrong place, so it is not repeated
                raise UsageProblem(f"the given name is not the name of a provider; {hint}")
            raise UsageProblem(f"no provider is called {provider!r}; {hint}")
        self._account(provider)

    def remove(self, provider: str) -> bool:
        """Removes a stored key. Returns whether there was one. A key in the environment cannot be removed here.

        Raises `CredentialsError` if the key is in a keyring that does not remove it.
        """
        account = self._account(provider)
        entry = self._entries().get(account)
        if entry is None:
            return False
        if entry.store == "keyring" and not _has_removed(self._keyring_with(provider, account), account):
            raise CredentialsError(
                f"the keyring did not remove the key of {provider}: it may be locked; unlock it and try again"
            )
        self._change(lambda entries: {name: kept for name, kept in entries.items() if name != account})
        return True

    def _account(self, provider: str) -> str:
        known = provider_named(provider)
        if known is not None and not known.key_variables:
            raise UsageProblem(f"{provider} has no key to store: it takes its credentials from its own variables")
        if known is None and not provider.replace("-", "").replace("_", "").isalnum():
            raise UsageProblem(f"{provider!r} is not a provider's name")
        return known.account if known is not None else provider

    # -- the stores --------------------------------------------------------------------------------------------

    def _stored(self, provider: str, account: str) -> Key | None:
        entry = self._entries().get(account)
        if entry is None:
            return None
        if entry.store == "file":
            return Key(provider, entry.key, str(self.path))
        keyring = self._keyring_with(provider, account)
        try:
            value = keyring.get_password(SERVICE, account)
        except Exception:  # a back end may raise any error, with any text
            raise CredentialsError(
                f"the keyring did not return the key of {provider}: it may be locked; unlock it, or keep the key in a "
                f"file with: swink keys set {account} --store file"
            ) from None
        if not value:
            raise CredentialsError(f"the keyring no longer has a key of {provider}: swink keys set {account}")
        return Key(provider, value, "keyring")

    def _keyring_with(self, provider: str, account: str) -> KeyringLike:
        """The keyring, which has the provider's key. Raises `CredentialsError` if it cannot be opened."""
        keyring = self._open_keyring()
        if keyring is None:
            raise CredentialsError(
                f"the key of {provider} is in a keyring that cannot be opened here: "
                f"{install('keyring')}, or keep it in a file with: swink keys set {account} --store file"
            )
        return keyring

    def _open_keyring(self) -> KeyringLike | None:
        if self._keyring is None:
            self._keyring = usable_keyring()
        return self._keyring

    def _entries(self) -> dict[str, _Entry]:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise CredentialsError(f"{self.path} cannot be read: {error.strerror or error}") from error
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_IMODE(mode) & 0o077:
                raise CredentialsError(f"others can read the keys in {self.path}: chmod 600 '{self.path}'")
            data = file.read()
        try:
            return json_decoder(dict[str, _Entry]).decode(data)
        except ValueError:  # the error's text could quote the file
            raise CredentialsError(
                f"{self.path} cannot be read as a file of keys: remove it, and set the keys again"
            ) from None

    def _change(self, change: Callable[[dict[str, _Entry]], dict[str, _Entry]]) -> None:
        try:
            with changing(self.path):
                text = msgspec.json.format(msgspec.json.encode(change(self._entries())), indent=2).decode()
                write_whole(self.path, text + "\n", mode=0o600)
        except OSError as error:
            raise CredentialsError(f"{self.path} cannot be written: {error.strerror or error}") from error


def _known(provider: str) -> Provider:
    """The description of a provider. If it is not installed, only its name is known: a key may be stored for it."""

    def never_asked(base_url: str | None) -> StreamFn:
        raise UsageProblem("this provider is not installed")

    return provider_named(provider) or Provider(name=provider, make=never_asked)


def _has_removed(keyring: KeyringLike | None, account: str) -> bool:
    """Removes a key from the keyring. Returns whether the keyring has none now."""
    try:
        if keyring is not None and keyring.get_password(SERVICE, account) is not None:
            keyring.delete_password(SERVICE, account)
    except Exception:  # a back end may raise any error, with any text
        return False
    return keyring is not None


def masked(key: str) -> str:
    """A masked key: enough to tell it from another, not enough to use or guess it."""
    if len(key) < 20:
        return "…"
    head = key.split("-", 1)[0][:4] + "-" if "-" in key[:5] else key[:2]
    return f"{head}…{key[-4:]}"


def usable_keyring() -> KeyringLike | None:
    """The system's keyring, if the package is installed and has a usable back end."""
    try:
        import keyring
        from keyring.backends import fail, null

        backend: Any = keyring.get_keyring()
    except Exception:  # not installed, or a back end that cannot be loaded
        return None
    return None if isinstance(backend, (fail.Keyring, null.Keyring)) or backend.priority <= 0 else backend
