"""Opening: a trial decides which back end is used, and if none works, the error names every reason."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from swink_agent.sandbox import (
    BackendReport,
    Sandbox,
    SandboxedProcess,
    SandboxProfile,
    SandboxUnavailable,
    open_sandbox,
    open_unconfined,
    probe_backends,
)
from swink_agent.sandbox.landlock import backend as landlock
from swink_agent.sandbox.open import backend_names
from swink_agent.sandbox.plain import UnconfinedSandbox


@pytest.fixture
def profile(tmp_path: Path) -> SandboxProfile:
    (tmp_path / "root").mkdir()
    return SandboxProfile(write=(str(tmp_path / "root"),))


def fake_bubblewrap(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "bin/bwrap"
    program.parent.mkdir()
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.bubblewrap
def test_the_first_back_end_of_this_system_is_opened_without_remains_of_its_trial(profile: SandboxProfile) -> None:
    with open_sandbox(profile) as sandbox:
        assert sandbox.backend == backend_names()[0]
        assert sandbox.profile == profile
        assert os.listdir(profile.write[0]) == []


async def test_it_can_be_opened_inside_of_an_event_loop(profile: SandboxProfile) -> None:
    with open_sandbox(profile) as sandbox:
        process = await sandbox.spawn(["/bin/echo", "fine"], cwd=profile.write[0])
        assert await process.wait() == 0
        assert await process.output.read() == b"fine\n"


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
def test_a_back_end_can_be_named(name: str, profile: SandboxProfile) -> None:
    with open_sandbox(profile, backend=name) as sandbox:
        assert sandbox.backend == name


def test_a_back_end_that_is_not_there_is_told_with_those_that_are(profile: SandboxProfile) -> None:
    with pytest.raises(SandboxUnavailable, match="no back end 'docker' on this system") as caught:
        open_sandbox(profile, backend="docker")
    assert [report.name for report in caught.value.reports] == ["docker"]


@pytest.mark.bubblewrap
def test_every_back_end_of_this_machine_works() -> None:
    """Fails where one does not: the escapes above must run for real."""
    assert probe_backends() == tuple(BackendReport(name=name, works=True) for name in backend_names())
    assert backend_names() == ("bubblewrap", "landlock")


# -- programs that are not what their name says ------------------------------------------------------------------


FAKES = {
    "runs its command without walls": '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n',
    "says the right things and has no walls": "#!/bin/bash\n[ $1 = --version ] && echo bubblewrap 0.8.0 && exit\n"
    'while [ "$1" != -- ]; do case $1 in --json-status-fd) s=$2;; --block-fd) b=$2;; esac; shift; done; shift\n'
    '(read -r -n 1 -u $b; exec "$@") & eval "echo \'{ \\"child-pid\\": \'$!\' }\' >&$s"; wait $!; r=$?\n'
    "eval \"echo '{ \\\"exit-code\\\": '$r' }' >&$s\"; exit $r\n",
    "does nothing": "#!/bin/sh\nexit 0\n",
    "fails": "#!/bin/sh\necho bwrap: setting up uid map: Permission denied >&2; exit 1\n",
    "is not a program": "not a program\n",
}


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", FAKES)
def test_a_false_bubblewrap_is_detected(
    name: str, tmp_path: Path, profile: SandboxProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_bubblewrap(tmp_path, FAKES[name], monkeypatch)
    with pytest.raises(SandboxUnavailable) as caught:
        open_sandbox(profile, backend="bubblewrap")
    (report,) = caught.value.reports
    assert not report.works
    assert report.reason
    assert os.listdir(profile.write[0]) == []
    with open_sandbox(profile) as sandbox:
        assert sandbox.backend == "landlock"


def test_complaints_of_bubblewrap_are_the_reason(
    tmp_path: Path, profile: SandboxProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_bubblewrap(tmp_path, FAKES["fails"], monkeypatch)
    with pytest.raises(SandboxUnavailable, match="setting up uid map: Permission denied"):
        open_sandbox(profile, backend="bubblewrap")


def test_without_the_program_the_package_is_named(profile: SandboxProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    from swink_agent.sandbox.bubblewrap import backend as bubblewrap

    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda profile: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable, match=r"not installed \(apt install bubblewrap"):
        open_sandbox(profile, backend="bubblewrap")


def test_a_program_in_the_folder_itself_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In `/usr`, say: what a command could have written is not started, and installing it once more would not help."""
    from swink_agent.sandbox.bubblewrap import backend as bubblewrap

    fake_bubblewrap(tmp_path, FAKES["fails"], monkeypatch)
    real = bubblewrap.find_program

    def only_there(name: str, *, outside: Sequence[str] = (), folders: Sequence[str] | None = None) -> str | None:
        return real(name, outside=outside, folders=[str(tmp_path / "bin")])

    monkeypatch.setattr(bubblewrap, "find_program", only_there)
    with pytest.raises(SandboxUnavailable) as caught:
        open_sandbox(SandboxProfile(write=(str(tmp_path),)), backend="bubblewrap")
    assert f"{tmp_path}/bin/bwrap is in a folder that commands may write" in str(caught.value)
    assert "installed" not in str(caught.value)
    assert "apt" not in str(caught.value)


