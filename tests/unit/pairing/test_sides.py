"""Two clients of a pairing: one that is alone for too long takes the other with it."""

import pytest

from pairbus.errors import PairingFaulted, StateError
from pairbus.pairing.sides import PARTNER_S, Duty, Partners, Side

CAUSE = OSError("gone")


def two() -> tuple[Side, Side, Partners]:
    primary, secondary = Side("one"), Side("two")
    return primary, secondary, Partners(primary, secondary)


def test_an_open_one_raises_nothing() -> None:
    side = Side("one")

    side.check_open()

    assert (side.down, side.error()) == (False, None)


def test_a_closed_one_says_so() -> None:
    side = Side("one")
    side.closed = True

    with pytest.raises(StateError, match="closed"):
        side.check_open()
    assert side.down


@pytest.mark.rule("Y7")
@pytest.mark.parametrize("closed", [True, False])
def test_a_faulted_one_says_its_first_cause(closed: bool) -> None:
    side = Side("one")
    side.closed = closed

    assert side.give_up(CAUSE)
    assert not side.give_up(RuntimeError("another"))

    assert side.down
    with pytest.raises(PairingFaulted, match="gone") as caught:
        side.check_open()
    assert caught.value.__cause__ is CAUSE


@pytest.mark.rule("Y7")
def test_nothing_is_done_while_both_are_open() -> None:
    _, _, partners = two()

    assert {partners.look(at) for at in (0, 4, 1000)} == {Duty.NOTHING}


@pytest.mark.rule("Y7")
@pytest.mark.parametrize("faulted", [True, False])
@pytest.mark.parametrize(
    ("down", "duty"), [(0, Duty.FAULT_SECONDARY), (1, Duty.FAULT_PRIMARY)], ids=["primary", "other"]
)
def test_the_partner_of_one_that_is_down_is_to_be_faulted_after_5_seconds(
    down: int, duty: Duty, faulted: bool
) -> None:
    sides = two()
    partners = sides[2]
    assert partners.look(90) is Duty.NOTHING
    if faulted:
        sides[down].give_up(CAUSE)
    else:
        sides[down].closed = True

    assert PARTNER_S == 5
    assert partners.look(100) is Duty.NOTHING
    assert partners.look(104.9) is Duty.NOTHING
    assert partners.look(105) is duty


@pytest.mark.rule("Y7")
@pytest.mark.parametrize("after", [0.0, 3.0, 50.0])
def test_with_both_down_the_syphon_is_to_stop(after: float) -> None:
    primary, secondary, partners = two()
    primary.closed = True
    partners.look(100)
    secondary.give_up(CAUSE)

    assert partners.look(100 + after) is Duty.STOP
