// The state of each path across all senders, and the senders.

import { askAndDo } from "./dialog.js";
import { button, byId, element, KeyedChildren, nameElement, setAge, setHidden, setName, setSentence, setText, SourceName } from "./dom.js";
import { count, counted, visible } from "./format.js";
import { StateBadge } from "./icons.js";
import { LiveTable } from "./table.js";

const { compare } = new Intl.Collator("en", { numeric: true });
const SEVERITY = ["failover", "suspect", "draining", "healthy"];
const NO_REPORTS =
  "No sender reports to this console. Set the options console and console_token of SendAvailabilityOptions " +
  "in the senders.";

export class Paths {
  constructor({ api, notify }) {
    this.api = api;
    this.notify = notify;
    this.note = element("p", { class: "muted" });
    this.table = new LiveTable({
      caption: "Paths",
      empty: NO_REPORTS,
      key: (item) => item.path,
      text: (item) => `${item.path} ${item.state} ${item.cause ?? ""}`,
      columns: [
        { title: "State", class: "state", build: buildState },
        { title: "Path", class: "wide", build: (cell, row) => this.#buildPath(cell, row) },
        { title: "Senders", class: "number optional", build: (cell) => (item) => setText(cell, sendersText(item)) },
        { title: "For", class: "number", build: buildAge((item) => item.since) },
      ],
    });
    byId("paths").append(this.note, this.table.node);
  }

  update(snapshot, now) {
    const paths = [...(snapshot.paths ?? [])].sort(bySeverity);
    this.table.update(paths, now);
    setHidden(this.note, paths.length === 0);
    setText(this.note, statesText(countStates(paths)));
  }

  #buildPath(cell, row) {
    const path = nameElement();
    const cause = nameElement({ class: "name muted second" });
    const senders = element("span", { class: "muted second" });
    const updateSenders = buildSenders(senders);
    const mark = button("Mark healthy", () => this.#markHealthy(row.item.path), { class: "small operator" });
    cell.append(element("div", { class: "with-action" }, element("div", {}, path, cause, senders), mark));
    return (item, now) => {
      setName(path, item.path);
      setSentence(cause, item.cause ?? "");
      setHidden(cause, !item.cause);
      updateSenders(item, now);
      setHidden(mark, item.state === "healthy");
      mark.setAttribute("aria-label", `Mark healthy: ${visible(item.path)}`);
    };
  }

  async #markHealthy(path) {
    const answer = await askAndDo({
      title: `Mark ${visible(path)} healthy`,
      label: "Mark healthy",
      send: (_, confirm) => this.api.post("/api/paths/mark-healthy", { path, confirm }),
    });
    if (answer) this.notify(answer.text ?? "The senders were asked to mark the path healthy.");
  }
}

export class Senders {
  constructor() {
    this.note = element("p", { class: "muted" });
    this.table = new LiveTable({
      caption: "Senders",
      empty: NO_REPORTS,
      key: (item) => item.id,
      text: (item) => `${item.host} ${item.process} ${item.application}`,
      columns: [
        { title: "Sender", class: "half", build: buildSender },
        { title: "Paths by state", class: "states", build: buildStates },
        { title: "Last report", class: "number", build: buildReport },
      ],
    });
    byId("senders").append(this.note, this.table.node);
  }

  update(snapshot, now) {
    const senders = [...(snapshot.senders ?? [])].sort(byUrgency);
    const silent = senders.filter((sender) => sender.silent).length;
    const omitted = snapshot.omitted_senders ?? 0;
    const text = counted(senders.length + omitted, "sender");
    setText(this.note, [
      text,
      silent ? `${count(silent)} silent` : "",
      omitted ? `${count(omitted)} not listed` : "",
    ].filter(Boolean).join("; ") + ".");
    setHidden(this.note, senders.length === 0);
    this.table.update(senders, now);
  }
}

function sendersText({ senders, all_senders: all }) {
  return all > senders ? `${count(senders)} of ${count(all)}` : count(senders);
}

function buildSenders(node) {
  const sources = new KeyedChildren(node.appendChild(element("span")), { key: ([source]) => source, create: newSource });
  const others = node.appendChild(element("span"));
  return ({ named_senders: names = [], senders }, now) => {
    const omitted = senders - names.length;
    setHidden(node, names.length === 0);
    sources.update(names.map((name, index) => [name, index ? ", " : "In "]), now);
    setText(others, omitted > 0 ? ` and ${counted(omitted, "other sender")}` : "");
  };
}

function newSource() {
  const separator = element("span");
  const source = new SourceName({ class: "source" });
  return {
    node: element("span", {}, separator, source.node),
    update([text, before]) {
      setText(separator, before);
      source.set(text);
    },
  };
}

function buildState(cell) {
  const badge = new StateBadge(cell.appendChild(element("span")));
  return (item) => badge.set(item.state);
}

function buildAge(timeOf) {
  return (cell) => {
    const time = cell.appendChild(element("time"));
    return (item, now) => setAge(time, timeOf(item), now);
  };
}

function buildSender(cell) {
  const host = nameElement();
  const process = element("span");
  const application = nameElement({ class: "name muted second" });
  const problem = new StateBadge(element("span"));
  problem.set("bad", "secondary not available");
  cell.append(host, process, application, problem.node);
  return (item) => {
    setName(host, item.host);
    setText(process, ` · ${visible(item.process)}`);
    setName(application, item.application ?? "");
    setHidden(problem.node, item.secondary_available !== false);
  };
}

function buildStates(cell) {
  const badges = SEVERITY.map((state) => [state, new StateBadge(cell.appendChild(element("span")))]);
  const omitted = cell.appendChild(element("span", { class: "muted" }));
  return (item) => {
    for (const [state, badge] of badges) {
      const paths = item.states?.[state] ?? 0;
      badge.set(state, `${count(paths)} ${state}`);
      setHidden(badge.node, paths === 0);
    }
    setText(omitted, item.omitted_paths ? `and ${counted(item.omitted_paths, "other")}` : "");
  };
}

function buildReport(cell) {
  const silent = new StateBadge(element("span"));
  silent.set("silent");
  const time = element("time");
  cell.append(time, silent.node);
  return (item, now) => {
    setAge(time, item.last_report, now);
    setHidden(silent.node, !item.silent);
  };
}

function severity(state) {
  const index = SEVERITY.indexOf(state);
  return index < 0 ? 0 : index;
}

function bySeverity(a, b) {
  return severity(a.state) - severity(b.state) || compare(a.path, b.path);
}

function byUrgency(a, b) {
  return urgency(b) - urgency(a) || compare(a.host, b.host) || a.process - b.process;
}

function urgency(sender) {
  if (sender.states?.failover) return 2;
  return sender.silent ? 1 : 0;
}

function countStates(paths) {
  const counts = new Map(SEVERITY.map((state) => [state, 0]));
  for (const { state } of paths) counts.set(state, (counts.get(state) ?? 0) + 1);
  return counts;
}

function statesText(counts) {
  const parts = [...counts].filter(([, number]) => number).map(([state, number]) => `${count(number)} ${state}`);
  return `${parts.join(", ")}.`;
}
