// Dialogs that ask before an action. The server says first what the action will do and cost.

import { button, byId, element } from "./dom.js";
import { visible } from "./format.js";

const MAX_TEXT = 2_000;

/** Ask for the values of an action, show what it will do, and do it.
 *
 * `fields` are those of `field()`. `send(values, confirm)` sends the request, and with `confirm` does
 * it. Returns the answer, or null if it was cancelled. */
export function askAndDo({ title, label, danger = false, fields = [], intro = "", send }) {
  return new Promise((resolve) => {
    const dialog = open(title);
    dialog.addEventListener("close", () => resolve(dialog.answer ?? null), { once: true });
    const form = element("form", { class: "dialog-form" });
    const error = element("p", { class: "error", role: "alert" });
    let values = {};

    const attempt = async (confirm) => {
      error.textContent = "";
      setBusy(form, true);
      try {
        return await send(values, confirm);
      } catch (problem) {
        error.textContent = visible(problem.message, MAX_TEXT);
        return null;
      } finally {
        setBusy(form, false);
      }
    };
    const showFields = () => {
      const submit = element("button", { type: "submit", class: "primary" }, "Continue");
      const text = intro ? [element("p", {}, intro)] : [];
      form.replaceChildren(...text, ...fields.map((item) => item.node), error, buttons(dialog, submit));
      form.onsubmit = (event) => {
        event.preventDefault();
        values = Object.fromEntries(fields.map((item) => [item.name, item.value()]));
        showPreview();
      };
      form.querySelector("input, select")?.focus();
    };
    const showPreview = async () => {
      const preview = await attempt(false);
      if (!preview || !dialog.open) {
        if (fields.length === 0) form.replaceChildren(error, buttons(dialog));
        return;
      }
      const submit = element("button", { type: "submit", class: danger ? "danger" : "primary" }, label);
      const back = fields.length ? [button("Back", showFields)] : [];
      const cost = preview.cost ? [fact("Cost", visible(preview.cost, MAX_TEXT))] : [];
      const text = element("p", { class: "preview", id: "dialog-preview" }, visible(preview.text, MAX_TEXT));
      form.replaceChildren(text, ...cost, error, buttons(dialog, ...back, submit));
      form.onsubmit = async (event) => {
        event.preventDefault();
        const answer = await attempt(true);
        if (answer === null) return;
        dialog.answer = answer;
        dialog.close();
      };
      dialog.setAttribute("aria-describedby", "dialog-preview");
      submit.focus();
    };

    dialog.append(form);
    if (fields.length) showFields();
    else {
      form.replaceChildren(element("p", { class: "muted" }, "Asking the console…"), error, buttons(dialog));
      showPreview();
    }
  });
}

/** Show content in a dialog until it is closed. */
export function showInDialog(title, ...content) {
  const dialog = open(title);
  dialog.append(...content, buttons(dialog));
  return dialog;
}

/** Create a labelled input for `askAndDo`. `read` converts its text. */
export function field({ name, label, hint, read = (text) => text, ...attributes }) {
  const id = `field-${name}`;
  const checkbox = attributes.type === "checkbox";
  const input = element("input", { id, name, ...attributes });
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  const note = hint ? [element("p", { class: "hint muted", id: `${id}-hint` }, hint)] : [];
  const caption = element("label", { for: id }, label);
  const parts = checkbox ? [element("div", { class: "check" }, input, caption)] : [caption, input];
  return {
    name,
    node: element("div", { class: "field" }, ...parts, ...note),
    value: () => (checkbox ? input.checked : read(input.value.trim())),
  };
}

/** Return the number in a text, or null for an empty one. */
export function optionalNumber(text) {
  return text === "" ? null : Number(text);
}

function open(title) {
  const old = byId("dialog");
  if (old.open) old.close();
  const dialog = element("dialog", { id: "dialog", "aria-labelledby": "dialog-title" });
  dialog.append(element("h2", { id: "dialog-title" }, title));
  old.replaceWith(dialog);
  dialog.showModal();
  return dialog;
}

function fact(label, text) {
  return element("dl", { class: "facts" }, element("div", {}, element("dt", {}, label), element("dd", {}, text)));
}

function buttons(dialog, ...actions) {
  const cancel = button(actions.length ? "Cancel" : "Close", () => dialog.close());
  return element("div", { class: "buttons" }, cancel, ...actions);
}

function setBusy(form, busy) {
  form.setAttribute("aria-busy", String(busy));
  for (const control of form.elements) {
    if (control.type === "submit") control.disabled = busy;
  }
}
