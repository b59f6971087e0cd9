"""Write the table of metrics in docs/reference/telemetry.md from `pairbus.telemetry.metrics`.

telemetry_docs.py            write the page
telemetry_docs.py --check    write nothing; fail if the page is out of date
"""

import argparse
import re
import sys
from pathlib import Path

from pairbus.telemetry.metrics import METRICS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "telemetry.md"
OUT_OF_DATE = (
    "The metrics in docs/reference/telemetry.md are not those of the code. Run 'make docs'."
)
TABLE = re.compile(r"(?<=\n)\| metric \|.*?\n(?=\n)", re.DOTALL)


def table() -> str:
    """Return the table of all metrics."""
    rows = [
        ("metric", "kind", "unit", "recorded by", "meaning", "attributes"),
        ("---",) * 6,
        *(
            (
                f"`{metric.name}`",
                metric.kind.value,
                f"`{metric.unit}`" if metric.unit else "",
                metric.recorded_by,
                metric.description,
                ", ".join(f"`{name}`" for name in metric.attributes),
            )
            for metric in METRICS.values()
        ),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def updated(text: str) -> str:
    """Return the page with the current table."""
    return TABLE.sub(lambda _: table(), text, count=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    text = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().check:
        if updated(text) != text:
            print(OUT_OF_DATE, file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(updated(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
