"""What gives way in a full window."""

from __future__ import annotations

from swink_agent.local.prompt import Turn
from swink_agent.local.window import fitted


def turn(size: int, *, is_request: bool = False) -> Turn:
    return Turn((("user" if is_request else "assistant", "x" * size),), is_request=is_request)


def test_a_conversation_that_fits_is_left_alone() -> None:
    turns = [turn(10), turn(10, is_request=True)]
    assert fitted(turns, 20) == turns


def test_the_oldest_go_first() -> None:
    turns = [turn(30), turn(31), turn(32), turn(33, is_request=True)]
    assert fitted(turns, 100) == turns[1:]


def test_the_last_request_and_the_newest_turn_stay() -> None:
    turns = [turn(50), turn(40, is_request=True), turn(51), turn(52), turn(45)]
    assert fitted(turns, 100) == [turns[1], turns[4]]


def test_what_must_stay_and_does_not_fit_is_told() -> None:
    assert fitted([turn(10), turn(90, is_request=True), turn(20)], 100) is None


def test_the_cut_stays_where_it_is_while_the_conversation_grows() -> None:
    """A prompt that begins otherwise at every turn would be read anew at every turn."""
    turns = [turn(10, is_request=True), *[turn(10) for _ in range(12)]]
    starts: list[int] = []
    for _ in range(12):
        turns.append(turn(10))
        kept = fitted(turns, 100)
        assert kept is not None
        assert sum(turn.length for turn in kept) <= 100
        starts.append(len(turns) - len(kept))
    assert len(set(starts)) <= 6
