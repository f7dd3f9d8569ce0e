"""Checks what works on this machine, and advises on the rest. A failed check is a finding, not an exception."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from swink_agent.core.machine.extras import MissingExtra, install
from swink_agent.core.values.value import Value

from .agent.approval_modes import mode_here
from .agent.models import LOCAL_EXTRA, choose_model, has_local_extra
from .agent.providers import PROVIDERS, all_providers, unusable_providers
from .errors import ApplicationError
from .keys.credentials import Credentials, usable_keyring
from .runs.sessions import session_ids, sessions_folder
from .runs.telling import number_of
from .settings.definitions import all_definitions
from .settings.settings import Settings, load_settings, settings_file
from .trust.extras import ExtraKind, extra_policies, extra_tools, installed_extras, lacks_packages
from .trust.trust import TrustStore, find_project

if TYPE_CHECKING:
    from swink_agent.durable import FleetStats
    from swink_agent.sandbox import BackendReport

State: TypeAlias = Literal["ok", "note", "problem"]
_OTHER_VARIABLES = frozenset({"SWINK_CONFIG_DIR", "SWINK_DATA_DIR", "SWINK_DEBUG", "SWINK_HOOK", "SWINK_WEB_TOKEN"})
_SPARE_BYTES = 500_000_000
WEB_PORT = 8377
"""The port of `swink web`."""


class Finding(Value, frozen=True):
    """The result of one check. With a problem, something does not work; a note is worth knowing."""

    area: str
    state: State
    text: str
    remedy: str = ""


def examine(folder: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Runs all checks, in the order of the report, for the current folder or the given one."""
    from swink_agent import __version__

    about = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    findings = [Finding("python", "ok", f"swink-agent {__version__}, {about}")]
    folder = folder or _current_folder(findings)
    settings = _settings(findings, folder, environ)
    credentials = Credentials(environ=environ)
    working: list[str] = []  # the back ends of the sandbox that work in the folder
    checks: list[Callable[[], Iterable[Finding]]] = [
        lambda: _variables(environ),
        lambda: _sandbox(None if folder is None else folder.resolve(), working),
        lambda: _approvals(settings, folder, working),
        lambda: _keys(credentials),
        lambda: _packages(settings, folder),
        lambda: _hooks(settings, folder, environ),
        lambda: _local(settings),
        lambda: _model(settings, credentials),
        lambda: _sessions(settings),
        lambda: _durable(settings),
        lambda: _programs(folder, environ),
        lambda: _terminal(environ),
        lambda: _browser(folder, environ),
    ]
    for check in checks:
        try:
            findings += check()
        except ApplicationError as error:
            findings.append(Finding("check", "problem", str(error)))
        except Exception as error:  # a check that breaks must not hide the others
            findings.append(Finding("check", "problem", f"a check failed: {type(error).__name__}: {error}"))
    return findings


def _current_folder(findings: list[Finding]) -> Path | None:
    try:
        return Path.cwd()
    except OSError as error:
        text = f"the current folder is gone: {error.strerror or error}"
        findings.append(Finding("folder", "problem", text, "cd to an existing folder"))
        return None


def _settings(findings: list[Finding], folder: Path | None, environ: Mapping[str, str]) -> Settings:
    path = settings_file(environ)
    try:
        project = None if folder is None else find_project(folder, TrustStore(environ=environ))
        if project is not None and (unused := project.what_is_unused):
            remedy = f"look at it and decide: swink config trust '{project.folder}'"
            findings.append(Finding("settings", "note", unused, remedy))
        settings = load_settings(environ=environ, project=None if project is None else project.settings_files)
    except ApplicationError as error:
        findings.append(Finding("settings", "problem", str(error), f"fix it: {path}"))
        return load_settings(environ={}, path=Path(os.devnull))
    there = str(path) if path.exists() else f"{path} (does not exist, which is fine)"
    findings.append(Finding("settings", "ok", there))
    findings.extend(Finding("settings", "note", note) for note in settings.notes)
    return settings


def _variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    from swink_agent.core.texts.likeness import close_names

    known = {name for item in all_definitions() for name in (item.variable, *item.other_variables)} | _OTHER_VARIABLES
    known |= {name for item in all_providers() for name in (*item.key_variables, *item.credential_variables)}
    for name in sorted(environ):
        if name.startswith("SWINK_") and name not in known:
            near = close_names(name, known)
            remedy = f"did you mean {near[0]}?" if near else "unset it"
            yield Finding("settings", "note", f"the variable {name} is unknown and has no effect", remedy)


