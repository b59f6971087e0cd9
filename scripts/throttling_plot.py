"""Draw docs/images/throttling.svg from benchmarks/throttling.json: a drain beside live traffic.

python -m scripts.throttling_plot

`make bench ARGS=throttling` writes the data.
"""

import json
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
DATA, PLOT = ROOT / "benchmarks/throttling.json", ROOT / "docs/images/throttling.svg"
BEFORE_S, AFTER_S = 10, 5
LIVE, DRAIN, THROTTLED = "#5b8fd6", "#4fa58a", "#d1675a"


def rates(samples: list[list[float]]) -> dict[int, float]:
    """Return the messages of each second, from totals at some moments."""
    result: dict[int, float] = {}
    for (start, before, _), (end, after, _) in pairwise(samples):
        for second in range(int(start), int(end) + 1):
            share = max(0.0, min(end, second + 1) - max(start, second)) / (end - start)
            result[second] = result.get(second, 0.0) + share * (after - before)
    return result


def mean_of_neighbours(values: list[float]) -> list[float]:
    """Return the means of three seconds: tasks report twice a second, and not at its end."""
    padded = [values[0], *values, values[-1]]
    return [sum(padded[index : index + 3]) / 3 for index in range(len(values))]


def main() -> None:
    data = json.loads(DATA.read_text())
    drain = rates(data["drain"])
    moving = [second for second, rate in drain.items() if rate > 0]
    first, last = min(moving) - BEFORE_S, max(moving) + AFTER_S
    with mpl.rc_context({"svg.hashsalt": "pairbus", "svg.fonttype": "none", "font.size": 9.5}):
        figure = Figure(figsize=(9.6, 6.4), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        seconds = list(range(first, last + 1))
        names = list(data["live"])
        calls = {
            name: {int(second): (count, busy) for second, count, busy in data["live"][name]}
            for name in names
        }
        live = [
            sum(
                calls[name].get(second, (0, 0))[0] - calls[name].get(second, (0, 0))[1]
                for name in names
            )
            / len(names)
            for second in seconds
        ]
        busy = [sum(calls[name].get(second, (0, 0))[1] for name in names) for second in seconds]
        moved = mean_of_neighbours([drain.get(second, 0.0) for second in seconds])
        time = [second - first - BEFORE_S for second in seconds]
        upper.stackplot(
            time,
            live,
            moved,
            labels=["live calls (mean of both namespaces)", "drain (mean of 3 s)"],
            colors=[LIVE, DRAIN],
            step="post",
            alpha=0.85,
        )
        upper.axhline(data["credits"], color="#555555", linewidth=1, linestyle="--")
        upper.annotate(
            "limit of a Standard namespace",
            (time[-1], data["credits"]),
            ha="right",
            va="bottom",
            xytext=(0, 2),
            textcoords="offset points",
        )
        upper.bar(
            [second + 0.5 for second in time],
            busy,
            width=1,
            color=THROTTLED,
            label="throttled live calls (both namespaces)",
        )
        upper.set_ylabel("credits a second")
        upper.set_ylim(0, data["credits"] * 1.4)
        upper.legend(loc="upper left", ncols=3, frameon=False)
        end = data["drain"][-1][0]
        shown = [sample for sample in data["drain"] if sample[2] is not None]
        lower.plot(
            [t - first - BEFORE_S for t, _, _ in shown],
            [to_go for _, _, to_go in shown],
            color=DRAIN,
            label="time to go as reported",
        )
        lower.plot(
            [t - first - BEFORE_S for t, _, _ in shown],
            [end - t for t, _, _ in shown],
            color="#555555",
            linestyle="--",
            linewidth=1,
            label="time that it took",
        )
        lower.set_ylabel("seconds")
        lower.set_xlabel("seconds since the first message was moved")
        lower.set_ylim(0, 1.6 * max(end - shown[0][0], 1))
        lower.legend(loc="upper right", frameon=False)
        for axes in (upper, lower):
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(PLOT, metadata={"Date": None})


if __name__ == "__main__":
    main()
