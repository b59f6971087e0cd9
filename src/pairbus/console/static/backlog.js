// The backlog by destination and by queue, and the peek at messages of a queue.

import { askAndDo, field, showInDialog } from "./dialog.js";
import { button, byId, element, nameElement, setAge, setHidden, setName, setText } from "./dom.js";
import { clock, count, counted, visible, visibleLines } from "./format.js";
import { LiveTable } from "./table.js";

const MAX_BODY = 20_000;

export class Backlog {
  constructor({ api, role }) {
    this.api = api;
    this.role = role;
    this.note = element("p", { class: "muted" });
    this.destinations = new LiveTable({
      caption: "Backlog by destination",
      empty: "No messages wait.",
      key: (item) => item.destination,
      text: (item) => item.destination,
      columns: [nameColumn("Destination", "destination"), numberColumn("Messages", "messages"), oldestColumn()],
    });
    this.queues = new LiveTable({
      caption: "Backlog by queue",
      empty: "All backlog queues are empty.",
      key: (item) => item.queue,
      text: (item) => item.queue,
      columns: [
        nameColumn("Backlog queue", "queue"),
        numberColumn("Messages", "messages"),
        numberColumn("Dead letters", "dead_letters"),
        oldestColumn(),
        { title: "Peek", hiddenTitle: true, class: "action", build: (cell, row) => this.#buildPeek(cell, row) },
      ],
    });
    this.emptyQueues = element("p", { class: "muted" });
    byId("backlog").append(this.note, this.destinations.node, element("h3", {}, "By queue"), this.queues.node, this.emptyQueues);
  }

  update(snapshot, now) {
    const destinations = [...(snapshot.destinations ?? [])].sort(byMessages);
    const queues = snapshot.queues ?? [];
    const used = queues.filter((queue) => queue.messages || queue.dead_letters);
    this.destinations.update(destinations, now);
    this.destinations.setEmptyText(
      snapshot.backlog?.messages ? "The destinations of the messages are not known yet." : "No messages wait.",
    );
    this.queues.setEmptyText(queues.length ? "All backlog queues are empty." : "No backlog queue was found.");
    this.queues.update(used, now);
    setText(this.emptyQueues, `${count(queues.length - used.length)} of ${counted(queues.length, "backlog queue")} are empty.`);
    setHidden(this.emptyQueues, used.length === 0 || used.length === queues.length);
    setText(this.note, noteOf(snapshot.backlog, now));
    setHidden(this.note, !snapshot.backlog?.counted_at);
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
  if (!backlog?.counted_at) return "";
  const sampled = backlog.sampled ? " There may be more messages than the console has peeked at." : "";
  const estimated = backlog.estimated ? " The numbers by destination are estimates from a sample." : "";
  return `Counted at ${clock(backlog.counted_at, now)}.${sampled}${estimated}`;
}
