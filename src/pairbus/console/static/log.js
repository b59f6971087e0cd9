// The cost of the outage and of the console itself, and the events.

import { byId, element, nameElement, setClock, setSentence, setText, SourceName } from "./dom.js";
import { count, counted, duration, money } from "./format.js";
import { LiveTable } from "./table.js";

export class Cost {
  constructor() {
    this.text = element("p");
    this.looks = element("p", { class: "muted" });
    byId("cost").append(this.text, this.looks);
  }

  update(snapshot) {
    const { cost, looks } = snapshot;
    setText(this.text, cost ? costText(cost) : "No cost is known. There was no outage yet, or the console has no ledger.");
    setText(this.looks, looks ? looksText(looks) : "");
  }
}

export class Events {
  constructor() {
    this.table = new LiveTable({
      caption: "Events, newest first",
      empty: "No events yet.",
      rows: 20,
      key: (item) => JSON.stringify([item.time, item.source, item.text]),
      text: (item) => `${item.source ?? ""} ${item.text}`,
      columns: [
        { title: "Time", class: "clock", build: buildTime },
        { title: "Event", class: "wide", build: buildEvent },
      ],
    });
    byId("events").append(this.table.node);
  }

  update(snapshot, now) {
    this.table.update([...(snapshot.events ?? [])].sort(newestFirst), now);
  }
}

function costText({ currency, so_far: soFar, forecast }) {
  const text = `The outage has cost ${money(soFar, currency)} so far.`;
  return forecast > soFar ? `${text} The forecast, with the drain of what waits, is ${money(forecast, currency)}.` : text;
}

function looksText({ operations, per_hour: perHour, interval_s: interval }) {
  return (
    `The console itself reads the namespaces every ${duration(interval)}: ` +
    `${counted(operations, "billable operation")} so far, about ${count(perHour)} an hour.`
  );
}

function buildTime(cell) {
  const time = cell.appendChild(element("time"));
  return (item, now) => setClock(time, item.time, now);
}

function buildEvent(cell) {
  const text = nameElement();
  const source = new SourceName({ class: "muted second" });
  cell.append(text, source.node);
  return (item) => {
    setSentence(text, item.text);
    source.set(item.source ?? "");
  };
}

function newestFirst(a, b) {
  return Date.parse(b.time) - Date.parse(a.time);
}
