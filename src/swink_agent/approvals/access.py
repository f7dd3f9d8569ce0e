"""Access that a command asks for beyond its sandbox: how a person sees it, and what they trust for longer.

Contains the sentences and lines of the question, and compares the wanted access with the trusted one. The access is
read from the normal form that the tool puts into the scope of the call, never from the model's arguments. The tool
checks the request, makes that form and opens the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from swink_agent.core.approval import ACCESS, LONGEST_REASON, REASON, ProposedCall
from swink_agent.rendering.cells import cut_middle
from swink_agent.rendering.escaping import safe_display

_NETWORK, _WRITE, _READ, _SANDBOX = "network", "write", "read", "sandbox"
_WHOLE_NETWORK = "the whole network of this machine, unfiltered"
_LONGEST_NAMED = 60
_NAMED = 3
"""How many hosts or folders a sentence names. The lines of the question have all of them."""


# -- what is asked for ---------------------------------------------------------------------------------------


def asks_for_access(request: ProposedCall) -> bool:
    """Whether the call asks for access, in whatever form."""
    return ACCESS in request.scope or ACCESS in request.arguments


def access_of(request: ProposedCall) -> dict[str, Any] | None:
    """The access that would open, in the normal form of the tool's scope; `None` if the scope has none."""
    found = request.scope.get(ACCESS)
    access = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    is_normal = all(
        key in (_NETWORK, _WRITE, _READ) and (_is_texts(value) or (key == _NETWORK and value is True))
        for key, value in access.items()
    )
    return access if access and (is_normal or leaves_sandbox(access)) else None


def leaves_sandbox(access: Mapping[str, Any]) -> bool:
    """Whether the command would run without any sandbox."""
    return set(access) == {_SANDBOX} and access[_SANDBOX] is False


def _is_texts(value: object) -> bool:
    texts = cast("list[object]", value) if isinstance(value, list) else []
    return bool(texts) and all(isinstance(text, str) for text in texts)


def asked_reason(arguments: Mapping[str, Any]) -> str:
    """The model's reason, safe to show, in one line of at most 500 characters."""
    reason = arguments.get(REASON)
    if not isinstance(reason, str):
        return ""
    shown = safe_display(reason.strip(), None)
    return shown if len(shown) <= LONGEST_REASON else f"{shown[: LONGEST_REASON - 1]}…"


