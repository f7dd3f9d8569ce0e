"""The list of mounts, which the commands of one sandbox share, from any thread."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from swink_agent.sandbox.kernel.mounts import MountList

pytestmark = pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="told by the kernel of Linux")


def test_many_threads_may_look_at_once() -> None:
    mounts, problems = MountList(), list[Exception]()

    def look() -> None:
        try:
            for _ in range(2_000):
                mounts.now()
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mounts.close()
    assert problems == []
