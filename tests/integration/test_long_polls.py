"""Long polls of queues of an emulator: cost, renewal of locks and tokens, and links that end.

Tests move the clocks of the namespace and of the polls together.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pairbus.amqp.client import (
    Client,
    ClientOptions,
    HeldCredential,
    Management,
    Receiver,
    Sender,
    SharedAccessKey,
)
from pairbus.amqp.sections import Message
from pairbus.emulator.auth import GRACE_S
from pairbus.emulator.clock import machine_ms
from pairbus.emulator.namespace import LocalNamespace
from pairbus.emulator.tiers import UNLIMITED, NamespaceTier
from pairbus.emulator.token_issuer import TokenIssuer
from pairbus.servicebus.tokens import Token, TokenSource
from pairbus.spark.long_polls import LongPolls
from pairbus.spark.usage import NO_USAGE, UsageRecorder
from pairbus.usage.operations import OperationKind
from pairbus.usage.records import read_operations
from tests.waiting import wait_until

MINUTE = timedelta(minutes=1)
IDLE_TIER = replace(
    UNLIMITED, name="idle", link_idle_timeout=10 * MINUTE, detach_idle_receivers=True
)


class Clocks:
    """The clocks of long polls, ahead of those of the machine."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return time.monotonic() + self.ahead

    def now_ms(self) -> int:
        return int((time.time() + self.ahead) * 1000)


class PolledNamespace:
    """Queues of a namespace, and long polls on them."""

    def __init__(self, namespace: LocalNamespace, ledger: Path) -> None:
        self.namespace = namespace
        self.ledger = ledger
        self.clocks = Clocks()
        self.queues: list[str] = []
        self.polls: list[LongPolls] = []
        self.options = ClientOptions.from_connection_string(
            namespace.connection_string, operation_timeout_s=20
        )

    def create(self, count: int, **settings: object) -> None:
        for index in range(count):
            self.queues.append(f"q{index}")
            self.namespace.create_queue(self.queues[-1], **settings)

    def start(self, poll: timedelta = 15 * MINUTE, *, ledger: bool = True) -> LongPolls:
        usage = NO_USAGE
        if ledger:
            usage = UsageRecorder.create(str(self.ledger), self.options, self.options)
        polls = LongPolls(
            self.options,
            self.queues,
            poll_s=poll.total_seconds(),
            usage=usage,
            now=self.clocks.now,
            now_ms=self.clocks.now_ms,
        )
        self.polls.append(polls)
        polls.resume()
        return polls

    def advance(self, span: timedelta) -> None:
        self.clocks.ahead += span.total_seconds()
        self.namespace.advance(span)

    def send(self, queue: str = "q0") -> None:
        with Client(self.options) as client, Sender(client, queue) as sender:
            sender.send(Message.build(data=b"body").encode())

    def metered(self, kind: str = "receive") -> int:
        return sum(
            reading.operations
            for (_, metered), reading in self.namespace.meter().items()
            if metered == kind
        )

    def recorded(self, *kinds: OperationKind) -> int:
        """Return the answered operations in the ledger."""
        return sum(
            record["operations"]
            for record in read_operations(self.ledger)
            if record["answered"] and OperationKind(record["kind"]) in kinds
        )

    def granted(self) -> int:
        """Return the number of links on which a poll waits."""
        return self.namespace.call(
            lambda core: sum(
                receiver.link.credit > 0
                for receivers in core.outgoing_links.values()
                for receiver in receivers
            )
        )


@pytest.fixture
def tier() -> NamespaceTier:
    return UNLIMITED


@pytest.fixture
def polled(namespace: LocalNamespace, tmp_path: Path) -> Iterator[PolledNamespace]:
    polled = PolledNamespace(namespace, tmp_path)
    yield polled
    for polls in polled.polls:
        polls.stop()


@pytest.fixture
def namespace(tier: NamespaceTier) -> Iterator[LocalNamespace]:
    with LocalNamespace("secondary", tier=tier) as namespace:
        yield namespace


@pytest.mark.rule("Y6", "C5")
def test_idle_polls_of_ten_queues_are_forty_receives_an_hour(polled: PolledNamespace) -> None:
    polled.create(10)
    polled.start()
    wait_until(lambda: polled.granted() == 10, "the first polls")
    assert polled.metered() == 0

    for quarter in range(1, 5):
        polled.advance(15 * MINUTE)
        wait_until(lambda n=quarter: polled.metered() == 10 * n, "the polls to be repeated")
        wait_until(lambda: polled.granted() == 10, "the next polls")

    polled.advance(14 * MINUTE)
    wait_until(lambda: polled.recorded(OperationKind.POLL) == 40, "the ledger")
    assert polled.metered() == 40
    assert polled.metered("peek") == polled.metered("renew") == 0


@pytest.mark.rule("Y6", "C5")
@pytest.mark.parametrize("tier", [IDLE_TIER])
def test_poll_whose_link_the_service_detaches_is_repeated_and_counted(
    polled: PolledNamespace,
) -> None:
    polled.create(3)
    polls = polled.start()
    wait_until(lambda: polled.granted() == 3, "the first polls")

    for polled_times in range(1, 4):
        polled.advance(11 * MINUTE)
        wait_until(lambda n=polled_times: polled.metered() == 3 * n, "the links to be detached")
        wait_until(lambda: polled.granted() == 3, "the polls to be repeated")
        assert polls.error is None

    wait_until(lambda: polled.recorded(OperationKind.POLL) == 9, "the ledger")
    polled.send("q1")
    wait_until(lambda: [m.queue for m in polls.messages()] == ["q1"], "the message")
    assert polled.metered() == 10


