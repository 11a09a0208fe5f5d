// A table whose rows are kept by key and changed in place. Of a long one only the rows in sight are in the page.
//
// A column: `name`, `title`, `text(row)`, what the cell says; and when it needs them `value(row)`, what is sorted by
// (the text, by default; null comes last), `nodes(row)`, how the text is shown (made anew only when the text is
// another one), `live: true` when the text changes with time, `kind`, its class.

import { el, say, short } from "./dom.js";
import { read, write } from "./query.js";
import { everySecond } from "./time.js";

const WHOLE = 300; // as many rows are all put into the page
const LONG = 24; // characters that may need more than two lines
const MARGIN = 12; // rows above and below those in sight

const byText = new Intl.Collator(undefined, { numeric: true }).compare;

export function table({ name, label, columns, keyOf, empty }) {
  const buttons = columns.map((column) => el("button", { type: "button", onclick: () => turn(column.name) }, column.title));
  const heads = columns.map((column, index) =>
    el("th", { role: "columnheader", scope: "col", class: column.kind, "aria-sort": "none" }, buttons[index]));
  const above = el("tr", { class: "space", role: "presentation" });
  const below = el("tr", { class: "space", role: "presentation" });
  const body = el("tbody", { role: "rowgroup" }, above, below);
  const grid = el("table", { role: "table", "aria-label": label, class: name },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads)), body);
  const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}, scrollable` }, grid);
  const none = el("p", { class: "muted", hidden: true });

  let rows = [];
  let order = [];
  let inPage = new Map();
  let drawing = 0;

  function sorting() {
    const text = read(`${name}-sort`);
    const descending = text.startsWith("-");
    const column = columns.find((one) => one.name === text.slice(descending ? 1 : 0));
    return { column, descending };
  }

  if (!sorting().column) write(`${name}-sort`, ""); // there is no such column

  function turn(wanted) {
    const { column, descending } = sorting();
    const next = column?.name !== wanted ? wanted : descending ? "" : `-${wanted}`;
    write(`${name}-sort`, next);
    arrange();
  }

  /** Show these rows, in this order unless the reader chose another one. */
  function show(newRows, sayEmpty = empty) {
    rows = newRows;
    none.hidden = rows.length > 0;
    box.hidden = rows.length === 0;
    say(none, rows.length ? "" : sayEmpty);
    arrange();
  }

  function arrange() {
    const { column, descending } = sorting();
    columns.forEach((one, index) => {
      const how = one === column ? (descending ? "descending" : "ascending") : "none";
      heads[index].setAttribute("aria-sort", how);
    });
    order = rows;
    if (column) {
      const value = column.value ?? column.text;
      const sign = descending ? -1 : 1;
      const keyed = rows.map((row) => [value(row), row]);
      order = keyed.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * (typeof a === "number" ? a - b : byText(a, b));
      }).map(([, row]) => row);
    }
    draw();
  }

  function draw() {
    drawing = 0;
    const windowed = order.length > WHOLE;
    grid.classList.toggle("windowed", windowed);
    if (windowed) grid.setAttribute("aria-rowcount", order.length + 1);
    else grid.removeAttribute("aria-rowcount");
    let [from, to] = [0, order.length];
    const height = windowed ? rowHeight() : 0;
    if (windowed) {
      from = Math.max(0, Math.min(order.length, Math.floor(box.scrollTop / height)) - MARGIN);
      to = Math.min(order.length, from + Math.ceil(box.clientHeight / height) + 2 * MARGIN);
    }
    const kept = new Map();
    let place = above.nextSibling;
    for (let index = from; index < to; index += 1) {
      const key = keyOf(order[index]);
      const node = inPage.get(key) ?? makeRow();
      inPage.delete(key);
      kept.set(key, node);
      fillRow(node, order[index], windowed ? index + 2 : null);
      if (node === place) place = place.nextSibling;
      else put(node, place);
    }
    for (const node of inPage.values()) node.remove();
    inPage = kept;
    above.style.height = `${from * height}px`;
    below.style.height = `${(order.length - to) * height}px`;
  }

  function put(node, place) {
    // Moving keeps the focus, where the browser can.
    if (node.isConnected && body.moveBefore) body.moveBefore(node, place);
    else body.insertBefore(node, place);
  }

  function rowHeight() {
    return parseFloat(getComputedStyle(grid).getPropertyValue("--row")) || 30;
  }

  function makeRow() {
    return el("tr", { role: "row" }, ...columns.map((column) =>
      el("td", { role: "cell", class: column.kind, "data-label": column.title })));
  }

  function fillRow(node, row, index) {
    node.shown = row;
    if (index === null) node.removeAttribute("aria-rowindex");
    else node.setAttribute("aria-rowindex", index);
    columns.forEach((column, place) => fillCell(node.children[place], column, row));
  }

  function fillCell(cell, column, row) {
    const text = column.text(row);
    if (cell.said === text) return;
    cell.said = text;
    if (column.kind !== "error" && text.length > LONG) cell.tabIndex = 0; // two lines of it are shown until it has the focus
    else cell.removeAttribute("tabindex");
    if (column.nodes) cell.replaceChildren(...column.nodes(row));
    else say(cell, short(text));
  }

  function tick() {
    columns.forEach((column, place) => {
      if (column.live) for (const node of inPage.values()) fillCell(node.children[place], column, node.shown);
    });
  }

  /** What a line cuts off, for who points at it; the filter shows it to everybody. */
  function whole({ target }) {
    const cell = target.closest("td");
    const inner = cell?.firstElementChild;
    if (cell && (cell.scrollWidth > cell.clientWidth || inner?.scrollHeight > inner?.clientHeight + 1)) cell.title = cell.textContent;
    else cell?.removeAttribute("title");
  }

  function later() {
    drawing ||= requestAnimationFrame(draw);
  }

  body.addEventListener("pointerover", whole, { passive: true });
  box.addEventListener("scroll", () => order.length > WHOLE && later(), { passive: true });
  new ResizeObserver(() => order.length > WHOLE && later()).observe(box);
  everySecond(tick);
  return { nodes: [none, box], show, rows: () => rows };
}
