// The top of the page: one sentence, the problems, and the key figures.

import { byId, element, KeyedChildren, newFigure, setAttribute, setSentence, setText } from "./dom.js";
import { age, count, duration, money, rate, timeToGo, visible } from "./format.js";
import { icon } from "./icons.js";

const LEVELS = { good: "Good.", warning: "Warning.", bad: "Problem.", unknown: "Not connected." };

export class Summary {
  constructor() {
    this.level = null;
    this.announced = null;
    this.problems = new KeyedChildren(byId("problems"), {
      key: (text) => text,
      create: () => {
        const node = element("li", { class: "name" });
        return { node, update: (text) => setSentence(node, text) };
      },
    });
    this.figures = new KeyedChildren(byId("figures"), { key: ([label]) => label, create: newFigure });
  }

  update(snapshot, now, isConnected) {
    const level = isConnected ? snapshot.level : "unknown";
    const sentence = isConnected ? snapshot.sentence : staleSentence(snapshot, now);
    this.#setLevel(level);
    setSentence(byId("summary-sentence"), sentence);
    this.problems.update(snapshot.problems ?? [], now);
    this.figures.update(figuresOf(snapshot, now), now);
    setText(byId("pair"), visible([snapshot.primary, snapshot.secondary].filter(Boolean).join(" → ")));
    this.#announce(level, sentence, snapshot.problems ?? []);
  }

  #setLevel(level) {
    if (level === this.level) return;
    this.level = level;
    byId("summary").dataset.level = level;
    byId("summary-icon").replaceChildren(icon(level));
    setText(byId("summary-level"), LEVELS[level] ?? level);
    document.title = `${LEVELS[level] ?? level} pairbus console`;
    setAttribute(byId("icon"), "href", `/static/icon-${level}.svg`);
  }

  // The sentence changes every second while messages are moved. A screen reader gets it only when the
  // level or the problems change.
  #announce(level, sentence, problems) {
    const state = JSON.stringify([level, problems]);
    if (state === this.announced) return;
    this.announced = state;
    const text = [LEVELS[level], sentence, ...problems].join(" ");
    setSentence(byId("announcer"), text);
  }
}

function staleSentence(snapshot, now) {
  return `The console does not answer. This page shows the state of ${age(snapshot.time, now)} ago.`;
}

function figuresOf(snapshot, now) {
  const syphon = snapshot.syphon ?? {};
  const figures = [
    ["Waiting", `${snapshot.backlog?.sampled ? "≥ " : ""}${count(snapshot.backlog?.messages)}`],
    ["Oldest", oldestAge(snapshot, now)],
    ["Drain rate", Number.isFinite(syphon.rate) ? `${rate(syphon.rate)} /s` : "–"],
    ["Time to go", timeToGo(syphon.seconds_to_go)],
    ["Dead letters", count(snapshot.backlog?.dead_letters)],
    [`Throttled in ${duration(snapshot.throttled?.seconds)}`, count(snapshot.throttled?.operations)],
  ];
  if (snapshot.cost) figures.push(["Cost so far", money(snapshot.cost.so_far, snapshot.cost.currency)]);
  return figures;
}

/** Return the age of the oldest message of the backlog. */
function oldestAge({ queues = [], destinations = [] }, now) {
  const times = [...queues, ...destinations].map(({ oldest }) => Date.parse(oldest ?? "")).filter(Number.isFinite);
  return times.length ? duration((now - Math.min(...times)) / 1000) : "–";
}
