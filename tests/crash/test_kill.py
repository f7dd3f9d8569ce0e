"""`kill -9` at any moment, repeatedly: everything that was relied on is on disk, and no tool runs twice."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from swink_agent.testing import FakeProvider
from swink_agent.testing.fakes import FakeReply

from .acceptance import Loop, Planned, Providers
from .checking import Child, Nursery, Said, check_after_kill, read_marks, results_of
from .life import ALL_WORK, work_of

MOST_KILLS_OF_ONE = 5


class Life:
    """One session from its beginning to its end, through several deaths."""

    def __init__(self, nursery: Nursery, folder: Path, seed: int, **order: Any) -> None:
        self.nursery, self.folder, self.order = nursery, folder, order
        self.kind = str(order.get("store", "files"))
        self.dice = random.Random(seed)
        self.id: str | None = None
        self.said: list[Said] = []
        self.kills = 0
        self.has_ended = False
        folder.mkdir()

    def begin(self, **more: Any) -> Child:
        seed = self.dice.randrange(1 << 30)
        return self.nursery.begin("live", self.folder, id=self.id, seed=seed, **self.order, **more)

    def one_kill(self) -> None:
        """Begins or goes on, and is killed, by chance or at a step of the disk."""
        if self.dice.random() < 0.5:
            where = self.dice.choice(["before", "amid", "after"])
            child = self.begin(die_at=self.dice.randrange(1, 40), where=where)
            child.wait()
        else:
            child = self.begin()
            child.kill_after(self.dice.randrange(0, 12), self.dice.choice([0, 0.0005, 0.002]) * self.dice.random())
        self.take(child)
        self.kills += child.was_killed

    def take(self, child: Child) -> None:
        opened = child.one("opened")
        if opened is not None:
            assert self.id in (None, opened[1])
            self.id = opened[1]
        self.said += child.said
        self.has_ended = ["closed"] in child.said

    def to_the_end(self) -> None:
        child = self.begin()
        child.wait()
        assert not child.was_killed
        assert child.said[-1] == ["closed"]
        self.take(child)


def live_through(life: Life, providers: Providers, marks: Any = read_marks) -> None:
    while life.kills < MOST_KILLS_OF_ONE and not life.has_ended:
        life.one_kill()
        if life.id is not None:
            loaded = check_after_kill(life.folder, life.id, life.said, marks, life.kind)
            if not life.order.get("ids_recur"):  # which no strict provider takes, crash or not
                providers.check(loaded.messages)
    life.to_the_end()
    assert life.id is not None
    loaded = check_after_kill(life.folder, life.id, life.said, marks, life.kind)
    assert set(results_of(loaded.messages)) == ALL_WORK
    assert loaded.info.problems == ()


def kill_many(nursery: Nursery, providers: Providers, folder: Path, kind: str, kills: int, first_seed: int) -> None:
    seed = first_seed
    done = 0
    while done < kills:
        life = Life(nursery, folder / str(seed), seed, store=kind, ids_recur=seed % 5 == 0, sums_up=seed % 2 == 0)
        try:
            live_through(life, providers)
        except BaseException:
            sys.stderr.write(f"seed {seed}, in {life.folder}\n")
            raise
        done += life.kills
        seed += 1


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(("kind", "kills"), [("files", 15), ("sql", 8)])
def test_a_process_that_is_killed_loses_nothing_that_was_relied_on(
    nursery: Nursery, providers: Providers, tmp_path: Path, kind: str, kills: int
) -> None:
    kill_many(nursery, providers, tmp_path, kind, kills, 1)


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kind", ["files", "sql"])
def test_hundreds_of_kills_lose_nothing_that_was_relied_on(
    nursery: Nursery, providers: Providers, tmp_path: Path, kind: str, part: int
) -> None:
    kill_many(nursery, providers, tmp_path, kind, 100, 1_000_000 * part + random.randrange(1_000_000))


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "where"),
    [("files", "before"), ("files", "amid"), ("files", "after"), ("sql", "before"), ("sql", "after")],
)
def test_a_kill_at_any_step_of_the_disk_loses_nothing(
    nursery: Nursery, providers: Providers, tmp_path: Path, kind: str, where: str
) -> None:
    step = 1
    while True:
        life = Life(nursery, tmp_path / str(step), step, store=kind)
        child = life.begin(die_at=step, where=where)
        child.wait()
        life.take(child)
        if life.id is not None:
            loaded = check_after_kill(life.folder, life.id, life.said, kind=kind)
            if step % 8 == 0:
                providers.check(loaded.messages)
        if not child.was_killed:
            break
        if step % 3 == 0:
            life.to_the_end()
            assert life.id is not None
            check_after_kill(life.folder, life.id, life.said, kind=kind)
        step += 1
    assert step > 50


# -- the standard tools, and a provider on the network -----------------------------------------------------------


def reply_to(body: dict[str, Any]) -> FakeReply:
    """What the plan wants next, of the conversation that a provider sees."""
    prompt, step = 0, 0
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else [{"text": message["content"]}]
        for block in blocks:
            said = str(block.get("text", ""))
            if message["role"] == "user" and said.startswith("prompt "):
                prompt, step = int(said.split()[1]), 0
            if block.get("type") == "tool_use":
                name = block["input"].get("path") or block["input"]["command"].split()[1]
                step = int(name.split("-")[1]) + 1
    items = work_of(prompt, step)
    calls = [
        ("write_file", {"path": item, "content": "made"})
        if item.endswith("-2")
        else ("bash", {"command": f"echo {item} >> marks"})
        for item in items
    ]
    return FakeReply(text=f"step {step}" if calls else f"done {prompt}", calls=calls)


def marks_of_tools(folder: Path) -> Counter[str]:
    made = Counter([path.name for path in (folder / "work").glob("*-2")])
    return read_marks(folder / "work") + made


def kill_with_tools(nursery: Nursery, loop: Loop, providers: Providers, folder: Path, kills: int, seed: int) -> None:
    fake = FakeProvider("anthropic")
    fake.replies = Planned(fake, reply_to)
    loop.run(fake.__aenter__())
    try:
        done = 0
        while done < kills:
            life = Life(nursery, folder / str(seed), seed, url=fake.url)
            try:
                live_through(life, providers, marks_of_tools)
            except BaseException:
                sys.stderr.write(f"seed {seed}, in {life.folder}\n")
                raise
            assert not fake.rejections
            done += life.kills
            seed += 1
    finally:
        loop.run(fake.__aexit__(None, None, None))


def test_so_it_is_with_real_tools_and_a_provider_on_the_network(
    nursery: Nursery, loop: Loop, providers: Providers, tmp_path: Path
) -> None:
    kill_with_tools(nursery, loop, providers, tmp_path, 3, 1)


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_so_it_is_with_real_tools_many_times(
    nursery: Nursery, loop: Loop, providers: Providers, tmp_path: Path
) -> None:
    kill_with_tools(nursery, loop, providers, tmp_path, 40, random.randrange(1_000_000))
