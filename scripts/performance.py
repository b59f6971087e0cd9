"""Make docs/performance.md from benchmarks/results.json.

    python -m scripts.performance            write the page
    python -m scripts.performance --check    change nothing; fail if the page is stale

`make bench` runs it after the benchmarks, `make performance` by itself.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.harness import OURS, Figure, Unit, remarks, shown_ratio
from benchmarks.results import Taken, read

ROOT = Path(__file__).resolve().parent.parent
PAGE, RESULTS = Path("docs/performance.md"), Path("benchmarks/results.json")
ROUNDS = 7
"""What `make bench` does unless it is told otherwise."""

TITLES = {
    "engine": "The AMQP engine",
    "emulator": "The local emulator",
    "pairing": "Paired senders",
    "ledger": "The ledger of a paired sender",
    "syphon": "The syphon",
    "cost": "The cost report",
}

HEAD = """# Performance

This page is made from `benchmarks/results.json` by `make performance`; what is written here by hand
is lost. `make bench` measures all of it again, on any machine, and writes both.

## How to read it

- **Ratios, not absolute figures.** All that is compared runs in turns, in one run, on one machine.
  A ratio says how many times as good as the other ours is, whether more is better or less: above 1,
  ours is better. It can be compared between machines; messages a second cannot.
- **The best round counts.** Noise only ever adds time. Even so, figures differ from one run to
  the next on a small or shared machine, and more so where something else runs. How loaded it was
  when a subject began is said at the end.
- **Aims** were set beforehand: ratios to the first of the others in the table, or values in the
  unit that is named. One that is not met is said to be not met.
- **Subjects are measured apart**, each with its own date, commit and machine: see the end.
- The namespaces are local ones. What Azure takes, and what lies between it and you, is in none of
  these figures.
