"""The output of `pairbus status`."""

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pairbus.backlog.contents import BacklogContents
from pairbus.backlog.discovery import describe_listing_error
from pairbus.backlog.probe import ProbeResult
from pairbus.backlog.status import PairingCondition, PairingInspection
from pairbus.backlog.syphon_file import SyphonSummary
from pairbus.cli.formatting import age, count, duration, messages, printable, queues_found, utc_time
from pairbus.cli.syphon_totals import dead_letter_lines

_COLOURS = {
    PairingCondition.HEALTHY: "green",
    PairingCondition.FAILED: "red",
    PairingCondition.WAITING: "yellow",
    PairingCondition.UNCERTAIN: "yellow",
}


def print_status(out: Console, inspection: PairingInspection) -> None:
    if out.is_terminal:
        out.print(status_panel(inspection))
        return
    for name, text in _lines(inspection):
        out.print(escape(f"{name:<11}{text.plain}"))
    out.print(escape(inspection.summary.text))


def status_line(inspection: PairingInspection) -> str:
    """Return the time and the summary as one line."""
    return f"{utc_time(inspection.time_ms)}  {inspection.summary.text}"


def status_panel(inspection: PairingInspection) -> RenderableType:
    """Return the status for a terminal."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    for name, text in _lines(inspection):
        lines.add_row(name, text)
    summary = inspection.summary
    panel = Table.grid()
    panel.add_column(overflow="fold")
    panel.add_row(lines)
    panel.add_row(Text(summary.text, f"bold {_COLOURS[summary.condition]}"))
    return panel


def _lines(inspection: PairingInspection) -> list[tuple[str, Text]]:
    """Return the lines, each with a label."""
    lines = [(role, _namespace(probe)) for role, probe in inspection.namespaces.items()]
    backlog = inspection.backlog
    if backlog is None:
        lines.append(("backlog", Text("unknown, because the secondary is not available")))
    else:
        lines.append(("backlog", _backlog(backlog, inspection.time_ms)))
        lines += [("", warning) for warning in _warnings(backlog)]
    lines.append(("syphon", _syphon(inspection.syphon)))
    if inspection.syphon is not None:
        reasons = inspection.syphon.dead_letter_reasons
        lines += [("", Text(line, "yellow")) for line in dead_letter_lines(reasons)]
    return lines


def _namespace(probe: ProbeResult) -> Text:
    if probe.available:
        return Text(f"{probe.host} is available")
    problem = "rejects the token" if probe.unauthorized else "is not available"
    return Text(f"{probe.host} {problem}: {printable(probe.problem)}", "red")


def _backlog(backlog: BacklogContents, now_ms: int) -> Text:
    queues = queues_found(backlog)
    parts = []
    if backlog.found and backlog.messages is not None:
        parts.append(messages(count(backlog.messages, more=backlog.more_messages)))
        dead_lettered = count(backlog.dead_lettered, more=backlog.more_dead_lettered)
        parts.append(f"{dead_lettered} dead-lettered")
    if backlog.oldest_ms is not None:
        parts.append(f"the oldest is {age(backlog.oldest_ms, now_ms)} old")
    return Text(f"{queues}: {', '.join(parts)}" if parts else queues)


def _warnings(backlog: BacklogContents) -> list[Text]:
    warnings = []
    if backlog.queue_mismatch is not None:
        warnings.append(Text(backlog.queue_mismatch, "yellow"))
    if backlog.listing_error is not None:
        text = describe_listing_error(printable(backlog.listing_error), backlog.searched_to)
        warnings.append(Text(text, "yellow"))
    if backlog.counting_error is not None:
        text = (
            f"The messages were peeked and not counted: {printable(backlog.counting_error)}. A + "
            "means that there may be more."
        )
        warnings.append(Text(text, "yellow"))
    if backlog.problem is not None:
        warnings.append(Text(printable(backlog.problem), "red"))
    return warnings


def _syphon(syphon: SyphonSummary | None) -> Text:
    if syphon is None:
        return Text("unknown; add --status-file with the path of a syphon's status file")
    if not syphon.running:
        return Text(f"not running: {printable(syphon.problem)}", "yellow")
    if syphon.problem is not None:
        return Text(f"running with a problem: {printable(syphon.problem)}", "red")
    if syphon.paused:
        return Text("paused; resume it with pairbus syphon control resume", "yellow")
    remaining = "" if syphon.remaining is None else f", {syphon.remaining:,} remaining"
    to_go = ""
    if syphon.remaining and syphon.seconds_to_go is not None:
        to_go = f", {duration(syphon.seconds_to_go)} to go"
    return Text(f"running: {syphon.moved:,} moved{remaining}, {syphon.rate:,.0f}/s{to_go}")
