"""When settlements are sent."""

from types import SimpleNamespace
from typing import Any

import pytest

from pairbus.amqp.client import ClientOptions
from pairbus.servicebus.management import COMPLETED
from pairbus.spark import settler as settler_module
from pairbus.spark.settler import MAX_TOKENS, SEND_AFTER_S, Settler
from pairbus.spark.usage import NO_USAGE


class FakeManagement:
    """A management link that records what is settled."""

    def __init__(self) -> None:
        self.requests: list[int] = []

    def post_settle(self, tokens: list[bytes], status: str, **options: Any) -> Any:
        self.requests.append(len(tokens))
        return SimpleNamespace(raise_for_status=lambda text: None)

    def wait(self, responses: Any) -> None:
        pass


@pytest.fixture
def management(monkeypatch: pytest.MonkeyPatch) -> FakeManagement:
    management = FakeManagement()
    monkeypatch.setattr(settler_module, "management_for", lambda options, queue: management)
    return management


def messages(count: int) -> Any:
    return [
        SimpleNamespace(queue="q", lock_token=b"token", destination="orders") for _ in range(count)
    ]


@pytest.mark.rule("Y13")
def test_messages_of_a_slow_task_are_settled_before_it_ends(management: FakeManagement) -> None:
    clock = 100.0
    settler = Settler(ClientOptions(host="localhost"), NO_USAGE, now=lambda: clock)
    settler.add(messages(3), COMPLETED)
    clock += SEND_AFTER_S / 2
    settler.add(messages(2), COMPLETED)
    assert management.requests == []

    clock += SEND_AFTER_S / 2
    settler.add(messages(1), COMPLETED)
    assert management.requests == [6]

    settler.add(messages(1), COMPLETED)
    assert settler.finish() == 0
    assert management.requests == [6, 1]


def test_messages_of_a_fast_task_share_requests(management: FakeManagement) -> None:
    settler = Settler(ClientOptions(host="localhost"), NO_USAGE, now=lambda: 100.0)
    settler.add(messages(MAX_TOKENS + 10), COMPLETED)
    assert management.requests == [MAX_TOKENS]
    settler.finish()
    assert management.requests == [MAX_TOKENS, 10]
