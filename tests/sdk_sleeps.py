"""Shorter sleeps of the SDK, which would otherwise be most of the duration of many tests."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import _servicebus_receiver, _servicebus_sender
from azure.servicebus._pyamqp import client
from azure.servicebus._pyamqp.aio import _client_async
from azure.servicebus.aio import _servicebus_receiver_async, _servicebus_sender_async

SLEEPS = {0.05: 0.002, 1: 0.05}
"""Shorter sleeps. The SDK polls each new link nine times, every 50 ms. The thread that keeps a
connection alive wakes once a second, and a close waits for it."""


class ShortSleeps:
    """`time` or `asyncio` for the SDK."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def sleep(self, seconds: float) -> Any:
        return self._module.sleep(SLEEPS.get(seconds, seconds))


@pytest.fixture(scope="module", autouse=True)
def short_sleeps() -> Iterator[None]:
    """Let the SDK open links quickly."""
    with pytest.MonkeyPatch.context() as patches:
        for module in (_servicebus_sender, _servicebus_receiver, client):
            patches.setattr(module, "time", ShortSleeps(time))
        for module in (_servicebus_sender_async, _servicebus_receiver_async, _client_async):
            patches.setattr(module, "asyncio", ShortSleeps(asyncio))
        yield