"""


class StalePage(Exception):
    """The page is not what the results give."""


def page(results: Mapping[str, Taken]) -> str:
    """The whole page."""
    subjects = sorted({*TITLES, *results}, key=order)
    sections = [section(subject, results.get(subject)) for subject in subjects]
    parts = [HEAD, aims(results), *sections, origins(results)]
    return "\n".join(part for part in parts if part)


def aims(results: Mapping[str, Taken]) -> str:
    """Every aim, and whether it is met."""
    rows = [
        [
            f"[{subject}](#{anchor(title_of(subject))})",
            f"{figure.name}, {figure.unit.name}",
            "" if figure.aim_is_value else figure.aimed_at or "",
            figure.shown_aim,
            figure.reached,
            verdict(figure),
        ]
        for subject in sorted(results, key=order)
        for figure in results[subject].figures
        if figure.met is not None
    ]
    if not rows:
        return ""
    met = sum(row[-1] == "met" for row in rows)
    head = ["subject", "figure", "beside", "aim", "reached", ""]
    return (
        f"## Aims\n\n{met} of {len(rows)} are met.\n\n{markdown(head, rows, words={0, 1, 2, 5})}\n"
    )


def section(subject: str, taken: Taken | None) -> str:
    """One subject: what is measured, how to have it again, and the figures."""
    lines = [f"## {title_of(subject)}", ""]
    if taken is None:
        return "\n".join([*lines, f"Not measured yet: `{command(subject, None)}`.", ""])
    lines += [paragraph for text in taken.about.split("\n\n") for paragraph in (flow(text), "")]
    lines += [f"Again: `{command(subject, taken)}`, which took {span(taken.seconds)}.", ""]
    for unit in dict.fromkeys(figure.unit for figure in taken.figures):
        some = [figure for figure in taken.figures if figure.unit == unit]
        lines += [figure_table(unit, some), ""]
        lines += [f"- {text.partition(', ')[2]}" for text in remarks({subject: some})]
        if lines[-1]:
            lines.append("")
    return "\n".join(lines)


def figure_table(unit: Unit, figures: list[Figure]) -> str:
    """The figures of one unit: values of all contenders, ratios, aims."""
    named = [name for figure in figures for name in [*figure.values, *figure.notes]]
    contenders = list(dict.fromkeys([OURS, *named]))
    others = [name for name in contenders if any(name in figure.ratios for figure in figures)]
    aimed = any(figure.aim is not None for figure in figures)
    head = [unit.name, *contenders, *(f"ratio to {name}" for name in others)]
    rows = []
    for figure in figures:
        row = [figure.name]
        for name in contenders:
            value = figure.values.get(name)
            row.append(figure.notes.get(name, "") if value is None else unit.shown(value))
        row += [
            shown_ratio(figure.ratios[name]) if name in figure.ratios else "" for name in others
        ]
        if aimed:
            row.append("" if figure.aim is None else f"{figure.shown_aim}: {verdict(figure)}")
        rows.append(row)
    return markdown([*head, "aim"] if aimed else head, rows, words={0})


def verdict(figure: Figure) -> str:
    if figure.met is None:
        return "nothing to compare with"
    return "met" if figure.met else "**not met**"


def origins(results: Mapping[str, Taken]) -> str:
    """When, where and with what the figures were taken."""
    if not results:
        return ""
    names = sorted(results, key=order)
    head = ["subject", "began (UTC)", "took", "commit", "load when it began"]
    rows = [
        [
            name,
            f"{datetime.fromisoformat(results[name].when):%Y-%m-%d %H:%M}",
            span(results[name].seconds),
            f"`{results[name].surroundings['commit']}`",
            load(results[name]),
        ]
        for name in names
    ]
    lines = ["## Machine and versions", "", markdown(head, rows, words={0, 1, 3, 4}), ""]
    for described, those in grouped(results, names).items():
        lines += [f"{', '.join(those)}:", "", described, ""]
    return "\n".join(lines).rstrip() + "\n"


def grouped(results: Mapping[str, Taken], names: Iterable[str]) -> dict[str, list[str]]:
    """Machines and versions, with the subjects that were measured there."""
    found: dict[str, list[str]] = {}
    for name in names:
        where = results[name].surroundings
        rows = [
            ["processor", f"{where['processor']}, {where['cores']} cores, {where['machine']}"],
            ["system", where["system"]],
            *([package, version] for package, version in where["versions"].items()),
        ]
        found.setdefault(markdown(["", ""], rows, words={0, 1}), []).append(name)
    return found


def load(taken: Taken) -> str:
    if taken.after is not None:
        return f"{taken.load:.2f}, just after {taken.after}"
    return f"{taken.load:.2f}, {'loaded' if taken.loaded else 'quiet'}"


def command(subject: str, taken: Taken | None) -> str:
    """What to type to have these figures again."""
    rounds = ROUNDS if taken is None else taken.rounds
    arguments = subject if rounds == ROUNDS else f'"{subject} --rounds {rounds}"'
    settings = {} if taken is None else taken.settings
    return " ".join([*(f"{k}={v!r}" for k, v in settings.items()), f"make bench ARGS={arguments}"])


def title_of(subject: str) -> str:
    return TITLES.get(subject, subject)


def order(subject: str) -> tuple[int, str]:
    known = list(TITLES)
    return (known.index(subject) if subject in known else len(known)), subject


def anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def flow(text: str) -> str:
    return " ".join(text.split())


def span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{timedelta(seconds=round(seconds)) // timedelta(minutes=1)} min"


def markdown(head: list[str], rows: list[list[str]], *, words: set[int]) -> str:
    """A table; columns of words to the left, of figures to the right."""
    rules = ["---" if column in words else "---:" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rules, *rows])


def run(root: Path, *, check: bool) -> str:
    """Return what to print. Raise StalePage where a check finds one."""
    results = read(root / RESULTS)
    wanted, there = page(results), root / PAGE
    if check:
        if not there.exists() or there.read_text(encoding="utf-8") != wanted:
            raise StalePage(f"{PAGE} is not what {RESULTS} gives: run 'make performance'.")
        return f"{PAGE} is what {RESULTS} gives."
    there.write_text(wanted, encoding="utf-8")
    return f"written to {PAGE}, from {len(results)} subjects of {RESULTS}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail if stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project to look at")
    options = parser.parse_args()
    try:
        print(run(options.root, check=options.check))
    except StalePage as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
