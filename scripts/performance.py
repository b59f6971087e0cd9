"""Generate docs/reference/performance.md from benchmarks/results.json.

    python -m scripts.performance            write the page
    python -m scripts.performance --check    write nothing; fail if the page is out of date

`make bench` runs this after the benchmarks, `make performance` runs it alone.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.harness import OURS, Figure, Unit, remarks
from benchmarks.results import SubjectResult, read

ROOT = Path(__file__).resolve().parent.parent
PAGE, RESULTS = Path("docs/reference/performance.md"), Path("benchmarks/results.json")
ROUNDS = 7
"""The default number of rounds of `make bench`."""

TITLES = {
    "engine": "The AMQP engine",
    "emulator": "The local emulator",
    "pairing": "Paired senders",
    "ledger": "The ledger of a paired sender",
    "telemetry": "Telemetry of a paired sender",
    "start": "The start of an embedded syphon",
    "syphon": "The syphon",
    "throttling": "A drain beside live traffic",
    "cost": "The cost report",
    "console": "The console",
}

HEAD = """# Performance

This page is generated from `benchmarks/results.json` by `make performance`. Do not edit it.
`make bench` repeats all measurements, on any machine, and writes both files.

## How to read the figures

- **Ratios, not absolute figures.** Everything that is compared runs alternately, in one run, on one
  machine. A ratio above 1 means that pairbus is better, whether more or less of the unit is better.
  Ratios can be compared between machines; messages per second cannot.
- **The best round counts.** Noise can only add time. Where a ratio has a range in brackets, the
  medians of all rounds count, and the range is that of the middle half of the rounds. Of drains
  the median counts, too. For paired senders, the range contains the ratio with a probability of
  90 % (bootstrap of pairs of short blocks). Figures still differ between runs on a small or shared
  machine. The load of the machine at the start of each benchmark is in the last section.
- **Targets** were set beforehand. A target is a ratio to the first peer in the table, or a value in
  the given unit. The tables show which targets are not met. If the ratio is below the target and
  the range of 90 % contains the target, it is not decided whether the target is met.
