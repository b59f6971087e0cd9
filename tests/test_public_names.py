"""The public names are few, and change only on purpose."""

import pairbus

PUBLIC = [
    "BacklogUnavailable",
    "FailureKind",
    "MessageTooLargeForBacklog",
    "PairbusError",
    "PairedClient",
    "PairedSender",
    "PairingFaulted",
    "PartlyStored",
    "PathStatus",
    "SendAvailabilityOptions",
    "SendUnavailable",
    "StateChanged",
    "__version__",
    "drop_pings",
    "pair_namespace",
]


def test_public_names_are_the_pinned_ones():
    assert pairbus.__all__ == PUBLIC


def test_there_are_at_most_fifteen_public_names():
    assert len(pairbus.__all__) <= 15


def test_every_public_name_exists():
    missing = [name for name in pairbus.__all__ if not hasattr(pairbus, name)]

    assert missing == []
