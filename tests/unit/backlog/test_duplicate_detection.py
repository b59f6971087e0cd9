"""Dead letters that duplicate detection would drop."""

from datetime import timedelta

import pytest

from pairbus.backlog.duplicate_detection import would_be_dropped

WINDOW = timedelta(seconds=10)


@pytest.mark.rule("R3")
@pytest.mark.parametrize(
    ("enqueued_ms", "dropped"), [(0, False), (10_000, False), (10_001, True), (25_000, True)]
)
def test_message_is_dropped_while_its_id_is_known(enqueued_ms: int, dropped: bool):
    assert would_be_dropped(enqueued_ms, WINDOW, 20_000) is dropped
