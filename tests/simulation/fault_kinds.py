"""The kinds of faults of simulations, and groups of them."""

REDRIVE_FAULTS = (
    "redrive-kill",
    "redrive-freeze",
    "redrive-cancel",
    "partition-redrive-primary",
    "partition-redrive-secondary",
)
"""Faults of operators who redrive dead letters."""
FAULT_KINDS = (
    "primary-crash",
    "primary-silent-crash",
    "primary-freeze",
    "primary-disk",
    "primary-lose-answers",
    "primary-answers-late",
    "primary-stop-reading",
    "primary-detach",
    "primary-detach-freeze",
    "primary-throttle",
    "primary-internal-error",
    "primary-disable",
    "primary-full",
    "primary-missing",
    "primary-refuse-tokens",
    "primary-ignore-tokens",
    "primary-expire-tokens",
    "primary-silence",
    "secondary-crash",
    "secondary-silent-crash",
    "secondary-freeze",
    "secondary-disk",
    "secondary-lose-answers",
    "secondary-answers-late",
    "secondary-stop-reading",
    "secondary-detach",
    "secondary-throttle",
    "secondary-internal-error",
    "secondary-disable",
    "secondary-full",
    "secondary-missing",
    "secondary-refuse-tokens",
    "secondary-ignore-tokens",
    "secondary-expire-tokens",
    "uneven-outage",
    "cut",
    "silence",
    "slow-network",
    "partition-sender-primary",
    "partition-sender-secondary",
    "partition-syphon-primary",
    "partition-syphon-secondary",
    "sender-kill",
    "sender-restart",
    "sender-freeze",
    "sender-mark-healthy",
    "syphon-kill",
    "syphon-restart",
    "syphon-freeze",
    "syphon-pause",
    "syphon-pause-path",
    "syphon-limit",
    "reader-kill",
    "writer-kill",
    "writer-kill-settled",
    "writer-freeze",
    "task-late",
    "task-twice",
    "stale-peek",
    *REDRIVE_FAULTS,
)
OFTEN = (
    "primary-disk",
    "secondary-disk",
    "secondary-lose-answers",
    "slow-network",
    "sender-restart",
    "sender-freeze",
    "syphon-kill",
    "reader-kill",
    "writer-kill",
    "writer-freeze",
    "writer-freeze",
)
"""Faults that happen more often, because few of them come at a moment at which they matter."""
NAMESPACE_FAULTS = tuple(
    kind for kind in FAULT_KINDS if kind.startswith(("primary-", "secondary-"))
)
"""Faults of the primary and the secondary."""
TASK_FAULTS = (
    "partition-syphon-primary",
    "partition-syphon-secondary",
    "syphon-kill",
    "syphon-restart",
    "syphon-freeze",
    "reader-kill",
    "writer-kill",
    "writer-kill-settled",
    "writer-freeze",
    "writer-freeze",
    "task-late",
    "task-twice",
    "syphon-pause",
    "syphon-pause-path",
    "cut",
    "primary-answers-late",
    "primary-stop-reading",
    "primary-detach",
    "primary-throttle",
    "primary-internal-error",
    "primary-full",
    "primary-missing",
    "primary-refuse-tokens",
    "primary-expire-tokens",
)
"""Faults of syphons and their tasks, and of the primary to which these send; and pauses."""
BACKLOG_FAULTS = (
    "sender-mark-healthy",
    "secondary-lose-answers",
    "secondary-lose-answers",
    "secondary-answers-late",
    "secondary-stop-reading",
    "secondary-detach",
    "secondary-throttle",
    "secondary-internal-error",
    "secondary-disable",
    "secondary-full",
    "secondary-missing",
    "secondary-refuse-tokens",
    "secondary-ignore-tokens",
    "secondary-freeze",
    "secondary-disk",
    "secondary-crash",
    "partition-sender-secondary",
    "sender-restart",
    "silence",
    "cut",
)
"""Faults of the backlog, while senders need it."""
POLL_FAULTS = (
    "partition-syphon-secondary",
    "syphon-restart",
    "slow-network",
    "silence",
    "cut",
    "secondary-disable",
    "secondary-missing",
    "secondary-refuse-tokens",
    "secondary-expire-tokens",
)
"""Faults of the connection by which a syphon polls backlog queues."""
OUTAGES = ("primary-crash", "primary-silent-crash", "primary-freeze", "partition-sender-primary")
"""Faults after which senders fail over."""
SYPHON_STOPS = ("partition-syphon-primary", "partition-syphon-secondary", "syphon-freeze")
"""Faults during which a syphon forwards no message."""
UNAVAILABLE = ("crash", "silent-crash", "freeze", "disk", "disable")
"""Faults of a namespace during which it serves no client."""


def is_outage(kind: str) -> bool:
    """Return whether a namespace serves no client, or no sender, during a fault of this kind."""
    host, _, what = kind.partition("-")
    is_namespace = host in ("primary", "secondary")
    return (is_namespace and what in UNAVAILABLE) or kind.startswith("partition-sender")
