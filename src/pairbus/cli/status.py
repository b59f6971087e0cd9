"""`pairbus status`: one look at a pairing."""

import json
import threading
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pairbus.backlog.discovery import list_backlog_queues
from pairbus.backlog.probe import probe_namespaces
from pairbus.backlog.queues import BacklogContents, inspect_backlog
from pairbus.backlog.status import (
    FAILED,
    UNCERTAIN,
    WAITING,
    WELL,
    PairingObservation,
    SyphonSummary,
    parse_syphon_status,
)
from pairbus.backlog.target import Target
from pairbus.cli.console import consoles, print_error
from pairbus.cli.formatting import age, count, printable, utc_time
from pairbus.cli.pairing_options import (
    AsJson,
    ExpectedQueues,
    Primary,
    PrimaryName,
    Secondary,
    Timeout,
    target_of,
)
from pairbus.errors import ConfigurationError, PairbusError

WRONG = 2
EXAMPLE = "Example: PAIRBUS_PRIMARY=… PAIRBUS_SECONDARY=… pairbus status"
_COLOURS = {WELL: "green", FAILED: "red", WAITING: "yellow", UNCERTAIN: "yellow"}


def status(
    primary: Primary,
    secondary: Secondary,
    primary_name: PrimaryName = None,
    backlog_queues: ExpectedQueues = 10,
    timeout: Timeout = 5,
    status_file: Annotated[
        Path | None,
        typer.Option(help="The --status-file of a syphon, to see whether it is at work."),
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Look again after so many seconds, until Ctrl-C; where there is no terminal, each "
            "look is a line. The exit status is that of the last look.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at a pairing: do both namespaces answer, what waits in the backlog, is a syphon at work.

    All backlog queues that exist are shown, also those beyond --backlog-queues. A look costs an
    operation for each backlog queue, one more where messages wait, and one for every 100 queues of
    the secondary. Listing and counting need the right to manage. With the right to listen alone,
    one message of each queue is peeked, and queues beyond --backlog-queues are tried until 10
    indexes in a row have none.

    Exit status: 0 both answer, and nothing waits; 1 failed: a namespace does not answer or refuses
    the token, or the backlog is not there or cannot be seen; 2 a wrong option; 3 messages wait in
    the backlog, or are dead-lettered; 4 nothing was seen to wait, but the queues could not be
    listed, so that there may be others.
    """
    out, err = consoles()
    try:
        pair = target_of(primary, secondary, primary_name, backlog_queues, timeout)
        if watch is None:
            ended = _once(out, pair, status_file, as_json)
        else:
            ended = _again_and_again(out, pair, status_file, watch, as_json)
    except PairbusError as exc:
        print_error(err, exc)
        raise typer.Exit(WRONG) from exc
    raise typer.Exit(ended)


def _look(pair: Target, status_file: Path | None) -> PairingObservation:
    syphon = None if status_file is None else _read(status_file)
    assert pair.primary is not None
    # A token for a backlog queue: rights to the secondary may be for those alone.
    answers = probe_namespaces(
        {"primary": (pair.primary, ""), "secondary": (pair.secondary, pair.backlog_queues[0])}
    )
    backlog = None
    if answers["secondary"].answers:
        backlog = inspect_backlog(pair, list_backlog_queues(pair), peeked=1)
    return PairingObservation(time.time_ns() // 1_000_000, answers, backlog, syphon)


def _read(path: Path) -> SyphonSummary:
    try:
        values = json.loads(path.read_text()) if path.exists() else None
        return parse_syphon_status(values, time.time())
    except (OSError, ValueError) as exc:
        raise ConfigurationError(f"--status-file: {path}: {exc}") from exc


def _once(out: Console, pair: Target, status_file: Path | None, as_json: bool) -> int:
    found = _look(pair, status_file)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    elif out.is_terminal:
        out.print(_picture(found))
    else:
        for name, said in _lines(found):
            out.print(escape(f"{name:<11}{said.plain}"))
        out.print(escape(found.verdict.words))
    return found.verdict.status


def _again_and_again(
    out: Console, pair: Target, status_file: Path | None, seconds: float, as_json: bool
) -> int:
    """Look until Ctrl-C; the exit status of the last look."""
    ended = FAILED
    pause = threading.Event()
    live = Live(console=out, auto_refresh=False)
    pictured = out.is_terminal and not as_json
    try:
        if pictured:
            live.start()
        while True:
            found = _look(pair, status_file)
            ended = found.verdict.status  # before it is seen: Ctrl-C may come right then
            if as_json:
                typer.echo(json.dumps(found.as_json(), ensure_ascii=False))
            elif pictured:
                live.update(_picture(found), refresh=True)
            else:
                typer.echo(f"{utc_time(found.at_ms)}  {found.verdict.words}")
            pause.wait(seconds)
    except KeyboardInterrupt:
        return ended
    finally:
        live.stop()


def _picture(found: PairingObservation) -> RenderableType:
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    for name, said in _lines(found):
        lines.add_row(name, said)
    ended = found.verdict
    whole = Table.grid()
    whole.add_column(overflow="fold")
    whole.add_row(lines)
    whole.add_row(Text(ended.words, f"bold {_COLOURS[ended.status]}"))
    return whole


def _lines(found: PairingObservation) -> list[tuple[str, Text]]:
    """What there is to say, each with its name."""
    lines = []
    for which, one in found.answers.items():
        if one.answers:
            said = Text(f"{one.host} answers")
        else:
            how = "does not let us in" if one.refused else "does not answer"
            said = Text(f"{one.host} {how}: {printable(one.problem)}", "red")
        lines.append((which, said))
    backlog = found.backlog
    if backlog is None:
        lines.append(("backlog", Text("not known: it is in the secondary")))
    else:
        lines.append(("backlog", _backlog_line(backlog, found.at_ms)))
        if backlog.queue_mismatch is not None:
            lines.append(("", Text(backlog.queue_mismatch, "yellow")))
        if backlog.not_listed is not None:
            why = (
                f"not listed: {printable(backlog.not_listed)}; backlog queues with an index above "
                f"{backlog.searched_to} were not looked for"
            )
            lines.append(("", Text(why, "yellow")))
        if backlog.not_counted is not None:
            why = f"not counted, only peeked: {printable(backlog.not_counted)}"
            lines.append(("", Text(why, "yellow")))
        if backlog.problem is not None:
            lines.append(("", Text(printable(backlog.problem), "red")))
    lines.append(("syphon", _syphon_line(found.syphon)))
    return lines


def _backlog_line(backlog: BacklogContents, now_ms: int) -> Text:
    queues = "1 backlog queue" if backlog.there == 1 else f"{backlog.there} backlog queues"
    if backlog.searched_to is not None:
        queues += f" found up to index {backlog.searched_to}"
    parts = []
    if backlog.there and backlog.messages is not None:
        waiting = count(backlog.messages, more=backlog.more_messages)
        parts.append(f"{waiting} {'message waits' if waiting == '1' else 'messages wait'}")
        buried = count(backlog.dead_lettered, more=backlog.more_dead_lettered)
        parts.append(f"{buried} dead-lettered")
    if backlog.oldest_ms is not None:
        parts.append(f"the oldest is {age(backlog.oldest_ms, now_ms)} old")
    return Text(f"{queues}: {', '.join(parts)}" if parts else queues)


def _syphon_line(word: SyphonSummary | None) -> Text:
    if word is None:
        return Text("not known: give the --status-file of a syphon")
    if not word.at_work:
        return Text(f"not at work: {printable(word.problem)}", "yellow")
    if word.problem is not None:
        return Text(f"stuck: {printable(word.problem)}", "red")
    left = "" if word.left is None else f", {word.left:,} left"
    return Text(f"at work: {word.moved:,} moved{left}, {word.rate:,.0f}/s")
