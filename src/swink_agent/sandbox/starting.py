"""Starts other programs for our own use: an editor, a clipboard, pip, a worker, a sandbox.

Everything that no sandbox confines, and that is not a command of the user or the model, is started here. A command may
write to the working folder, and `PATH` often names a folder in it (`.venv/bin`). So the program must not be where a
command could have written it, variables that name programs and libraries lose such places, and it starts in `/` unless
the caller gives another folder, which must not be such a place.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from .errors import SandboxError
from .programs import USUAL_FOLDERS, find_program, importable, own_interpreter, without_folders, writable_part

_SEARCHED = (
    *("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "DYLD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES"),
    *("DYLD_FRAMEWORK_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "PYTHONUSERBASE", "PYTHONHOME", "PYTHONPYCACHEPREFIX"),
    *("PERL5LIB", "PERLLIB", "RUBYLIB", "NODE_PATH", "GCONV_PATH", "LOCPATH", "GTK_PATH", "GIO_MODULE_DIR"),
    *("QT_PLUGIN_PATH", "OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "PIP_CONFIG_FILE", "BASH_ENV"),
)
"""Variables that name the places of programs, of their libraries, and of what they run at their start."""
_BETWEEN = {"LD_PRELOAD": r"[:\s]+", "LD_AUDIT": r"[:\s]+"}
"""What separates the entries, if it is not only the usual character."""
# Imports modules of this package by name, without running the package's own `__init__`.
_BOOT = (
    "import sys, types, importlib\n"
    "for name, folder in (('swink_agent', sys.argv[1] + '/..'), ('swink_agent.sandbox', sys.argv[1])):\n"
    "    package = sys.modules[name] = types.ModuleType(name)\n"
    "    package.__path__ = [folder]\n"
    "importlib.import_module('swink_agent.sandbox.' + sys.argv[2]).main(*map(int, sys.argv[3:]))\n"
)
_NEEDED = "LD_LIBRARY_PATH"
"""Without this variable some Pythons do not start."""
_SANDBOX = os.path.dirname(os.path.abspath(__file__))
_PATH = re.compile(r"/[^\s'\";=:,|&()]+")


def start_program(
    argv: Sequence[str],
    *,
    outside: Iterable[str] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] = os.path.sep,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None = subprocess.DEVNULL,
    stderr: int | None = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    new_session: bool = False,
) -> subprocess.Popen[bytes]:
    """Starts a program, by name or absolute path, that no command could have written.

    `outside`: the folders that commands may write; by default the working folder. `environ`: the program's variables,
    by default ours, without entries in those folders. `cwd` must not be one of them either.
    Raises `OSError` if the program is missing, or is where a command could have written it.
    """
    folders = _writable(outside)
    environ = os.environ if environ is None else environ
    program = trusted_program(argv[0], outside=folders, environ=environ)
    return subprocess.Popen(
        [program, *argv[1:]],
        env=trusted_environment(environ, outside=folders),
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_fds,
        start_new_session=new_session,
    )


def run_program(
    argv: Sequence[str],
    *,
    timeout: float,
    given: bytes = b"",
    outside: Iterable[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program to its end, like `start_program`; `given` is its input.

    Raises `OSError` like `start_program`, and `subprocess.TimeoutExpired` after killing a program that took too long.
    """
    pipe = subprocess.PIPE
    with start_program(argv, outside=outside, environ=environ, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            out, error = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(list(argv), process.returncode, out, error)


def start_helper(
    module: str, line: int, *arguments: int, outside: Sequence[str], stdin: int = subprocess.DEVNULL, stderr: int
) -> subprocess.Popen[bytes]:
    """Starts `main(line, *arguments)` of a module of `swink_agent.sandbox`, which gets the descriptor `line`.

    `outside`: the folders that commands may write. Raises `SandboxError`.
    """
    interpreter = own_interpreter()
    if not interpreter:
        raise SandboxError("this Python does not know its own program, which a helper of the sandbox needs")
    try:
        return start_program(
            [interpreter, "-I", "-S", "-X", "utf8", "-c", _BOOT, _SANDBOX, module, *map(str, (line, *arguments))],
            outside=outside,
            environ={name: value for name, value in os.environ.items() if name == _NEEDED},
            stdin=stdin,
            stderr=stderr,
            pass_fds=(line,),
            new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"a helper of the sandbox could not be started: {error}") from error


def end_helper(process: subprocess.Popen[bytes], within: float) -> None:
    """Waits for the end of a helper that was asked to end. After `within` seconds it is killed."""
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def trusted_program(
    name: str, *, outside: Iterable[str] | None = None, environ: Mapping[str, str] | None = None
) -> str:
    """The absolute path of a program that may be started. Raises `OSError` if there is none, with the reason."""
    folders = _writable(outside)
    if os.path.sep in name:
        if not os.path.isabs(name):
            raise PermissionError(errno.EACCES, "it is not an absolute path: give the whole path", name)
        if part := writable_part(name, folders):
            raise _in_a_writable_folder(name, part)
        return name
    path = (os.environ if environ is None else environ).get("PATH", "").split(os.pathsep)
    found = find_program(name, outside=folders, folders=[*path, *USUAL_FOLDERS])
    if found is not None:
        return found
    if inside := find_program(name, folders=path):
        raise _in_a_writable_folder(inside, inside)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def check_words(words: Iterable[str], *, outside: Iterable[str] | None = None) -> None:
    """Raises `PermissionError` if a word names a file that a command could write, as in `python3 FOLDER/editor.py`."""
    folders = _writable(outside)
    for path in (path for word in words for path in _PATH.findall(word)):
        if part := writable_part(path, folders):
            raise _in_a_writable_folder(path, part)


def trusted_environment(environ: Mapping[str, str], *, outside: Iterable[str] | None = None) -> dict[str, str]:
    """The variables without places where a command could have written what a program would run or load."""
    if not environ:
        return {}
    folders = _writable(outside)
    trusted = dict(environ)
    for name in _SEARCHED:
        if name in environ:
            entries = re.split(_BETWEEN.get(name, re.escape(os.pathsep)), environ[name])
            _set(trusted, name, without_folders(entries, folders))
    if "PYTHONPATH" in environ:
        entries = importable(environ["PYTHONPATH"].split(os.pathsep), folders)
        _set(trusted, "PYTHONPATH", [entry for entry in entries if entry in sys.path])  # only what we import from
    return trusted


def _set(environ: dict[str, str], name: str, entries: list[str]) -> None:
    if entries:
        environ[name] = os.pathsep.join(entries)
    elif name == "PATH":  # without one, the system would look in the working folder too
        environ[name] = os.pathsep.join(USUAL_FOLDERS)
    else:
        del environ[name]


def _writable(outside: Iterable[str] | None) -> list[str]:
    if outside is not None:
        return list(outside)
    try:
        return [os.getcwd()]
    except FileNotFoundError:  # the working folder was deleted
        return []


def _in_a_writable_folder(program: str, part: str) -> PermissionError:
    where = "it is" if program == part or program.startswith(part + os.path.sep) else f"it leads to {part}, which is"
    return PermissionError(errno.EACCES, f"{where} in a folder that commands may write, so it is not started", program)
