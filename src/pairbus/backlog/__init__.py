"""The backlog and dead letters, without Spark: inspection of a pairing and its backlog queues, and
list, redrive and purge of the dead letters of backlog queues, other queues and subscriptions.

    source = DeadLetterSource(namespace=options, entities=("orders",))
    plan = plan_redrive(source, choice=DeadLetterFilter(reasons=("EntityNotFound",)))
    outcome = redrive(source, plan, on_progress=print)

Inspection receives and moves nothing. Backlog queues are created in `pairing/backlog_queues.py`.
"""

from pairbus.backlog.dead_letter_filter import DeadLetterFilter
from pairbus.backlog.dead_letter_groups import DeadLetterGroup, DeadLetterGroups
from pairbus.backlog.dead_letter_peek import group_dead_letters, peek_dead_letters, plan_redrive
from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.redrive import purge, redrive
from pairbus.backlog.redrive_outcome import RedriveOutcome
from pairbus.backlog.redrive_plan import RedrivePlan

__all__ = [
    "DeadLetterFilter",
    "DeadLetterGroup",
    "DeadLetterGroups",
    "DeadLetterSource",
    "RedriveOutcome",
    "RedrivePlan",
    "group_dead_letters",
    "peek_dead_letters",
    "plan_redrive",
    "purge",
    "redrive",
]
