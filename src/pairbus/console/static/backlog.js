// The backlog by destination, its queues, and the peek at messages of a queue.

import { askAndDo, field, showInDialog } from "./dialog.js";
import { button, byId, element, nameElement, setAge, setHidden, setName, setText } from "./dom.js";
import { clock, count, counted, visible, visibleLines } from "./format.js";
import { LiveTable } from "./table.js";

const MAX_BODY = 20_000;

/** Waiting messages by destination. */
export class Backlog {
  constructor() {
    this.note = element("p", { class: "muted" });
    this.table = new LiveTable({
      caption: "Backlog by destination",
      empty: "",
      key: (item) => item.destination,
      text: (item) => item.destination ?? "",
      columns: [nameColumn("Destination", "destination"), numberColumn("Messages", "messages"), oldestColumn()],
    });
    byId("backlog").append(this.note, this.table.node);
  }

  update(snapshot, now) {
    const backlog = snapshot.backlog ?? {};
    this.table.update([...(snapshot.destinations ?? [])].sort(byMessages), now);
    this.table.setEmptyText(emptyText(backlog));
    setText(this.note, noteOf(backlog, now));
  }
}

/** The backlog queues, with a peek at their messages. */
export class Queues {
  constructor({ api, role }) {
    this.api = api;
    this.role = role;
    this.table = new LiveTable({
      caption: "Backlog queues",
      empty: "",
      key: (item) => item.queue,
      text: (item) => item.queue,
      columns: [
        nameColumn("Queue", "queue"),
        numberColumn("Messages", "messages"),
        numberColumn("Dead letters", "dead_letters"),
        oldestColumn(),
        { title: "Peek", hiddenTitle: true, class: "action", build: (cell, row) => this.#buildPeek(cell, row) },
      ],
    });
    this.others = element("p", { class: "muted" });
    byId("queues").append(this.table.node, this.others);
  }

  update(snapshot, now) {
    const queues = snapshot.queues ?? [];
    const used = queues.filter((queue) => queue.messages !== 0 || queue.dead_letters !== 0);
    this.table.update(used, now);
    this.table.setEmptyText(queues.length ? `All ${counted(queues.length, "queue")} are empty.` : noQueues(snapshot.backlog));
    setText(this.others, `${count(queues.length - used.length)} of ${counted(queues.length, "queue")} are empty.`);
    setHidden(this.others, used.length === 0 || used.length === queues.length);
  }

  #buildPeek(cell, row) {
    const peek = button("Peek", () => this.#peek(row.item), { class: "small" });
    cell.append(peek);
    return (item) => peek.setAttribute("aria-label", `Peek at ${visible(item.queue)}`);
  }

  async #peek({ queue, messages }) {
    const dead = messages ? "0" : "1";
    const deadLetters = field({ name: "dead", type: "checkbox", label: "Dead letters", checked: dead === "1" });
    const number = field({ name: "count", label: "Number of messages", type: "number", min: "1", max: "100", value: "10", required: true });
    let query = {};
    const answer = await askAndDo({
      title: `Peek at ${visible(queue)}`,
      label: "Peek",
      intro: "Peeking shows messages and leaves them in the queue.",
      fields: [number, deadLetters],
      send: (values, confirm) => {
        query = { queue, count: values.count, bodies: "0", dead_letters: values.dead ? "1" : "0" };
        return this.api.get("/api/peek", { ...query, confirm: confirm ? "1" : "0" });
      },
    });
    if (answer) this.#showMessages(query, answer);
  }

  #showMessages(query, answer) {
    const content = [element("p", { class: "muted" }, visible(answer.text ?? "")), messageList(answer.messages ?? [])];
    if (this.role() === "operator" && query.bodies === "0") {
      content.push(button("Show bodies…", () => this.#showBodies(query)));
    }
    showInDialog(`Messages of ${visible(query.queue)}`, ...content);
  }

  async #showBodies(query) {
    const withBodies = { ...query, bodies: "1" };
    const answer = await askAndDo({
      title: "Show bodies",
      label: "Show bodies",
      send: (_, confirm) => this.api.get("/api/peek", { ...withBodies, confirm: confirm ? "1" : "0" }),
    });
    if (answer) this.#showMessages(withBodies, answer);
  }
}

function messageList(messages) {
  if (messages.length === 0) return element("p", {}, "The queue has no messages.");
  return element("ol", { class: "messages", tabindex: "0", "aria-label": "Messages" }, ...messages.map(messageItem));
}

function messageItem(message) {
  const facts = element("dl", { class: "facts" });
  const add = (label, text) => {
    if (text === null || text === undefined || text === "") return;
    facts.append(element("div", {}, element("dt", {}, label), element("dd", {}, element("bdi", { class: "name", dir: "ltr" }, visible(text)))));
  };
  add("Sequence number", message.sequence_number);
  add("Message id", message.message_id);
  add("Destination", message.destination);
  add("Enqueued at", message.enqueued_at && clock(message.enqueued_at, Date.now()));
  add("Size", message.size === undefined ? null : `${count(message.size)} bytes`);
  add("Reason", message.reason);
  add("Description", message.description);
  add("Problem", message.problem);
  const item = element("li", {}, facts);
  if (typeof message.body === "string") {
    item.append(element("pre", { dir: "auto" }, visibleLines(message.body, MAX_BODY)));
  }
  return item;
}

function nameColumn(title, property) {
  return {
    title,
    class: "wide",
    build(cell) {
      const name = cell.appendChild(nameElement());
      return (item) => setName(name, item[property] ?? "unknown");
    },
  };
}

function numberColumn(title, property) {
  return { title, class: "number", build: (cell) => (item) => setText(cell, count(item[property])) };
}

function oldestColumn() {
  return {
    title: "Oldest",
    class: "number",
    build(cell) {
      const time = cell.appendChild(element("time"));
      return (item, now) => setAge(time, item.oldest, now);
    },
  };
}

function byMessages(a, b) {
  return b.messages - a.messages || (a.destination < b.destination ? -1 : 1);
}

function noteOf(backlog, now) {
  if (!backlog.counted_at) return "The backlog has not been read yet.";
  const time = clock(backlog.counted_at, now);
  if (!backlog.known) return `The backlog could not be read at ${time}.`;
  const sampled = backlog.sampled ? " There may be more messages than the console has peeked at." : "";
  const estimated = backlog.estimated && backlog.messages ? " The numbers by destination are estimates from a sample." : "";
  return `Counted at ${time}.${sampled}${estimated}`;
}

function emptyText(backlog) {
  if (!backlog.known) return "";
  return backlog.messages ? "The destinations of the messages are not known yet." : "No messages wait.";
}

function noQueues(backlog) {
  if (!backlog?.known) return "The queues are not known, because the backlog was not read.";
  return "No backlog queue was found. Either no sender has paired yet, or the name of the primary is wrong.";
}
