"""Requests that are repeated while the namespace throttles."""

import pytest

from pairbus.errors import Busy, LinkLost
from pairbus.spark.throttled_requests import DEFAULT_WAIT_S, retry_throttled


class Namespace:
    """Throttles some requests, and has a clock that only `sleep` moves."""

    def __init__(self, throttled: int, text: str = "Please wait 4 seconds and try again.") -> None:
        self.requests = 0
        self.waits: list[float] = []
        self._throttled = throttled
        self._text = text

    def request(self) -> str:
        self.requests += 1
        if self.requests <= self._throttled:
            raise Busy(self._text)
        return "answer"

    def now(self) -> float:
        return sum(self.waits)

    def run(self, patience_s: float = 60.0) -> str:
        return retry_throttled(
            self.request, patience_s=patience_s, sleep=self.waits.append, now=self.now
        )


def test_throttled_request_is_repeated_after_the_time_that_the_namespace_asks_for():
    namespace = Namespace(throttled=3)

    assert namespace.run() == "answer"
    assert namespace.waits == [4.0, 4.0, 4.0]


def test_throttled_request_waits_if_the_namespace_does_not_ask_for_a_time():
    namespace = Namespace(throttled=1, text="busy")

    assert namespace.run() == "answer"
    assert namespace.waits == [DEFAULT_WAIT_S]


@pytest.mark.parametrize(("patience_s", "requests"), [(0.0, 1), (3.9, 1), (8.0, 3), (11.9, 3)])
def test_namespace_that_goes_on_to_throttle_is_given_up(patience_s: float, requests: int):
    namespace = Namespace(throttled=1000)

    with pytest.raises(Busy):
        namespace.run(patience_s)
    assert namespace.requests == requests


def test_other_errors_are_raised_at_once():
    requests = []

    def request() -> None:
        requests.append(1)
        raise LinkLost("gone")

    with pytest.raises(LinkLost):
        retry_throttled(request)
    assert requests == [1]
