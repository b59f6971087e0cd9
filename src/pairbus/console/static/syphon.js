// The syphon: its health in words, its figures, and its control.

import { askAndDo, field, optionalNumber } from "./dialog.js";
import { button, byId, element, KeyedChildren, newFigure, setAge, setHidden, setSentence } from "./dom.js";
import { count, counted, rate, timeToGo } from "./format.js";
import { StateBadge } from "./icons.js";

const NO_STATUS = "Start the console with the status file of the syphon (--status-file) to see the syphon here.";
const DESTINATION_HINT = "Empty: all destinations together.";

export class Syphon {
  constructor({ api, notify }) {
    this.api = api;
    this.notify = notify;
    this.destinations = [];
    this.badge = new StateBadge(element("span"));
    this.problem = element("p", { class: "name" });
    this.advice = element("p", { class: "muted" }, NO_STATUS);
    this.settings = element("p", { class: "name muted" });
    this.reported = element("time");
    this.facts = element("dl", { class: "facts" });
    this.rows = new KeyedChildren(this.facts, { key: ([label]) => label, create: newFigure });
    this.time = element("p", { class: "muted" }, "Status of ", this.reported, " ago.");
    this.actions = element("div", { class: "buttons operator" });
    this.pause = button("Pause…", () => this.#change("pause", "Pause the syphon", "Pause"));
    this.resume = button("Resume…", () => this.#change("resume", "Resume the syphon", "Resume"));
    this.rate = button("Set rate…", () => this.#setRate());
    this.reset = button("Reset…", () => this.#change("reset", "Reset the control", "Reset", false));
    this.actions.append(this.pause, this.resume, this.rate, this.reset);
    byId("syphon").append(
      element("p", {}, this.badge.node),
      this.problem,
      this.advice,
      this.settings,
      this.facts,
      this.time,
      this.actions,
      element("datalist", { id: "destination-names" }),
    );
  }

  update(snapshot, now) {
    const syphon = snapshot.syphon ?? { known: false };
    const [state, words] = healthOf(syphon, snapshot.backlog?.messages !== 0);
    this.badge.set(state, words);
    setSentence(this.problem, `Reason: ${syphon.problem}.`);
    setHidden(this.problem, !syphon.problem);
    this.problem.classList.toggle("problem", state === "bad");
    setHidden(this.advice, syphon.known || Boolean(syphon.problem));
    const settings = settingsOf(syphon);
    setSentence(this.settings, settings);
    setHidden(this.settings, settings === "");
    this.rows.update(syphon.known ? factsOf(syphon) : [], now);
    setHidden(this.facts, !syphon.known);
    setHidden(this.time, !syphon.known || !syphon.time);
    setAge(this.reported, syphon.time, now);
    setHidden(this.pause, syphon.paused === true);
    setHidden(this.resume, !syphon.paused && !(syphon.paused_destinations ?? []).length);
    this.#setDestinations((snapshot.destinations ?? []).map((item) => item.destination));
  }

  #setDestinations(names) {
    if (names.join("\n") === this.destinations.join("\n")) return;
    this.destinations = names;
    byId("destination-names").replaceChildren(...names.slice(0, 200).map((value) => element("option", { value })));
  }

  async #change(action, title, label, hasDestination = true) {
    const fields = hasDestination ? [destinationField()] : [];
    this.#done(
      await askAndDo({
        title,
        label,
        fields,
        send: (values, confirm) =>
          this.api.post("/api/syphon", { action, destination: values.destination ?? null, confirm }),
      }),
    );
  }

  async #setRate() {
    const number = field({
      name: "rate",
      label: "Messages a second",
      type: "number",
      min: "0.1",
      step: "any",
      required: true,
      read: optionalNumber,
    });
    this.#done(
      await askAndDo({
        title: "Set the rate of the syphon",
        label: "Set rate",
        fields: [number, destinationField()],
        send: (values, confirm) => this.api.post("/api/syphon", { action: "rate", ...values, confirm }),
      }),
    );
  }

  #done(answer) {
    if (answer) this.notify(answer.text ?? "The control of the syphon was changed.");
  }
}

function destinationField() {
  return field({
    name: "destination",
    label: "Destination (optional)",
    hint: DESTINATION_HINT,
    list: "destination-names",
    autocomplete: "off",
    spellcheck: "false",
    read: (text) => text || null,
  });
}

// A syphon that has ended is a problem only while messages wait.
function healthOf(syphon, isNeeded) {
  if (!syphon.known) return ["unknown", "Not known"];
  if (!syphon.running) return isNeeded ? ["bad", "Stopped"] : ["stopped", "Stopped"];
  if (syphon.paused) return ["paused", "Paused"];
  return syphon.healthy ? ["good", "Healthy"] : ["bad", "Unhealthy"];
}

function settingsOf(syphon) {
  const lines = syphon.paused && !syphon.known ? ["A syphon that starts is paused."] : [];
  lines.push(...(syphon.paused_destinations ?? []).map((path) => `${path} is paused.`));
  for (const [path, value] of Object.entries(syphon.rates ?? {})) {
    lines.push(`At most ${rate(value)} messages a second to ${path}.`);
  }
  return lines.join(" ");
}

function factsOf(syphon) {
  return [
    ["Rate", Number.isFinite(syphon.rate) ? `${rate(syphon.rate)} messages/s` : "–"],
    ["Limit", syphon.max_rate ? `${rate(syphon.max_rate)} messages/s` : "none"],
    ["Time to go", timeToGo(syphon.seconds_to_go)],
    ["Moved", count(syphon.moved)],
    ["Throttled", throttledText(syphon)],
  ];
}

function throttledText({ throttled_sends: sends, throttled_receives: receives }) {
  return Number.isFinite(sends) ? `${counted(sends, "send")}, ${counted(receives, "receive")}` : "–";
}
