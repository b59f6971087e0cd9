"""Draw docs/images/scale.svg from benchmarks/scale.json: outages with many sender processes.

python -m scripts.scale_plot

`python -m tests.scale` writes the data.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
DATA, PLOT = ROOT / "benchmarks/scale.json", ROOT / "docs/images/scale.svg"
CREDITS = 1000
COLORS = {
    "live": "#5b8fd6",
    "drain": "#4fa58a",
    "consumers": "#b9cbe4",
    "pings": "#8a5fb0",
    "peeks": "#d1675a",
}
NAMESPACES = {
    "primary": ("live", "consumers", "drain", "pings"),
    "secondary": ("live", "drain", "peeks"),
}


def main() -> None:
    data = json.loads(DATA.read_text())
    runs = [run for run in data["runs"] if run["failback"] == "after-drain"]
    with mpl.rc_context({"svg.hashsalt": "pairbus", "svg.fonttype": "none", "font.size": 8.5}):
        figure = Figure(figsize=(11, 5.6), layout="constrained")
        grid = figure.subplots(2, len(runs), sharey=True)
        for column, run in enumerate(runs):
            for row, namespace in enumerate(NAMESPACES):
                _draw(grid[row][column], run, namespace, data["step_s"])
            grid[0][column].set_title(f"{run['processes']:,} processes")
            grid[1][column].set_xlabel("minutes after the outage")
        for row, namespace in enumerate(NAMESPACES):
            grid[row][0].set_ylabel(f"{namespace}: credits a second")
        handles = {}
        for axes in (grid[0][0], grid[1][0]):
            handles.update(dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)))
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=6, frameon=False
        )
        figure.savefig(PLOT, metadata={"Date": None})


def _draw(axes: Axes, run: dict[str, Any], namespace: str, step_s: int) -> None:
    series = run[namespace]
    purposes = NAMESPACES[namespace]
    steps = len(next(iter(series.values())))
    minutes = [step * step_s / 60 for step in range(steps)]
    values = [series.get(purpose, [0.0] * steps) for purpose in purposes]
    axes.stackplot(
        minutes,
        values,
        labels=purposes,
        colors=[COLORS[purpose] for purpose in purposes],
        step="post",
        alpha=0.9,
    )
    axes.axhline(CREDITS, color="#555555", linewidth=1, linestyle="--")
    remaining, left = [], sum(run["failed_back"]) * step_s
    for rate in run["failed_back"]:
        left -= rate * step_s
        remaining.append(left / run["in_failover"] * CREDITS)
    axes.plot(
        minutes,
        remaining,
        color="black",
        linewidth=1,
        label="paths that have not failed back (limit = all)",
    )
    axes.set_ylim(0, CREDITS * 1.1)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
