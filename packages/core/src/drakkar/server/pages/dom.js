// Making elements. Every text is put in as text: nothing of what a worker says is ever read as HTML.

const LONGEST = 200;

/** An element with attributes and children; a child is a node, a text, or nothing. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";

/** The same for a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A text of somebody else, of bearable length. */
export function short(text, longest = LONGEST) {
  const whole = String(text ?? "");
  return whole.length > longest ? `${whole.slice(0, longest)}…` : whole;
}

/** The same as a node that keeps its direction of writing to itself. */
export function foreign(text, longest = LONGEST) {
  return el("bdi", {}, short(text, longest));
}

/** The address, if it is one that may become a link; else null. One that begins with a user's name looks like
    another host than it leads to. */
export function webAddress(text) {
  if (typeof text !== "string" || !/^https?:\/\//i.test(text)) return null;
  try {
    const address = new URL(text);
    return address.username || address.password ? null : address.href;
  } catch {
    return null;
  }
}

/** Show `text` in `node`; touches the page only when it differs. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
