"""`pairbus dead-letters list`: dead letters by reason and destination."""

from pairbus.backlog.dead_letter_peek import group_dead_letters
from pairbus.cli.backlog_command import DONE, FAILED, now_ms
from pairbus.cli.console import consoles, print_json
from pairbus.cli.dead_letters_command import run_command, where
from pairbus.cli.dead_letters_options import (
    DeadLetterPrimary,
    DeadLetterSecondary,
    Destinations,
    Entities,
    LedgerFolder,
    Namespace,
    NoLedger,
    Queues,
    Reasons,
    Since,
    SourceOptions,
    Until,
    choice_of,
    usage_of,
)
from pairbus.cli.dead_letters_screen import RedriveScreen, print_groups
from pairbus.cli.network_options import CaFile, NetworkOptions, ProxyUrl, Transport
from pairbus.cli.pairing_options import AsJson, ExpectedQueues, PrimaryName, Timeout

EXAMPLE = "Example: PAIRBUS_PRIMARY=… pairbus dead-letters list --entity orders"


def list_dead_letters(
    primary: DeadLetterPrimary = None,
    secondary: DeadLetterSecondary = None,
    primary_name: PrimaryName = None,
    backlog_queues: ExpectedQueues = 10,
    entity: Entities = None,
    namespace: Namespace = "primary",
    queue: Queues = None,
    reason: Reasons = None,
    destination: Destinations = None,
    since: Since = None,
    until: Until = None,
    ledger: LedgerFolder = None,
    no_ledger: NoLedger = False,
    timeout: Timeout = 30,
    transport: Transport = "tcp",
    proxy: ProxyUrl = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Count the dead letters by reason and destination, with their size and the oldest.

    Without --entity, those of the backlog queues. Nothing is received or moved. Needs the Listen
    right. Costs one operation for each dead letter.

    Exit status: 0 done; 1 failed: the namespace is not available, the entity does not exist, or a
    right is missing; 2 invalid option.
    """
    out, err = consoles()
    options = SourceOptions(
        primary=primary,
        secondary=secondary,
        primary_name=primary_name,
        backlog_queues=backlog_queues,
        entities=entity,
        namespace=namespace,
        queues=queue,
        timeout_s=timeout,
        network=NetworkOptions(transport, proxy, ca_file),
    )

    def run() -> int:
        choice = choice_of(reason, destination, since, until)
        source = options.source(err)
        if source is None:
            return FAILED
        usage = usage_of(source, ledger, no_ledger=no_ledger)
        with RedriveScreen(err, "reading dead letters", None) as screen:
            groups = group_dead_letters(
                source, choice=choice, usage=usage, on_peeked=screen.show_count
            )
        time_ms = now_ms()
        if as_json:
            print_json([group.to_json(time_ms) for group in groups.largest_first()])
        else:
            print_groups(out, groups, time_ms, where(source))
        return DONE

    run_command(err, run)
