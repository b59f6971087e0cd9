"""`pairbus dead-letters list`: dead letters by reason and destination."""

from pairbus.backlog.dead_letter_peek import group_dead_letters
from pairbus.cli.backlog_command import DONE, FAILED, now_ms
from pairbus.cli.console import consoles, print_json
from pairbus.cli.dead_letters_command import run_command, where
from pairbus.cli.dead_letters_options import ChosenLetters, DeadLetterQueues, LedgerOptions
from pairbus.cli.dead_letters_screen import RedriveScreen, print_groups
from pairbus.cli.network_options import NetworkOptions
from pairbus.cli.option_groups import with_option_groups
from pairbus.cli.pairing_options import AsJson, Timeout

EXAMPLE = "Example: PAIRBUS_PRIMARY=… pairbus dead-letters list --entity orders"


@with_option_groups
def list_dead_letters(
    *,
    queues: DeadLetterQueues,
    chosen: ChosenLetters,
    ledger: LedgerOptions,
    timeout: Timeout = 30,
    network: NetworkOptions,
    as_json: AsJson = False,
) -> None:
    """Count the dead letters by reason and destination, with their size and the oldest.

    Without --entity, those of the backlog queues. Nothing is received or moved. Needs the Listen
    right. Costs one operation for each dead letter.

    Exit status: 0 done; 1 failed: the namespace is not available, the entity does not exist, or a
    right is missing; 2 invalid option.
    """
    out, err = consoles()

    def run() -> int:
        choice = chosen.choice()
        source = queues.source(err, timeout, network)
        if source is None:
            return FAILED
        usage = ledger.usage(source)
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
