// Icons as SVG elements. Each has a shape of its own: a color alone never carries a meaning.

const SVG = "http://www.w3.org/2000/svg";

const CIRCLE = "M8 1.2a6.8 6.8 0 1 1 0 13.6A6.8 6.8 0 0 1 8 1.2z";
const TRIANGLE = "M8 1.6l6.8 12.6H1.2z";
const OCTAGON = "M5.2 1.2h5.6l4 4v5.6l-4 4H5.2l-4-4V5.2z";
const SQUARE = "M2 2h12v12H2z";

const ICONS = {
  good: [CIRCLE, "M5 8.3l2.1 2.1L11 5.9"],
  warning: [TRIANGLE, "M8 6.2v4M8 12v.3"],
  bad: [OCTAGON, "M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8"],
  unknown: [SQUARE, "M6 6.2a2 2 0 1 1 2.9 1.8c-.6.3-.9.7-.9 1.3M8 11.5v.3"],
  healthy: [CIRCLE, "M5 8.3l2.1 2.1L11 5.9"],
  suspect: [TRIANGLE, "M8 6.2v4M8 12v.3"],
  failover: [OCTAGON, "M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8"],
  draining: [CIRCLE, "M8 4.4v7M5 8.6l3 3 3-3"],
  silent: [SQUARE, "M5 8h6"],
  paused: [SQUARE, "M6.4 5.4v5.2M9.6 5.4v5.2"],
  stopped: [SQUARE, "M6 6h4v4H6z"],
  cancelled: [SQUARE, "M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8"],
};

/** Create an icon. It is hidden from assistive technology, because text stands beside it. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon");
  for (const outline of ICONS[name] ?? ICONS.unknown) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", outline);
    svg.append(path);
  }
  return svg;
}

/** A word with the icon and the color of a state, such as "failover". */
export class StateBadge {
  constructor(node) {
    this.node = node;
    this.state = null;
    this.text = null;
    node.classList.add("badge");
  }

  set(state, text = state) {
    if (state === this.state && text === this.text) return;
    this.state = state;
    this.text = text;
    this.node.dataset.state = state;
    const label = document.createElement("span");
    label.textContent = text;
    this.node.replaceChildren(icon(state), label);
  }
}