def changes_access(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two calls ask for different access. Compared as JSON, in which `1` and `true` differ."""
    return _written(before) != _written(after)


def _written(arguments: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode([arguments[ACCESS]], order="sorted") if ACCESS in arguments else b""


# -- how it is shown -----------------------------------------------------------------------------------------


def access_lines(access: Mapping[str, Any]) -> list[str]:
    """Everything that would open: the hosts in one line, and one line for each folder, whose name may have commas."""
    if leaves_sandbox(access):
        return ["sandbox: none, nothing holds this command"]
    hosts = ", ".join([safe_display(host, None) for host in _entries(access, _NETWORK)])
    network = _WHOLE_NETWORK if access.get(_NETWORK) is True else hosts
    lines = [f"network: {network}"] if network else []
    for kind in (_WRITE, _READ):
        lines += [f"{kind}: {safe_display(folder, None)}" for folder in _entries(access, kind)]
    return lines


def what_opens(access: Mapping[str, Any]) -> str:
    """What would open, in a few words."""
    if leaves_sandbox(access):
        return "everything, without the sandbox"
    parts = [_WHOLE_NETWORK] if access.get(_NETWORK) is True else []
    for kind, words in ((_NETWORK, ""), (_WRITE, "writing in "), (_READ, "reading in ")):
        if entries := _entries(access, kind):
            parts.append(words + _some(entries))
    return ", ".join(parts)


def sentence_on(access: Mapping[str, Any] | None, reason: str) -> str:
    """One sentence: what would open, for how long, and why."""
    if access is None:
        return "it asks for access beyond the sandbox that cannot be shown, so it cannot run"
    why = f"it says: {reason}" if reason else "it gives no reason"
    if leaves_sandbox(access):
        return f"runs this very command without the sandbox, once or for the session; {why}"
    return f"opens {what_opens(access)} for this command, or longer as you choose; {why}"


def access_warnings(access: Mapping[str, Any]) -> list[str]:
    """The risks that a person should know before a yes."""
    if leaves_sandbox(access):
        return ["nothing holds it: it can read, change and send all that you can, also passwords and keys"]
    warnings: list[str] = []
    network, read = access.get(_NETWORK), _entries(access, _READ)
    warnings += [warning for path in _entries(access, _WRITE) if (warning := _runs_by_itself(path))]
    if read:
        way_out = " and sent to every host that may be reached" if network else ""
        warnings.append(
            f"passwords and keys in {_some(read)} can be read{way_out}; the model and its provider see what is printed"
        )
    if network is True:
        warnings.append("nothing is filtered: all that the command can read can be sent anywhere")
    hosts = _entries(access, _NETWORK)
    if places := _places(hosts):
        warnings.append(f"opens {_listed(places)}: allow it only if the command is about that")
    wide = [host for host in hosts if "*" in host or ("/" in host and not _places([host]))]
    if wide:
        warnings.append(f"{_some(wide)} stands for many hosts, and anybody may own one of them")
    return warnings


def run_warning(name: str, program: str, when: str) -> str:
    """What a person should know before a yes to write such a name."""
    return f"{program} runs {name}, or reads it as settings, {when}: what is written there can make it run anything"


def _runs_by_itself(path: str) -> str:
    from swink_agent.sandbox.names import place_of  # on use: few commands ask to write

    found = place_of(path.split("/"))
    return "" if found is None else run_warning(safe_display(path, None), found[1].program, found[1].when)


def _entries(access: Mapping[str, Any], kind: str) -> Sequence[str]:
    entries = access.get(kind)
    return cast("list[str]", entries) if isinstance(entries, list) else ()


def _some(entries: Sequence[str]) -> str:
    named = [cut_middle(safe_display(entry, None), _LONGEST_NAMED) for entry in entries[:_NAMED]]
    more = len(entries) - len(named)
    return _listed([*named, f"{more} more"] if more else named)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _places(hosts: Sequence[str]) -> list[str]:
    """What the hosts open besides single public hosts and names beneath one, in words."""
    from swink_agent.sandbox.network.hosts import places_beyond  # on use: most sessions open nothing

    try:
        return places_beyond(hosts)
    except ValueError:
        return ["what cannot be read as a host"]


# -- what is trusted for longer ------------------------------------------------------------------------------


def place_of(request: ProposedCall, argument: str) -> bytes | None:
    """The tool, its folder and usual sandbox, to which trust in access is bound. `None` without a sandbox or access.

    Trust in a command without a sandbox is bound to its text too.
    """
    scope, access = request.scope, access_of(request)
    if not isinstance(scope.get("walls"), str) or access is None:
        return None
    text = [request.arguments.get(argument) if leaves_sandbox(access) else None]
    return msgspec.json.encode((request.name, [scope.get(key) for key in ("folder", "backend", "walls")], text))


def asks_no_more(wanted: Mapping[str, Any], trusted: Mapping[str, Any]) -> bool:
    """Whether the trusted access includes the wanted one: hosts by their entries, folders with everything in them."""
    from swink_agent.sandbox.network.hosts import covers  # on use: most sessions open nothing
    from swink_agent.sandbox.profile import is_beneath

    if leaves_sandbox(wanted) or leaves_sandbox(trusted):
        return leaves_sandbox(wanted) and leaves_sandbox(trusted)
    network, open_to = wanted.get(_NETWORK), trusted.get(_NETWORK)
    if network is True and open_to is not True:
        return False
    if open_to is not True and not covers(_entries(trusted, _NETWORK), _entries(wanted, _NETWORK)):
        return False
    return all(
        any(is_beneath(path, folder) for folder in _entries(trusted, kind))
        for kind in (_WRITE, _READ)
        for path in _entries(wanted, kind)
    )


def opened_hosts(access: Mapping[str, Any]) -> list[str]:
    """The hosts that it opens; `*` also stands for the whole network."""
    return ["*"] if access.get(_NETWORK) is True else list(_entries(access, _NETWORK))


def to_remember(access: Mapping[str, Any]) -> list[str]:
    """The hosts that can be remembered: none if the call asks for anything but hosts, or for too many at once."""
    hosts = _entries(access, _NETWORK)
    return list(hosts) if set(access) == {_NETWORK} and not _places(hosts) else []