def _sandbox(folder: Path | None, working: list[str]) -> Iterator[Finding]:
    """Checks the back ends in this folder and, if they fail because of it, on the machine in general.

    Adds the back ends that work in the folder to `working`.
    """
    from swink_agent.sandbox import probe_backends, why_not_written

    from .agent.confinement import sandbox_profile

    if folder is None:
        yield from _backends(probe_backends())
        return
    problem = None
    reports: Sequence[BackendReport] = ()
    try:
        reports = probe_backends(sandbox_profile(folder))
    except ApplicationError as error:
        problem = Finding("folder", "problem", str(error), "cd to a project's folder")
    working += [report.name for report in reports if report.works]
    reasons = [report.reason for report in reports if report.is_about_folder]
    if reasons and not working:
        problem = Finding("folder", "problem", f"commands are refused here: {reasons[0]}")
    if problem is not None:
        yield from _backends(probe_backends())
        yield problem
        return
    yield from _backends(reports)
    if working and (why := why_not_written(str(folder))):
        yield Finding("folder", "note", f"commands can only read here: {why}")


def _backends(reports: Sequence[BackendReport]) -> Iterator[Finding]:
    works = any(report.works for report in reports)
    for report in reports:
        if report.works:
            yield Finding("sandbox", "ok", f"{report.name} works")
        else:
            text = f"{report.name} does not work: {report.reason}"
            yield Finding("sandbox", "note" if works else "problem", text, report.remedy)
    if not works:
        remedy = "" if any(report.remedy for report in reports) else "swink --help describes --sandbox off"
        yield Finding("sandbox", "problem", "no back end works, so commands are refused", remedy)


def _approvals(settings: Settings, folder: Path | None, working: Sequence[str]) -> Iterator[Finding]:
    """Which mode of approvals is on in this folder, and why."""
    if folder is None:
        return
    mode = mode_here(settings, folder, lambda: working[0] if working else None)
    text = mode.note or f"approvals are {mode.mode} ({settings['approve'].source})"
    remedy = "let commands and edits run unasked here: swink config work" if mode.is_undecided else ""
    yield Finding("approvals", "note" if mode.is_undecided else "ok", text, remedy)


def _keys(credentials: Credentials) -> Iterator[Finding]:
    rows = credentials.listing()
    for name, shown, source in rows:
        yield Finding("keys", "ok", f"{name} {shown} ({source})")
    if not rows:
        yield Finding("keys", "note", "no provider's key is set", "swink keys set anthropic")
    store = "the system's keyring" if usable_keyring() is not None else f"a private file, {credentials.path}"
    yield Finding("keys", "ok", f"new keys are kept in {store}")


def _packages(settings: Settings, folder: Path | None) -> Iterator[Finding]:
    """The providers, tools and policies of installed packages."""
    for problem in unusable_providers().values():
        yield Finding("packages", "problem", problem)
    others = [provider.name for provider in all_providers() if provider not in PROVIDERS]
    if others:
        yield Finding("packages", "ok", f"other providers: {', '.join(others)}")
    kinds: tuple[tuple[ExtraKind, str, Callable[[list[str], Path], object]], ...] = (
        ("tool", "extra_tools", extra_tools),
        ("policy", "extra_policies", extra_policies),
    )
    for kind, setting, use in kinds:
        wanted: tuple[str, ...] = settings.value(setting)
        installed = installed_extras(kind)
        for extra in installed:
            if extra.name in wanted:
                continue
            if lacks_packages(extra):
                yield Finding("packages", "note", f"the {kind} {extra.name} needs an extra", install("fetch"))
            else:
                text = f"the {kind} {extra.name} of {extra.package} is installed but off"
                remedy = f"swink config set {setting} {','.join((*wanted, extra.name))}"
                yield Finding("packages", "note", text, remedy)
        for name in wanted:
            try:
                use([name], folder or Path.cwd())
                package = next(extra.package for extra in installed if extra.name == name)
                yield Finding("packages", "ok", f"the {kind} {name} of {package} is on")
            except ApplicationError as error:
                yield Finding("packages", "problem", str(error))