@pytest.mark.rule("C5")
def test_polls_that_end_with_the_query_are_counted(polled: PolledNamespace) -> None:
    polled.create(3)
    polls = polled.start()
    wait_until(lambda: polled.granted() == 3, "the polls")
    polls.stop()
    wait_until(lambda: polled.metered() == 3, "the namespace to count the polls")
    assert polled.recorded(OperationKind.POLL) == 3


@pytest.mark.rule("C5")
def test_poll_is_counted_that_goes_on_when_another_fails(polled: PolledNamespace) -> None:
    polled.create(2)
    polls = polled.start()
    wait_until(lambda: polled.granted() == 2, "the polls")
    polled.namespace.call(lambda core: core.entities.delete("q0"))
    wait_until(lambda: polls.error is not None, "the first poll to fail")

    polls.stop()

    wait_until(lambda: polled.recorded(OperationKind.POLL) == 1, "the ledger")
    readings = polled.namespace.meter()
    assert readings["q1", "receive"].operations == 1


@pytest.mark.rule("Y6")
def test_polls_are_resumed_after_the_connection_was_closed(polled: PolledNamespace) -> None:
    polled.create(2)
    polls = polled.start()
    wait_until(lambda: polled.granted() == 2, "the first polls")

    polled.namespace.stop()
    wait_until(lambda: polls.error is not None, "the connection to be lost")
    polled.namespace.start()

    wait_until(lambda: polled.granted() == 2 and polls.error is None, "the next polls")
    # The polls that were lost with the connection were not answered.
    assert polled.recorded(OperationKind.POLL) == 0
    polled.send()
    wait_until(polls.messages, "the message")


class CountingSource:
    """A source of tokens that keeps what it gave."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self.tokens: list[Token] = []

    def token(self, audience: str, now: float) -> Token:
        self.tokens.append(self._source.token(audience, now))
        return self.tokens[-1]


@pytest.mark.rule("Y6")
@pytest.mark.parametrize("kind", ["SAS", "Entra"])
def test_tokens_are_renewed_during_a_long_poll(kind: str, tmp_path: Path) -> None:
    # The clock of the namespace is ahead by the time for which it still accepts expired tokens.
    def ahead_ms() -> int:
        return int((time.time() + GRACE_S) * 1000)

    issuer = TokenIssuer(tmp_path / "key", now_ms=machine_ms)
    with LocalNamespace("secondary", now_ms=ahead_ms, token_issuer=issuer) as namespace:
        polled = PolledNamespace(namespace, tmp_path)
        polled.create(1)
        source: TokenSource
        if kind == "SAS":
            key = polled.options.tokens
            assert isinstance(key, SharedAccessKey)
            source = replace(key, lifetime_s=3)
        else:
            source = HeldCredential(issuer.credential(lifetime_s=3))
        tokens = CountingSource(source)
        polled.options = replace(polled.options, tokens=tokens)
        polls = polled.start(ledger=False)
        wait_until(lambda: polled.granted() == 1, "the poll")

        first = tokens.tokens[0]
        wait_until(lambda: time.time() > first.expires_at + 0.5, "the first token to expire")

        assert len(tokens.tokens) >= 2
        assert polled.metered() == 0
        assert polls.error is None
        assert polled.granted() == 1
        polls.stop()


@pytest.mark.rule("Y8", "Y13")
@pytest.mark.parametrize("lock_s", [10, 60])
def test_message_stays_locked_until_its_micro_batch_has_ended(
    polled: PolledNamespace, lock_s: int
) -> None:
    polled.create(1, lock_duration=timedelta(seconds=lock_s))
    polls = polled.start()
    polled.send()
    wait_until(polls.messages, "the message")

    def advance_by_a_lock() -> None:
        for _ in range(3):
            renewals = polled.metered("renew")
            polled.advance(timedelta(seconds=lock_s / 3))
            wait_until(lambda n=renewals: polled.metered("renew") == n + 1, "a renewal")

    advance_by_a_lock()
    taken = polls.take()["q0"]
    assert taken.lock_ms == pytest.approx(lock_s * 1000, abs=2000)
    # The lock was renewed at most a third of its duration ago, and not in the future.
    assert 0 < taken.locked_until - polled.clocks.now_ms() <= lock_s * 1000
    advance_by_a_lock()  # executors come late
    advance_by_a_lock()
    assert polls.messages() == []
    assert is_locked(polled)

    polls.resume()
    polled.advance(timedelta(seconds=lock_s + 1))
    wait_until(polls.messages, "the message again, because no task has settled it")
    assert polled.metered("renew") == 9
    wait_until(
        lambda: polled.recorded(OperationKind.RENEW) == polled.metered("renew"), "the ledger"
    )


@pytest.mark.rule("Y8")
def test_lock_of_a_message_that_a_task_has_completed_is_not_renewed_any_more(
    polled: PolledNamespace,
) -> None:
    polled.create(1, lock_duration=MINUTE)
    polls = polled.start()
    polled.send()
    wait_until(polls.messages, "the message")
    token = polls.take()["q0"].lock_token
    assert token is not None
    with Client(polled.options) as client, Management(client, "q0") as management:
        management.settle([token])

    for _ in range(4):
        polled.advance(timedelta(seconds=21))
    polls.resume()

    wait_until(lambda: polled.granted() == 1, "the next poll")
    assert polls.error is None
    assert polled.metered("renew") == 0


def is_locked(polled: PolledNamespace) -> bool:
    """Return True if a receiver gets no message."""
    with Client(polled.options) as client, Receiver(client, "q0") as receiver:
        return not [d for part in receiver.receive_available(1) for d in part]
