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

// What is not seen, or turns the direction of writing: two texts that differ must not look alike. So it is with a
// space at an end or after another one. A backslash before what begins with `u` or is one would read like an escape.
const UNSEEN = String.raw`[\p{C}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Z}|^ | $|(?<= ) `;
const ESCAPED = new RegExp(String.raw`${UNSEEN}|\\(?=[u\\]|${UNSEEN})`, "gu");

function escape(char) {
  if (char === "\\") return "\\\\";
  const hex = char.codePointAt(0).toString(16);
  return hex.length > 4 ? `\\u{${hex}}` : `\\u${hex.padStart(4, "0")}`;
}

/** A text of somebody else with an escape for each character that is not seen. */
export const seen = (text) => text.replace(ESCAPED, escape);

function cut(text, longest) {
  const whole = String(text ?? "");
  return whole.length > longest ? `${whole.slice(0, longest).replace(/[\ud800-\udbff]$/, "")}…` : whole;
}

/** The same, of bearable length. */
export const short = (text, longest = LONGEST) => cut(seen(String(text ?? "")), longest);

/** The same text as a node that keeps its direction of writing to itself, and shows which escapes are ours. */
export function foreign(text, longest = LONGEST) {
  const whole = cut(text, longest);
  const node = el("bdi");
  let from = 0;
  for (const found of whole.matchAll(ESCAPED)) {
    node.append(whole.slice(from, found.index), el("span", { class: "escape" }, escape(found[0])));
    from = found.index + found[0].length;
  }
  node.append(whole.slice(from));
  return node;
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
