"""Destinations that do not exist, against an emulator, without Spark."""

import pytest

from tests.integration.backlog_queue import BacklogQueue
from tests.integration.emulator_data import stored
from tests.messages import id_of

pytestmark = pytest.mark.rule("Y5")
NONE_EXPIRED: frozenset[str] = frozenset()


def delete(backlog: BacklogQueue, path: str) -> None:
    backlog.namespace.call(lambda core: core.entities.delete(path))


@pytest.mark.parametrize("session", [None, "s"])
def test_messages_for_a_missing_destination_are_held(
    backlog: BacklogQueue, session: str | None
) -> None:
    messages = backlog.locked("missing", ["a", "b"], session)

    outcome = backlog.forward(messages, expired=NONE_EXPIRED)

    assert (outcome.missing, outcome.left, outcome.dead_lettered) == (
        {"missing"},
        {"missing": 2},
        {},
    )
    assert set(outcome.errors) == {"missing"}
    # They were abandoned, so they can be received at once, in their order.
    assert [id_of(delivery.payload) for delivery in backlog.receive(9)] == ["a", "b"]


def test_destination_whose_token_is_not_found_is_missing(backlog: BacklogQueue) -> None:
    path = backlog.create_queue()
    messages = backlog.locked(path, ["a"])
    fault = backlog.namespace.add_fault("refuse-tokens", path, status=404)

    outcome = backlog.forward(messages, expired=NONE_EXPIRED)

    assert fault.fired == 1
    assert (outcome.missing, outcome.left, outcome.dead_lettered) == ({path}, {path: 1}, {})


@pytest.mark.parametrize("expired", [None, frozenset({"missing"})])
def test_messages_are_dead_lettered_when_the_grace_is_over(
    backlog: BacklogQueue, expired: frozenset[str] | None
) -> None:
    outcome = backlog.forward(backlog.locked("missing", ["a", "b"]), expired=expired)

    assert (outcome.missing, outcome.left) == ({"missing"}, {})
    assert outcome.dead_letter_reasons == {"missing": {"EntityNotFound": 2}}
    assert backlog.message_count() == 0
    description = "The queue or topic 'missing' does not exist."
    assert backlog.dead_letters() == [("EntityNotFound", description)] * 2


@pytest.mark.parametrize("created_again", [False, True])
def test_destination_that_is_deleted_after_it_was_used_is_held_until_it_exists_again(
    backlog: BacklogQueue, created_again: bool
) -> None:
    """The process keeps its link, on which the emulator rejects messages as not found, also if the
    entity was created again."""
    path = backlog.create_queue()
    assert backlog.forward(backlog.locked(path, ["before"])).moved == {path: 1}
    delete(backlog, path)
    if created_again:
        backlog.namespace.create_queue(path)
    messages = backlog.locked(path, ["a", "b"])

    # Even if it was missing before and its time is over: it existed when the task started.
    outcome = backlog.forward(messages, expired=frozenset({path}))

    assert (outcome.missing, outcome.left, outcome.dead_lettered) == ({path}, {path: 2}, {})
    if not created_again:
        backlog.namespace.create_queue(path)
    outcome = backlog.forward(messages, expired=NONE_EXPIRED)
    assert (outcome.missing, outcome.moved) == (set(), {path: 2})
    assert stored(backlog.namespace, path) == ["a", "b"]
