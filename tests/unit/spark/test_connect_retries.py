"""Retries of a client of Spark Connect whose server is gone."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from pyspark.sql.connect.client.retries import Retrying

from pairbus.spark.connect_retries import FORGOTTEN_S, OUTAGE_S, ServerOutage, limit_retries


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Unavailable(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def trailing_metadata(self) -> None:
        return None


class Client:
    """Has the method of PySpark's client that is used."""

    def set_retry_policies(self, policies: list[Any]) -> None:
        self.policies = policies


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def call(clock: Clock) -> Callable[[], None]:
    """A request to a server that is gone, as PySpark sends it."""
    client = Client()
    limit_retries(client, clock)

    def send() -> None:
        for attempt in Retrying(client.policies, sleep=clock.sleep, now=clock):
            with attempt:
                raise Unavailable

    return send


def test_request_to_a_lost_server_fails_after_the_limit(
    call: Callable[[], None], clock: Clock
) -> None:
    with pytest.raises(Unavailable):
        call()
    assert OUTAGE_S <= clock.now - 1000 < OUTAGE_S + FORGOTTEN_S


def test_later_requests_fail_at_once(call: Callable[[], None], clock: Clock) -> None:
    with pytest.raises(Unavailable):
        call()
    before = clock.now
    for _ in range(3):
        with pytest.raises(Unavailable):
            call()
        assert clock.now == before
        before += 1
        clock.now = before


def test_outage_begins_anew_when_the_server_has_answered(clock: Clock) -> None:
    outage = ServerOutage(clock)
    assert outage.allows_retry()
    for _ in range(100):
        clock.sleep(FORGOTTEN_S + 1)
        assert outage.allows_retry()
