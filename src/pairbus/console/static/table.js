// A table that follows the snapshots: rows are kept by their key, long tables are cut, and can be
// filtered.

import { button, element, KeyedChildren, setHidden, setText } from "./dom.js";
import { count } from "./format.js";

const ROWS = 15;
const FILTER_FROM = 30;

/** A table.
 *
 * `columns` have a `title`, a `class` and `build(cell, row)`, which fills an empty cell and returns a
 * function `(item, now)` that updates it; `row.item` is the current item. `text(item)` is what the
 * filter searches. */
export class LiveTable {
  constructor({ caption, columns, key, text, empty, rows = ROWS }) {
    this.key = key;
    this.text = text;
    this.limit = rows;
    this.items = [];
    this.now = 0;
    this.showsAll = false;

    this.filter = element("input", {
      type: "search",
      class: "filter",
      placeholder: "Filter",
      "aria-label": `Filter: ${caption}`,
      on: { input: () => this.#render() },
    });
    const body = element("tbody");
    this.table = element(
      "table",
      {},
      element("caption", { class: "visually-hidden" }, caption),
      element("thead", {}, element("tr", {}, ...columns.map(heading))),
      body,
    );
    this.empty = element("p", { class: "muted empty" }, empty);
    this.more = button("", () => {
      this.showsAll = !this.showsAll;
      this.#render();
    }, { class: "more" });
    this.node = element("div", { class: "live-table" }, this.filter, this.table, this.empty, this.more);
    this.rows = new KeyedChildren(body, { key, create: () => newRow(columns) });
  }

  update(items, now) {
    this.items = items;
    this.now = now;
    this.#render();
  }

  setEmptyText(text) {
    setText(this.empty, text);
    setHidden(this.empty, this.items.length > 0 || text === "");
  }

  #render() {
    const wanted = this.filter.value.trim().toLowerCase();
    const matching = wanted
      ? this.items.filter((item) => this.text(item).toLowerCase().includes(wanted))
      : this.items;
    const shown = this.showsAll ? matching : matching.slice(0, this.limit);
    this.rows.update(shown, this.now);
    setHidden(this.filter, !this.text || this.items.length < FILTER_FROM);
    setHidden(this.table, shown.length === 0);
    setHidden(this.empty, this.items.length > 0 || this.empty.textContent === "");
    setHidden(this.more, matching.length <= this.limit);
    setText(this.more, this.showsAll ? `Show only ${count(this.limit)}` : `Show all ${count(matching.length)}`);
  }
}

function heading({ title, class: name, hiddenTitle }) {
  const content = hiddenTitle ? element("span", { class: "visually-hidden" }, title) : title;
  return element("th", { scope: "col", class: name }, content);
}

function newRow(columns) {
  const row = { item: null };
  const cells = columns.map((column) => element("td", { class: column.class }));
  const updates = columns.map((column, index) => column.build(cells[index], row));
  return {
    node: element("tr", {}, ...cells),
    update(item, now) {
      row.item = item;
      for (const update of updates) update(item, now);
    },
  };
}
