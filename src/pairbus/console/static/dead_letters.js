// Dead letters by destination and reason, and redrives with their progress.

import { askAndDo, field, optionalNumber } from "./dialog.js";
import { button, byId, element, KeyedChildren, nameElement, setAttribute, setClock, setHidden, setName, setSentence, setText } from "./dom.js";
import { count, counted, rate, timeToGo, visible } from "./format.js";
import { StateBadge } from "./icons.js";
import { LiveTable } from "./table.js";

const NO_REASON = "no reason";
const ENDS = { done: ["good", "Done"], cancelled: ["cancelled", "Cancelled"], failed: ["bad", "Failed"] };

export class DeadLetters {
  constructor({ api, notify }) {
    this.api = api;
    this.notify = notify;
    this.table = new LiveTable({
      caption: "Dead letters",
      empty: "No dead letters.",
      key: (item) => JSON.stringify([item.destination, item.reason]),
      text: (item) => `${item.destination ?? ""} ${item.reason ?? ""}`,
      columns: [
        { title: "Destination and reason", class: "wide", build: buildGroup },
        { title: "Messages", class: "number", build: (cell) => (item) => setText(cell, count(item.messages)) },
        { title: "Redrive", hiddenTitle: true, class: "action operator", build: (cell, row) => this.#buildRedrive(cell, row) },
      ],
    });
    this.heading = element("h3", {}, "Redrives");
    const list = element("ul", { class: "redrives" });
    this.redrives = new KeyedChildren(list, { key: (item) => item.id, create: () => this.#newRedrive() });
    this.note = element("p", { class: "muted" }, "The numbers by reason are estimates from a sample.");
    byId("dead-letters").append(this.note, this.table.node, this.heading, list);
  }

  update(snapshot, now) {
    const groups = [...(snapshot.dead_letters ?? [])].sort((a, b) => b.messages - a.messages);
    const { known = true, estimated } = snapshot.backlog ?? {};
    this.table.update(groups, now);
    this.table.setEmptyText(known ? "No dead letters." : "Dead letters are not known, because the backlog was not read.");
    setHidden(this.note, !estimated || groups.length === 0);
    const redrives = snapshot.redrives ?? [];
    setHidden(this.heading, redrives.length === 0);
    this.redrives.update(redrives, now);
  }

  #buildRedrive(cell, row) {
    const start = button("Redrive…", () => this.#redrive(row.item), { class: "small" });
    cell.append(start);
    return (item) => {
      setAttribute(start, "aria-label", `Redrive: ${visible(item.destination)}, ${visible(item.reason ?? NO_REASON)}`);
      setHidden(start, item.destination === null);
    };
  }

  async #redrive({ destination, reason, messages }) {
    const answer = await askAndDo({
      title: "Redrive dead letters",
      label: "Redrive",
      intro: `${counted(messages, "dead letter")} for ${visible(destination)} with the reason ${visible(reason ?? NO_REASON)}.`,
      fields: [
        field({
          name: "count", label: "Number of messages (optional)", hint: "Empty: all of them.",
          type: "number", min: "1", step: "1", read: optionalNumber,
        }),
        field({
          name: "rate", label: "Messages a second (optional)", hint: "Empty: no limit.",
          type: "number", min: "0.1", step: "any", read: optionalNumber,
        }),
        field({ name: "dry_run", label: "Dry run: count the messages, and move none", type: "checkbox" }),
      ],
      send: (values, confirm) => this.api.post("/api/redrive", { destination, reason, ...values, confirm }),
    });
    if (answer) this.notify(answer.text ?? "The redrive was started.");
  }

  async #cancel({ id }) {
    const answer = await askAndDo({
      title: "Cancel the redrive",
      label: "Cancel the redrive",
      danger: true,
      send: (_, confirm) => this.api.delete(`/api/redrive/${encodeURIComponent(id)}`, { confirm: confirm ? "1" : "0" }),
    });
    if (answer) this.notify(answer.text ?? "The redrive was cancelled.");
  }

  #newRedrive() {
    const row = { item: null };
    const title = nameElement();
    const started = element("time");
    const end = new StateBadge(element("span"));
    const text = nameElement();
    const progress = element("progress");
    const cancel = button("Cancel…", () => this.#cancel(row.item), { class: "small operator" });
    return {
      node: element(
        "li",
        {},
        element("p", { class: "redrive-title" }, title, element("span", { class: "muted" }, "started at ", started)),
        progress,
        element("p", { class: "redrive-state" }, end.node, text, cancel),
      ),
      update(item, now) {
        row.item = item;
        const running = item.state === "running";
        const name = titleOf(item);
        setSentence(title, name);
        setClock(started, item.started_at, now);
        setHidden(end.node, running);
        if (!running) end.set(...(ENDS[item.state] ?? ["unknown", item.state]));
        setSentence(text, running ? progressText(item) : item.text ?? "");
        setProgress(progress, item);
        setAttribute(progress, "aria-label", `Progress: ${visible(name)}`);
        setHidden(progress, !running);
        setHidden(cancel, !running);
        setAttribute(cancel, "aria-label", `Cancel: ${visible(name)}`);
      },
    };
  }
}

function buildGroup(cell) {
  const destination = nameElement();
  const reason = nameElement({ class: "name muted second" });
  cell.append(destination, reason);
  return (item) => {
    setName(destination, item.destination ?? "unknown destination");
    setName(reason, item.reason ?? NO_REASON);
  };
}

function titleOf({ destination, reason, dry_run: isDryRun }) {
  const name = [destination, reason].filter((text) => typeof text === "string").join(", ");
  const kind = isDryRun ? "Dry run of a redrive" : "Redrive";
  return name ? `${kind}: ${name}` : kind;
}

// A progress bar without a value is shown as "unknown": the dead letters are still being counted.
function setProgress(node, { moved, total }) {
  if (!total) {
    node.removeAttribute("value");
    return;
  }
  node.max = total;
  node.value = moved ?? 0;
}

function progressText(item) {
  if (!item.total) return item.text ?? "";
  const time = Number.isFinite(item.seconds_to_go) ? `, about ${timeToGo(item.seconds_to_go)} to go` : "";
  const speed = Number.isFinite(item.rate) ? `, ${rate(item.rate)} messages/s` : "";
  return `${count(item.moved)} of ${count(item.total)} moved${speed}${time}.`;
}