def _hooks(settings: Settings, folder: Path | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the program of each hook can be started from here."""
    if not settings.hooks:
        return
    from swink_agent.sandbox.starting import check_words, trusted_program

    from .agent.confinement import writable_folders

    outside = () if folder is None else writable_folders(folder.resolve())
    for hook in settings.hooks:
        text = f"{hook.name}, {hook.summary}"
        try:
            program = trusted_program(hook.argv[0], outside=outside, environ=environ)
            check_words(hook.argv[1:], outside=outside)
            problem = "" if os.access(program, os.X_OK) else f"{program} cannot be run"
        except OSError as error:
            problem = f"{hook.argv[0]}: {error.strerror or error}"
        if problem and hook.enabled:
            yield Finding("hooks", "problem", f"{text}: {problem}", f"fix or remove it: {hook.source}")
        else:
            yield Finding("hooks", "ok" if hook.enabled else "note", text)


def _local(settings: Settings) -> list[Finding]:
    if not has_local_extra():
        return [Finding("local model", "note", "models on this machine need an extra", LOCAL_EXTRA)]
    from swink_agent.local.weights.presets import DEFAULT_MODEL, PRESETS
    from swink_agent.local.weights.store import ModelStore

    store = ModelStore(settings.value("models_dir"))
    there = {stored.name for stored in store.list()}
    cached = [preset.name for preset in PRESETS if preset.name in there]
    if cached:
        return [Finding("local model", "ok", f"{', '.join(cached)} in {store.folder}")]
    size = next(preset.size for preset in PRESETS if preset.name == DEFAULT_MODEL)
    free = shutil.disk_usage(_existing(store.folder)).free
    text = f"{DEFAULT_MODEL} is not fetched yet ({size / 1e9:.1f} GB; {free / 1e9:.1f} GB are free)"
    if free < size + _SPARE_BYTES:
        return [Finding("local model", "problem", text, "free some space, or set models_dir to a larger disk")]
    return [Finding("local model", "note", text, f"swink models pull {DEFAULT_MODEL}")]


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def _model(settings: Settings, credentials: Credentials) -> list[Finding]:
    try:
        model, source = choose_model(settings, credentials)
    except ApplicationError as error:
        return [Finding("model", "problem", str(error))]
    return [Finding("model", "ok", f"{model} would be used ({source})")]


def _sessions(settings: Settings) -> list[Finding]:
    """Where the sessions are, how many there are, and whether one can be added."""
    folder = sessions_folder(settings)
    remedy = "set sessions_folder, or SWINK_DATA_DIR, to another folder"
    try:
        count = len(session_ids(folder))
    except ApplicationError as error:
        return [Finding("sessions", "problem", str(error), remedy)]
    there = f"{number_of(count, 'session')} in {folder}"
    if not settings.value("sessions"):
        return [Finding("sessions", "note", f"runs are not recorded (setting sessions); {there}")]
    if not os.access(_existing(folder), os.W_OK | os.X_OK):
        text = f"{there}, which cannot be written: runs are not recorded"
        return [Finding("sessions", "problem", text, remedy)]
    return [Finding("sessions", "ok", there)]


def _durable(settings: Settings) -> Iterator[Finding]:
    """The store of durable runs, if one is set or the default file exists. Creates nothing."""
    from swink_agent.durable import DurableError

    from .runs.durable import durable_at, lacks_file, unserved

    given = settings.value("durable.url")
    durable = durable_at(given)
    if given is None and lacks_file(durable):
        return

    async def look() -> FleetStats:
        async with durable:
            return await durable.stats()

    try:
        stats = asyncio.run(look())
    except MissingExtra as error:
        yield Finding("durable runs", "problem", f"there is a store, {durable.url}, but {error}")
        return
    except DurableError as error:
        yield Finding("durable runs", "problem", f"{durable.url}: {error}", "is it running, and durable.url right?")
        return
    text = (
        f"{durable.url}, version {stats.version}, {number_of(len(stats.workers), 'worker')}, {stats.queued} queued, "
        f"{stats.running} running, {stats.waiting} waiting, lag {stats.lag:.1f} s"
    )
    yield Finding("durable runs", "ok", text)
    for agent, count in unserved(stats).items():
        note = f"{number_of(count, 'queued run')} of the agent {agent}, which no worker serves"
        yield Finding("durable runs", "note", note, "start one: swink worker MODULE:NAME")


def _programs(folder: Path | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    from swink_agent.sandbox import find_program

    path = environ.get("PATH", "").split(os.pathsep)
    outside = [] if folder is None else [str(folder)]
    uses = {"rg": "search is quicker with it: install ripgrep", "git": "ignored files are left out with it"}
    for program, use in uses.items():
        found = find_program(program, outside=outside, folders=path)
        text = f"{program}: {found or 'not found'}"
        yield Finding("programs", "ok", text) if found else Finding("programs", "note", text, use)


def _terminal(environ: Mapping[str, str]) -> list[Finding]:
    if sys.stderr is None or not sys.stderr.isatty():  # closed by the caller
        return [Finding("terminal", "note", "stderr is not a terminal: no live lines, and no user to ask")]
    columns, lines = shutil.get_terminal_size()
    colours = "no colours (NO_COLOR)" if environ.get("NO_COLOR") else "colours"
    text = f"{environ.get('TERM', 'unknown')}, {columns} by {lines}, {sys.stderr.encoding}, {colours}"
    if "utf" not in (sys.stderr.encoding or "").lower():
        return [Finding("terminal", "note", text, "a UTF-8 locale shows everything: export LANG=C.UTF-8")]
    return [Finding("terminal", "ok", text)]


def _browser(folder: Path | None, environ: Mapping[str, str]) -> list[Finding]:
    """Checks for `swink web`: its port, and a program that opens a browser."""
    from .browser import browser_program

    words = browser_program(environ, [] if folder is None else [str(folder)])
    opened = f"{words[0]} opens the browser" if words else "no program to open a browser was found"
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", WEB_PORT))
        except OSError as error:
            why = f"port {WEB_PORT} cannot be used: {error.strerror}"
            return [Finding("swink web", "note", f"{why}; {opened}", "choose another: swink web --port")]
    remedy = "" if words else "swink web --no-open prints the address"
    return [Finding("swink web", "ok" if words else "note", f"port {WEB_PORT} is free; {opened}", remedy)]
