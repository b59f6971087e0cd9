// Charts of the last hours: backlog, drain rate and throttled operations.

import { button, byId, element, setAttribute, setText } from "./dom.js";
import { count, duration, rate } from "./format.js";

const RANGES = [["1 h", 3_600], ["6 h", 21_600], ["24 h", 86_400]];
const CHARTS = [
  { key: "backlog", title: "Waiting messages", format: count },
  { key: "rate", title: "Drained messages per second", format: rate },
  { key: "throttled", title: "Throttled operations per minute", format: rate },
];
const WHOLE_STEPS = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();
const REFRESH_MS = 15_000;
const HEIGHT = 120;
const SYNC = "pairbus-history";

export class History {
  constructor({ api }) {
    this.api = api;
    this.seconds = RANGES[0][1];
    this.timer = null;
    this.error = element("p", { class: "muted", hidden: true });
    this.charts = CHARTS.map((options) => new Chart(options));
    this.ranges = RANGES.map(([text, seconds]) =>
      button(text, () => this.#setRange(seconds), { class: "small", "aria-pressed": String(seconds === this.seconds), "aria-label": `Last ${text}` }),
    );
    const group = element("div", { class: "ranges", role: "group", "aria-label": "Time range" }, ...this.ranges);
    byId("history").append(group, this.error, ...this.charts.map((chart) => chart.node));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.charts.forEach((chart) => chart.rebuild()));
    document.addEventListener("visibilitychange", () => this.timer !== null && !document.hidden && this.#load());
  }

  start() {
    this.stop();
    this.timer = setInterval(() => !document.hidden && this.#load(), REFRESH_MS);
    this.#load();
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
  }

  #setRange(seconds) {
    this.seconds = seconds;
    RANGES.forEach(([, value], index) => setAttribute(this.ranges[index], "aria-pressed", String(value === seconds)));
    this.#load();
  }

  async #load() {
    const seconds = this.seconds;
    try {
      const history = await this.api.get("/api/history", { since: seconds });
      if (seconds !== this.seconds) return;
      this.error.hidden = true;
      for (const chart of this.charts) chart.update(history.times ?? [], history[chart.key] ?? [], seconds);
    } catch (error) {
      this.error.hidden = false;
      setText(this.error, `The history cannot be loaded. ${error.message}`);
    }
  }
}

class Chart {
  constructor({ key, title, format }) {
    this.key = key;
    this.title = title;
    this.format = format;
    this.data = [[], []];
    this.seconds = 0;
    this.plot = null;
    this.value = element("span", { class: "value" });
    this.box = element("div", { class: "chart", role: "img" });
    this.node = element("figure", {}, element("figcaption", {}, `${title}: `, this.value), this.box);
    new ResizeObserver(() => this.#resize()).observe(this.box);
  }

  update(times, values, seconds) {
    this.data = [times, values];
    this.seconds = seconds;
    if (this.plot === null) this.rebuild();
    else this.plot.setData(this.data);
    setAttribute(this.box, "aria-label", this.#description());
    this.#showValue(null);
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = new window.uPlot(this.#options(), this.data, this.box);
  }

  #resize() {
    const width = this.box.clientWidth;
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  #options() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    return {
      width: Math.max(120, this.box.clientWidth),
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: SYNC } },
      scales: { x: { range: () => this.#timeRange() }, y: { range: (_, low, high) => [0, Math.max(1, high ?? 0) * 1.08] } },
      axes: [
        { ...axis, size: 24, space: 64, values: (_, ticks) => ticks.map(timeOfDay) },
        { ...axis, size: 58, space: 26, incrs: WHOLE_STEPS, values: (_, ticks) => ticks.map((tick) => this.format(tick)) },
      ],
      series: [{}, { stroke: color("--accent"), width: 1.5, fill: color("--accent-faint"), spanGaps: false, points: { show: (plot) => plot.data[0].length < 3 } }],
      hooks: { setCursor: [(plot) => this.#showValue(plot.cursor.idx ?? null)] },
    };
  }

  #timeRange() {
    const end = this.data[0].at(-1) ?? Date.now() / 1000;
    return [end - this.seconds, end];
  }

  #showValue(index) {
    const [times, values] = this.data;
    if (index === null) setText(this.value, values.length ? this.format(values.at(-1) ?? NaN) : "no data yet");
    else setText(this.value, `${this.format(values[index] ?? NaN)} at ${timeOfDay(times[index])}`);
  }

  #description() {
    const values = this.data[1].filter((value) => value !== null);
    if (values.length === 0) return `${this.title}: no data yet.`;
    const highest = values.reduce((a, b) => Math.max(a, b));
    return `${this.title} of the last ${duration(this.seconds)}: now ${this.format(values.at(-1))}, at most ${this.format(highest)}.`;
  }
}

function timeOfDay(seconds) {
  const time = new Date(seconds * 1000);
  return `${String(time.getHours()).padStart(2, "0")}:${String(time.getMinutes()).padStart(2, "0")}`;
}
