// Elements of the page. All text goes through textContent, so names are never read as markup.

import { age, clock, visible } from "./format.js";

const MAX_SENTENCE = 1_000;
const SEPARATOR = " · ";

/** Create an element with properties and children. Strings become text. */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "on") for (const [type, handler] of Object.entries(value)) node.addEventListener(type, handler);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function button(text, action, properties = {}) {
  return element("button", { type: "button", on: { click: action }, ...properties }, text);
}

/** Return the element with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Set the text of an element if it differs, so that a selection or focus in it is kept. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Show untrusted text in an element, isolated from the direction of the text around it. */
export function setName(node, text) {
  setText(node, visible(text));
}

/** Show an untrusted sentence, which may contain several names. */
export function setSentence(node, text) {
  setText(node, visible(text, MAX_SENTENCE));
}

/** Create an element for untrusted text. A path such as "שלום/x/0" has its first part on the left in
 * any script. */
export function nameElement(properties = {}) {
  return element("bdi", { class: "name", dir: "ltr", ...properties });
}

/** The name of a process: "host · 4711". The two are separate elements, because a number after a name
 * in Hebrew would be shown before it. */
export class SourceName {
  constructor(properties = {}) {
    this.host = nameElement();
    this.process = element("span");
    this.node = element("span", properties, this.host, this.process);
  }

  set(text) {
    const end = text.includes(SEPARATOR) ? text.lastIndexOf(SEPARATOR) : text.length;
    setName(this.host, text.slice(0, end));
    setText(this.process, visible(text.slice(end)));
  }
}

/** Create a figure with its label, as a child of KeyedChildren in a description list. */
export function newFigure() {
  const term = element("dt");
  const value = element("dd");
  return {
    node: element("div", {}, term, value),
    update([label, text]) {
      setText(term, label);
      setText(value, text);
    },
  };
}

export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

/** Set an attribute if it differs; null removes it. */
export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Show the age of an ISO 8601 time in a `time` element, with the full time as its title. */
export function setAge(node, iso, now) {
  setTime(node, iso, age(iso, now));
}

/** Show the local time of day of an ISO 8601 time in a `time` element. */
export function setClock(node, iso, now) {
  setTime(node, iso, clock(iso, now));
}

function setTime(node, iso, text) {
  setText(node, text);
  const valid = !Number.isNaN(Date.parse(iso ?? ""));
  setAttribute(node, "datetime", valid ? iso : null);
  setAttribute(node, "title", valid ? iso : null);
}

/** Update the children of a parent so that they show the items, in their order.
 *
 * A child with the key of an item is kept and updated, because it may have the focus. `create(item)`
 * returns `{ node, update(item, now) }`. */
export class KeyedChildren {
  constructor(parent, { key, create }) {
    this.parent = parent;
    this.key = key;
    this.create = create;
    this.entries = new Map();
  }

  update(items, now) {
    const next = new Map();
    for (const item of items) {
      let key = String(this.key(item));
      while (next.has(key)) key += "\u0000";
      next.set(key, [this.entries.get(key) ?? this.create(item), item]);
    }
    for (const [key, entry] of this.entries) if (!next.has(key)) entry.node.remove();
    this.entries.clear();
    let position = this.parent.firstChild;
    for (const [key, [entry, item]] of next) {
      this.entries.set(key, entry);
      entry.update(item, now);
      if (entry.node === position) position = position.nextSibling;
      else move(this.parent, entry.node, position);
    }
  }
}

// moveBefore keeps the focus, but only moves what is already there.
function move(parent, node, position) {
  if (node.parentNode === parent && parent.moveBefore) parent.moveBefore(node, position);
  else parent.insertBefore(node, position);
}
