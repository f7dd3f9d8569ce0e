"""How pytest-xdist runs the tests: each worker runs all that it has collected, which is its share (`shares.py`)."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import EachScheduling
from xdist.workermanage import WorkerController

AHEAD = 8
"""Tests that a worker knows of. It runs them even if the run is to stop at the first failure."""


class Scheduling(EachScheduling):
    def schedule(self) -> None:
        session: Any = self.config.pluginmanager.get_plugin("session")
        session.testscollected = sum(map(len, self.node2collection.values()))  # for the progress in percent
        for node, collection in self.node2collection.items():
            self.node2pending[node] = [*range(len(collection))]
            self._send(node, 0, AHEAD)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        self._send(node, item_index + AHEAD, item_index + AHEAD + 1)

    def _send(self, node: WorkerController, start: int, end: int) -> None:
        """Sends the tests with these numbers, and after the last that there are no more."""
        count = len(self.node2collection[node])
        if start < count:
            node.send_runtest_some([*range(start, min(end, count))])
        if start < count <= end or count == 0:
            node.shutdown()