class Leaky(Sandbox):
    """Claims to be a back end and confines nothing."""

    backend = "landlock"

    def __init__(self, profile: SandboxProfile, change: Any = None) -> None:
        super().__init__(profile)
        self._inner = UnconfinedSandbox(profile)

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str] | None = None,
        stdin: int = asyncio.subprocess.DEVNULL,
        pass_fds: Sequence[int] = (),
    ) -> SandboxedProcess:
        return await self._inner.spawn(self.changed(argv), cwd=cwd)

    def changed(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def close(self) -> None:
        self._inner.close()


class OnlyTheNetworkLeaks(Leaky):
    def changed(self, argv: Sequence[str]) -> list[str]:
        return [argument.replace("echo broken >", "true") for argument in argv]


class CannotWrite(Leaky):
    def changed(self, argv: Sequence[str]) -> list[str]:
        return [argument.replace(': > "$mark"', "true").replace("echo broken >", "true") for argument in argv]


class Silent(Leaky):
    def changed(self, argv: Sequence[str]) -> list[str]:
        return ["/bin/true"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Leaky, "can write outside of its folders"),
        (OnlyTheNetworkLeaks, "can reach the network"),
        (CannotWrite, "cannot write to"),
        (Silent, "a command does not run in it"),
    ],
)
def test_each_wall_is_tried(
    kind: type[Sandbox], reason: str, profile: SandboxProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "LandlockSandbox", kind)
    with pytest.raises(SandboxUnavailable, match=reason) as caught:
        open_sandbox(profile, backend="landlock")
    assert "Landlock" in caught.value.reports[0].remedy
    assert 'sandbox="off"' in str(caught.value)


def test_where_none_works_every_reason_is_given(profile: SandboxProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    from swink_agent.sandbox.bubblewrap import backend as bubblewrap

    monkeypatch.setattr(landlock, "LandlockSandbox", Leaky)
    monkeypatch.setattr(bubblewrap, "BubblewrapSandbox", Silent)
    with pytest.raises(SandboxUnavailable) as caught:
        open_sandbox(profile)
    assert [(report.name, report.works) for report in caught.value.reports] == [
        ("bubblewrap", False),
        ("landlock", False),
    ]
    assert [report.works for report in probe_backends()] == [False, False]


@pytest.mark.parametrize(
    ("setting", "value", "advice"),
    [
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
        ("", "", "container"),
    ],
)
def test_the_kernel_s_settings_are_looked_at_for_advice(
    setting: str, value: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swink_agent.sandbox import open as opening

    monkeypatch.setattr(opening, "_setting", lambda name: value if name == setting else "")
    assert advice in opening._bubblewrap_remedy()


def test_no_walls_are_opened_only_by_their_own_name(profile: SandboxProfile) -> None:
    with pytest.raises(SandboxUnavailable):
        open_sandbox(profile, backend="off")
    with open_unconfined(profile) as sandbox:
        assert sandbox.backend == "off"