- **Each benchmark has its own date, commit and machine.** They are in the last section.
- **All namespaces are local.** The figures contain neither Azure nor a network.
"""


class StalePage(Exception):
    """Raised when the page does not match the results."""


def page(results: Mapping[str, SubjectResult]) -> str:
    """Return the whole page."""
    subjects = sorted({*TITLES, *results}, key=order)
    sections = [section(subject, results.get(subject)) for subject in subjects]
    parts = [HEAD, targets(results), *sections, origins(results)]
    return "\n".join(part for part in parts if part)


def targets(results: Mapping[str, SubjectResult]) -> str:
    """Return the table of all targets."""
    rows = [
        [
            f"[{subject}](#{anchor(title_of(subject))})",
            f"{figure.name}, {figure.unit.name}",
            "" if figure.aim_is_value else figure.aim_contender or "",
            figure.aim_text,
            figure.measured,
            verdict(figure),
        ]
        for subject in sorted(results, key=order)
        for figure in results[subject].figures
        if figure.met is not None
    ]
    if not rows:
        return ""
    met = sum(row[-1] == "met" for row in rows)
    head = ["benchmark", "figure", "compared with", "target", "measured", ""]
    table = markdown(head, rows, text_columns={0, 1, 2, 5})
    return f"## Targets\n\n{met} of {len(rows)} are met.\n\n{table}\n"


def section(subject: str, result: SubjectResult | None) -> str:
    """Return one benchmark: its description, the command that repeats it, and the figures."""
    lines = [f"## {title_of(subject)}", ""]
    if result is None:
        return "\n".join([*lines, f"Not measured yet. Run: `{command(subject, None)}`.", ""])
    lines += [paragraph for text in result.about.split("\n\n") for paragraph in (unwrap(text), "")]
    lines += [f"Reproduce: `{command(subject, result)}` (took {duration(result.seconds)}).", ""]
    for unit in dict.fromkeys(figure.unit for figure in result.figures):
        figures = [figure for figure in result.figures if figure.unit == unit]
        lines += [figure_table(unit, figures), ""]
        lines += [f"- {text.partition(', ')[2]}" for text in remarks({subject: figures})]
        if lines[-1]:
            lines.append("")
    return "\n".join(lines)


def figure_table(unit: Unit, figures: list[Figure]) -> str:
    """Return the figures of one unit: values of all contenders, ratios and targets."""
    names = [name for figure in figures for name in [*figure.values, *figure.notes]]
    contenders = list(dict.fromkeys([OURS, *names]))
    others = [name for name in contenders if any(name in figure.ratios for figure in figures)]
    aimed = any(figure.aim is not None for figure in figures)
    head = [unit.name, *contenders, *(f"ratio to {name}" for name in others)]
    rows = []
    for figure in figures:
        row = [figure.name]
        for name in contenders:
            value = figure.values.get(name)
            row.append(figure.notes.get(name, "") if value is None else unit.format(value))
        row += [figure.format_ratio(name) if name in figure.ratios else "" for name in others]
        if aimed:
            row.append("" if figure.aim is None else f"{figure.aim_text}: {verdict(figure)}")
        rows.append(row)
    return markdown([*head, "target"] if aimed else head, rows, text_columns={0})


def verdict(figure: Figure) -> str:
    return "**not met**" if figure.verdict == "not met" else figure.verdict


def origins(results: Mapping[str, SubjectResult]) -> str:
    """Return the dates, commits, machines and versions of the measurements."""
    if not results:
        return ""
    names = sorted(results, key=order)
    head = ["benchmark", "start (UTC)", "duration", "commit", "load at the start"]
    rows = [
        [
            name,
            f"{datetime.fromisoformat(results[name].when):%Y-%m-%d %H:%M}",
            duration(results[name].seconds),
            f"`{results[name].surroundings['commit']}`",
            load(results[name]),
        ]
        for name in names
    ]
    lines = ["## Machine and versions", "", markdown(head, rows, text_columns={0, 1, 3, 4}), ""]
    for machine, benchmarks in grouped(results, names).items():
        lines += [f"{', '.join(benchmarks)}:", "", machine, ""]
    return "\n".join(lines).rstrip() + "\n"


def grouped(results: Mapping[str, SubjectResult], names: Iterable[str]) -> dict[str, list[str]]:
    """Return descriptions of machines and versions, with the benchmarks that ran on them."""
    groups: dict[str, list[str]] = {}
    for name in names:
        machine = results[name].surroundings
        rows = [
            [
                "processor",
                f"{machine['processor']}, {machine['cores']} cores, {machine['machine']}",
            ],
            ["system", machine["system"]],
            *([package, version] for package, version in machine["versions"].items()),
        ]
        groups.setdefault(markdown(["", ""], rows, text_columns={0, 1}), []).append(name)
    return groups


def load(result: SubjectResult) -> str:
    if result.after is not None:
        return f"{result.load:.2f}, directly after {result.after}"
    return f"{result.load:.2f}, {'loaded' if result.loaded else 'quiet'}"


def command(subject: str, result: SubjectResult | None) -> str:
    """Return the command that repeats a benchmark."""
    rounds = ROUNDS if result is None else result.rounds
    arguments = subject if rounds == ROUNDS else f'"{subject} --rounds {rounds}"'
    settings = {} if result is None else result.settings
    return " ".join([*(f"{k}={v!r}" for k, v in settings.items()), f"make bench ARGS={arguments}"])


def title_of(subject: str) -> str:
    return TITLES.get(subject, subject)


def order(subject: str) -> tuple[int, str]:
    known = list(TITLES)
    return (known.index(subject) if subject in known else len(known)), subject


def anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def unwrap(text: str) -> str:
    return " ".join(text.split())


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{timedelta(seconds=round(seconds)) // timedelta(minutes=1)} min"


def markdown(head: list[str], rows: list[list[str]], *, text_columns: set[int]) -> str:
    """Return a table. Columns of text are aligned to the left, columns of numbers to the right."""
    rules = ["---" if column in text_columns else "---:" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rules, *rows])


def run(root: Path, *, check: bool) -> str:
    """Return the text to print. Raises StalePage if a check fails."""
    results = read(root / RESULTS)
    text, path = page(results), root / PAGE
    if check:
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            raise StalePage(f"{PAGE} does not match {RESULTS}. Run 'make performance'.")
        return f"{PAGE} matches {RESULTS}."
    path.write_text(text, encoding="utf-8")
    return f"Wrote {PAGE} from {len(results)} benchmarks in {RESULTS}."


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the page is out of date"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="root folder of the project")
    options = parser.parse_args()
    try:
        print(run(options.root, check=options.check))
    except StalePage as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
