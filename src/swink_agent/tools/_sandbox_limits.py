"""Finds the sandbox limits that a command met and the hosts that it reached, and describes both in words.

The proxy reports the hosts. Without a proxy, and for files, error messages are read. A message alone proves nothing, so
it counts only together with a fact: that the sandbox has no network, or that this user could have written the file that
the command could not. Before a pipe or `||` a failure does not show in the exit code: there, a message counts if it is
from a program that the command names. A command that fails silently, or with other words, is not recognised.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from msgspec.structs import replace

from swink_agent.sandbox import Reached, SandboxProfile
from swink_agent.sandbox.profile import is_beneath

NO_NETWORK = "no network"
READ_ONLY_OUTSIDE = "read-only outside the folder"
ONLY_READS = "it could only read; to let it change files, call again with write=true"
_NOT_AMONG = "is not among the hosts that may be reached"
_BESIDE_THE_PROXY = "the network can be reached only through the proxy in HTTPS_PROXY"
_FOR_ALL_PROGRAMS = frozenset(map(os.path.realpath, ("/tmp", "/var/tmp")))
_MOST_HOSTS = 8
_LONGEST_ASKED = 200

_LAST_LINES = 40
_LONGEST_LINE = 2000
_LONGEST_COMMAND = 10_000
_SAYS_BY_CODE = {6: "curl", 4: "wget"}
"""Programs that often run with their messages switched off, by their exit code for a name that was not resolved."""
_FETCH = re.compile(r"\b(?:curl|wget)\b")
_ELSEWHERE = re.compile(r"\bhttps?://(?!localhost\b|127\.|0\.0\.0\.0|\[::)", re.IGNORECASE)
_TELLS = re.compile(r"(?:\S*/)?(?P<program>[\w.+-]+):|npm ")
_ANY_PROGRAM = re.compile(r"e|err|error|fatal|warning|[\w.]*(?:error|exception)", re.IGNORECASE)
_FETCHERS = re.compile(
    r"\b(?:apt|apt-get|bun|bundle|cargo|composer|conda|deno|docker|gem|git|go|gradle|mvn|node|npm|npx|pip3?|pnpm"
    r"|poetry|python[\d.]*|ruby|uvx?|yarn)\b"
)
"""Programs that do not begin their messages with their own name."""
_SHELLS = ("bash", "sh")
_UNREACHABLE = re.compile(
    r"could not resolve (?:host|proxy)|name or service not known|nodename nor servname|name resolution"
    r"|network is (?:unreachable|down)|no route to host|\bENETUNREACH\b|\bEAI_AGAIN\b|\bENOTFOUND\b|no such host"
    r"|unable to resolve host|failed to lookup address|dns error|connect: (?:permission denied|operation not permitted)"
    r"|socket: (?:permission denied|operation not permitted)|connect to \S+ .*(?:permission denied|not permitted)"
    r"|dial (?:tcp|udp)\b.*(?:denied|not permitted|unreachable)"
    r"|failed to connect to (?!localhost\b|127\.|\[?::1\b)\S+ port \d",  # curl, if the host is an address
    re.IGNORECASE,
)
_HOST = re.compile(
    r"(?:resolve(?: host(?:name| address)?)?:? |lookup |ENOTFOUND |EAI_AGAIN |host=|https?://)['\"\u2018]?"
    r"(?P<host>[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d{1,5}(?=/))?)(?![\w.@-])",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"read-only file ?system|permission denied|operation not permitted|\bEROFS\b|\bEACCES\b", re.IGNORECASE
)
_NO_SOCKET = re.compile(
    r"cannot connect to the docker daemon|permission denied while trying to connect to the docker|docker\.sock\b"
    r"|could not open a connection to your authentication agent|error connecting to agent|couldn't load public key"
    r"|gpg failed to sign|failed to write commit object|failed to connect to (?:system |session )?(?:scope )?bus"
    r"|system has not been booted with systemd|connection to server on socket|can't connect to local .* server through"
    r"|/dev/(?!tcp/|udp/|null\b)[\w/-]+.*(?:no such (?:file|device)|permission denied|not permitted)",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"read-only file ?system|\bEROFS\b", re.IGNORECASE)
_MISSING = re.compile(r"no such file or directory|permission denied|\bENOENT\b|\bEACCES\b", re.IGNORECASE)
_BETWEEN = re.compile(r"\W*(?:failed|error)?\W*(?:errno \d+)?\W*", re.IGNORECASE)
_QUOTES = "'\"`\u2018\u2019"
_PATH = re.compile(
    rf"[{_QUOTES}]((?:~|\.\.)?/[^{_QUOTES}\n]+)[{_QUOTES}]|(?<![\w./~:-])((?:~|(?:\.\./)*\.\.)?/[^\s{_QUOTES}:,;()]+)"
)


class LimitMet(NamedTuple):
    """A limit in words, and the access with which a command would not meet it, if that can be asked for."""

    kind: Literal["write", "outside", "network", "read"]
    what: str
    access: dict[str, Any] | None = None
    place: str = ""
    """The path or the host that was refused, if it is known."""

    def __str__(self) -> str:
        if self.access is None:
            return self.what
        return f"{self.what}; to ask for it: access={json.dumps(self.access, ensure_ascii=False)} and a reason"

    def as_json(self) -> dict[str, str]:
        """The limit for the details of a result."""
        if not self.place:
            return {"kind": self.kind}
        return {"kind": self.kind, "host" if self.kind == "network" else "path": self.place}


class Asking(NamedTuple):
    """The access that a command had, and whether one may ask for other access."""

    access: Mapping[str, Any] = {}
    can: Callable[[dict[str, Any]], bool] = lambda _: False

    def more(self, kind: str, entry: str) -> dict[str, Any] | None:
        """The access that the command had, plus this entry; `None` if it cannot be asked for."""
        before = self.access.get(kind)
        entries = cast("list[str]", before) if isinstance(before, list) else []
        wanted = {**self.access, kind: [*entries, entry]}
        return wanted if len(entry) <= _LONGEST_ASKED and entry.isprintable() and self.can(wanted) else None


_NOBODY = Asking()


def hosts_refused(reached: Iterable[Reached], asking: Asking = _NOBODY) -> list[LimitMet]:
    """The hosts that a command asked the proxy for and may not reach."""
    refused = [each for each in reached if not each.allowed]
    met = [
        LimitMet("network", f"{_named(each)} {each.why}", _to_reach(each, asking), each.host)
        for each in refused[:_MOST_HOSTS]
    ]
    more = len(refused) - len(met)
    return [*met, LimitMet("network", f"{more} more hosts may not be reached")] if more else met


def told_reached(reached: Iterable[Reached]) -> list[str]:
    """The hosts that a command reached, and those that it was allowed to reach but could not."""
    allowed = [each for each in reached if each.allowed]
    there = list(dict.fromkeys(_named(each) for each in allowed if not each.why))
    more = f" and {len(there) - 2 * _MOST_HOSTS} more" if len(there) > 2 * _MOST_HOSTS else ""
    told = [f"network: reached {', '.join(there[: 2 * _MOST_HOSTS])}{more}"] if there else []
    return [*told, *[f"network: {_named(each)} {each.why[:200]}" for each in allowed if each.why][:_MOST_HOSTS]]


def limits_met(
    output: str,
    profile: SandboxProfile,
    folder: str,
    asking: Asking = _NOBODY,
    *,
    is_known: bool = False,
    command: str = "",
    code: int = 1,
    is_reading: bool = False,
) -> list[LimitMet]:
    """The limits that a command in `folder` reported; none if its output names none.

    With exit code 0, only failures before a pipe or `||` count. `is_known`: the proxy knows which hosts were refused.
    Some programs report a name that was not resolved only by their exit code; then the host is taken from the command.
    `is_reading`: `profile` is that of other commands, and this one could only read, with no network.
    """
    met: list[LimitMet] = []
    if is_reading:
        met += _writing(output, profile, folder, command, code)
        profile = replace(profile, network=False, hosts=())
    lines = [line[:_LONGEST_LINE] for line in output.splitlines()[-_LAST_LINES:]]
    command = command[:_LONGEST_COMMAND]
    is_silent = not lines
    if not code:
        lines = [line for line in lines if _is_told_by(line, command)] if "|" in command else []
    is_unreached = any(map(_UNREACHABLE.search, lines))
    is_quiet = is_silent and _has_word(_SAYS_BY_CODE.get(code), command)
    is_quiet = (is_quiet or ((is_silent or code != 0) and _is_fetched_for_a_pipe(command))) and not profile.hosts
    if not profile.network and not is_known and (is_unreached or is_quiet):
        said = [command, *lines]
        met.append(LimitMet("network", _BESIDE_THE_PROXY) if profile.hosts else _no_network(said, asking))
    denied = (path for line in lines if _DENIED.search(line) for path in _paths_in(line, folder, _DENIED))
    place = next((found for path in denied if (found := _read_only_folder(path, profile))), None)
    if place is not None:
        access = asking.more("write", place)
        instead = " (temporary files go to $TMPDIR)" if place in _FOR_ALL_PROGRAMS else ""
        what = f"{place} is not among the folders that may be written{instead}"
        met.append(LimitMet("outside", READ_ONLY_OUTSIDE if access is None else what, access, place))
    elif profile.read is not None:
        met += _unseen(lines, profile, folder, asking)
    if code and any(map(_NO_SOCKET.search, lines)):
        access = {"sandbox": False}
        what = "it needs a socket or a device that commands do not have in the sandbox"
        met.append(LimitMet("outside", what, access if asking.can(access) else None))
    return met


def _writing(output: str, profile: SandboxProfile, folder: str, command: str, code: int) -> list[LimitMet]:
    """The limit of a command that could only read, if it was refused to write where other commands may.

    Some back ends refuse with other words than a read-only file system does: if the command succeeded, these count only
    in the message of a program that it names.
    """
    for line in output.splitlines()[-_LAST_LINES:]:
        refused = _READ_ONLY.search(line) or (_DENIED.search(line) and (code != 0 or _is_told_by(line, command)))
        paths = list(_paths_in(line[:_LONGEST_LINE], folder, _DENIED)) if refused else []
        if refused and (not paths or any(is_beneath(path, root) for path in paths for root in profile.write)):
            return [LimitMet("write", ONLY_READS)]
    return []


def _named(reached: Reached) -> str:
    return f"[{reached.host}]:{reached.port}" if ":" in reached.host else f"{reached.host}:{reached.port}"


def _to_reach(reached: Reached, asking: Asking) -> dict[str, Any] | None:
    """The access with which the host could be reached, if it was refused only because it is not listed."""
    if reached.why != _NOT_AMONG:
        return None
    named = _named(reached)
    return asking.more("network", named.rpartition(":")[0] if reached.port in (80, 443) else named)


class CommandLimits(NamedTuple):
    """The limits of one command: its profile, its folder, what it may ask for, and whether it can only read.

    One that can only read has the profile of other commands here.
    """

    profile: SandboxProfile
    folder: str
    asking: Asking
    command: str
    is_reading: bool = False

    def refused(self, reached: Iterable[Reached]) -> list[LimitMet]:
        """The hosts that it may not reach."""
        return hosts_refused(reached, self.asking)

    def met(self, output: str, code: int, *, is_known: bool) -> list[LimitMet]:
        """The other limits that it reported. `is_known`: the proxy knows which hosts were refused."""
        return limits_met(
            *(output, self.profile, self.folder, self.asking),
            is_known=is_known,
            command=self.command,
            code=code,
            is_reading=self.is_reading,
        )

    def may_have_wanted_to_write(self, code: int | None) -> bool:
        """Whether it could only read, and failed."""
        return self.is_reading and code is not None and code != 0


def _has_word(word: str | None, command: str) -> bool:
    return word is not None and re.search(rf"\b{re.escape(word)}\b(?!:)", command) is not None


def _is_fetched_for_a_pipe(command: str) -> bool:
    """Whether something on another machine is fetched for the next program to read."""
    lines = [line.split("|")[:-1] for line in command.replace("||", "\n").split("\n")]
    return any(_FETCH.search(part) and _ELSEWHERE.search(part) for parts in lines for part in parts)


def _is_told_by(line: str, command: str) -> bool:
    """Whether a line is a message of a program that the command names, and not a text that it shows."""
    found = _TELLS.match(line)
    if found is None:
        return False
    program = found["program"]
    if program is None or _ANY_PROGRAM.fullmatch(program):
        return _FETCHERS.search(command) is not None
    return program in _SHELLS or _has_word(program, command)


def _no_network(lines: Sequence[str], asking: Asking) -> LimitMet:
    for line in reversed(lines):
        for found in _HOST.finditer(line):
            host = found["host"].lower()
            if access := asking.more("network", host):
                return LimitMet("network", f"{_with_port(host, lines)} {_NOT_AMONG}", access, host)
    return LimitMet("network", NO_NETWORK)


def _with_port(host: str, lines: Sequence[str]) -> str:
    """The host with its port, if a URL in the lines shows which."""
    address = re.compile(rf"\b(http|https)://{re.escape(host)}(?![\w.:-])", re.IGNORECASE)
    schemes = [found[1].lower() for line in lines for found in address.finditer(line)]
    return f"{host}:{443 if schemes[-1] == 'https' else 80}" if schemes and ":" not in host else host


def _unseen(lines: Sequence[str], profile: SandboxProfile, folder: str, asking: Asking) -> list[LimitMet]:
    """The folder of the first file that the command did not find and that this user can read."""
    for path in (path for line in lines if _MISSING.search(line) for path in _paths_in(line, folder, _MISSING)):
        real = os.path.realpath(path)
        place = real if os.path.isdir(real) else os.path.dirname(real)
        if any(is_beneath(real, root) for root in (*profile.write, *(profile.read or ()), *profile.hidden)):
            continue
        if os.access(real, os.R_OK) and (access := asking.more("read", place)):
            return [LimitMet("read", f"{place} is not among the folders that may be read", access, place)]
    return []


def _paths_in(line: str, folder: str, refusals: re.Pattern[str]) -> Iterable[str]:
    """The path of each refusal in a line: the next one after it, or the one directly before it.

    Not just any path: a shell begins its messages with its own.
    """
    found = list(_PATH.finditer(line))
    for denied in refusals.finditer(line):
        after = [match for match in found if match.start() >= denied.end()][:1]
        before = [match for match in found if match.end() <= denied.start()][-1:]
        before = [match for match in before if _BETWEEN.fullmatch(line, match.end(), denied.start())]
        for match in after or before:
            path = os.path.expanduser(match[1] or match[2])
            yield os.path.normpath(os.path.join(folder, path.rstrip(".")))


def _read_only_folder(path: str, profile: SandboxProfile) -> str | None:
    """The folder of a path that this user can write and a command cannot, as it is outside the command's folders."""
    real = os.path.realpath(path)
    if any(is_beneath(real, root) for root in profile.write):
        return None
    if any(is_beneath(place, hidden) for hidden in profile.hidden for place in (path, real)):
        return None  # another limit
    if os.path.isdir(real) or not os.path.lexists(real):
        place = real
        while not os.path.isdir(place):
            place = os.path.dirname(place)
        return place if os.access(place, os.W_OK | os.X_OK) else None
    return os.path.dirname(real) if os.path.isfile(real) and os.access(real, os.W_OK) else None
