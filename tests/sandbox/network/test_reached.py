"""The log of the hosts that a command asked for: it is bounded, and what was reached is never pushed out of it."""

from __future__ import annotations

from swink_agent.sandbox.network.reached import Reached, ReachedLog


def logged(*entries: Reached) -> tuple[Reached, ...]:
    log = ReachedLog()
    for entry in entries:
        log.add(entry)
    return log.entries()


REFUSED = [Reached(f"h{number}.org", 443, False, "is not among them") for number in range(500)]
FAILED = [Reached(f"f{number}.org", 443, True, "could not be resolved") for number in range(500)]
THERE = Reached("there.org", 443, True)


def test_a_host_that_was_reached_is_not_hidden_by_others() -> None:
    assert logged(*REFUSED, THERE) == (*REFUSED[:199], THERE)
    assert logged(*FAILED, THERE, THERE) == (*FAILED[:199], THERE)
    assert logged(*REFUSED, *FAILED[:2], THERE) == (*REFUSED[:197], *FAILED[:2], THERE)


def test_the_log_has_different_requests_in_their_order() -> None:
    few = (REFUSED[0], THERE, FAILED[0], REFUSED[1])
    assert logged(*few, *few) == few
    there = [Reached(f"t{number}.org", 443, True) for number in range(500)]
    assert logged(*REFUSED[:5], *there) == tuple(there[:200])
