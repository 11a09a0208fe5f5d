// Who led what in the last hour, as bars; and the same as a list.

import { el, foreign, say, short, svg } from "./dom.js";
import { keys } from "./keys.js";
import { on } from "./stream.js";
import { atMinute, atSecond, everySecond, now, nowWord } from "./time.js";

const SHOWN = 3600;
const LEAST = 60; // of a worker that has just started
const TICKS = [10, 30, 60, 120, 300, 600, 1200];
const BAR = 16; // pixels, as all that follow
const GAP = 4;
const AXIS = 18;
const MOST_ROWS = 40;
const MOST_LANES = 4;
const MOST_KEYS = 24;
const HANDOVER = 45; // a leader that went is seen to be gone a little later than its successor is seen
const CHAR = 6.4;

export function timeline(section) {
  const drawing = svg("svg", { role: "img", "aria-label": "Timeline of leaders; the same as a list below" });
  const none = el("p", { class: "muted" }, "Nobody has led anything yet.");
  const legend = el("ul", { class: "legend", "aria-label": "Workers in the timeline" });
  const list = el("ul");
  const details = el("details", {}, el("summary", {}, "As a list"), list);
  const note = el("p", { class: "muted", hidden: true });
  section.append(none, legend, el("div", { class: "strip" }, drawing), note, details);
  const keyOf = keys();
  let spans = [];
  let here = new Set();
  let since = 0;
  let drawnAt = 0;

  function draw() {
    drawnAt = now();
    const rows = rowsOf(spans.filter((span) => (span.to_ts ?? drawnAt) > drawnAt - SHOWN));
    none.hidden = rows.length > 0;
    drawing.parentNode.hidden = legend.hidden = details.hidden = rows.length === 0;
    note.hidden = rows.length <= MOST_ROWS;
    say(note, note.hidden ? "" : `and ${rows.length - MOST_ROWS} more`);
    const drawn = chosen(rows, here);
    const known = keyOf(drawn.flatMap((row) => row.lanes.flat()).map((span) => span.worker));
    explain(legend, known);
    paint(drawing, drawn, known, since, drawnAt);
    if (details.open) tell();
  }

  function tell() {
    list.replaceChildren(...spans.map((span) => el("li", {}, foreign(span.name), ": ", foreign(span.worker),
      ` ${period(span)}`)));
  }

  on("supervisor", (data) => { here = new Set((data.workers ?? []).map((worker) => worker.name)); });
  on("history", (data) => {
    spans = data.spans;
    since = data.since_ts;
    draw();
  });
  on("connection", draw);
  details.addEventListener("toggle", () => details.open && tell());
  new ResizeObserver(draw).observe(section);
  everySecond(() => now() - drawnAt >= 10 && draw());
}

const period = (span) => `${atSecond(span.from_ts)}–${span.to_ts === null ? nowWord() : atSecond(span.to_ts)}`;

/** As many rows as are drawn, in order: what runs here or was led by several first, then some of each worker's. */
function chosen(rows, here) {
  const places = new Map();
  const ranked = rows.map((row, index) => {
    const workers = new Set(row.lanes.flat().map((span) => span.worker));
    if (here.has(row.name) || workers.size > 1) return { row, index, rank: 0 };
    const [worker] = workers;
    places.set(worker, (places.get(worker) ?? 0) + 1);
    return { row, index, rank: places.get(worker) };
  });
  const first = ranked.sort((a, b) => a.rank - b.rank || a.index - b.index).slice(0, MOST_ROWS);
  return first.sort((a, b) => a.index - b.index).map(({ row }) => row);
}

/** The names in order, each with the spans in lanes that do not overlap. */
function rowsOf(spans) {
  const rows = new Map();
  for (const span of spans) {
    if (!rows.has(span.name)) rows.set(span.name, { name: span.name, lanes: [], hidden: 0 });
    const row = rows.get(span.name);
    const lane = row.lanes.find((lane) => lane.at(-1).to_ts !== null && lane.at(-1).to_ts - span.from_ts < HANDOVER);
    if (lane) lane.push(span);
    else if (row.lanes.length < MOST_LANES) row.lanes.push([span]);
    else row.hidden += 1;
  }
  return [...rows.values()];
}

/** Which letter and which color on a bar is which worker. */
function explain(legend, known) {
  const shown = [...known].slice(0, MOST_KEYS);
  legend.replaceChildren(...shown.map(([worker, { letter, color }]) =>
    el("li", {}, el("span", { class: `swatch c${color}` }, letter), foreign(worker, 60))),
  ...(known.size > shown.length ? [el("li", { class: "muted" }, `and ${known.size - shown.length} more`)] : []));
}

function paint(drawing, rows, known, since, until) {
  const width = Math.max(280, drawing.parentNode.clientWidth);
  const gutter = Math.min(170, width * 0.3);
  const shown = Math.min(SHOWN, Math.max(LEAST, until - since));
  const tick = TICKS.find((seconds) => (shown / seconds) * 9 * CHAR <= width - gutter) ?? TICKS.at(-1);
  const at = tick < 60 ? atSecond : atMinute;
  const x = (ts) => gutter + (Math.max(0, ts - until + shown) / shown) * (width - gutter);
  const under = [];
  const parts = [];
  let y = 2;
  for (const row of rows) {
    row.lanes.forEach((lane, index) => {
      const more = index + 1 === row.lanes.length && row.hidden ? ` +${row.hidden}` : "";
      const label = short(row.name, Math.floor(gutter / CHAR) - 1 - more.length) + more;
      parts.push(svg("text", { x: 0, y: y + 12, class: index ? "label again" : "label" }, svg("title", {}, short(row.name)), label));
      under.push(svg("rect", { x: x(since), y, width: width - x(since), height: BAR, class: "free" }));
      lane.forEach((span, place) => {
        const next = lane[place + 1] ? x(lane[place + 1].from_ts) : width;
        parts.push(...bar(span, known.get(span.worker), x(span.from_ts), x(span.to_ts ?? until), next, y));
      });
      y += BAR + 2;
    });
    y += GAP;
  }
  for (let ts = Math.ceil((until - shown) / tick) * tick; ts < until; ts += tick) {
    under.push(svg("line", { x1: x(ts), x2: x(ts), y1: 0, y2: y, class: "tick" }));
    if (x(ts) > gutter + 4 * CHAR && x(ts) < width - 8 * CHAR) parts.push(svg("text", { x: x(ts), y: y + 12, class: "axis" }, at(ts)));
  }
  parts.push(svg("text", { x: width, y: y + 12, class: "axis end" }, nowWord().split(",")[0]));
  drawing.setAttribute("width", width);
  drawing.setAttribute("height", y + AXIS);
  drawing.replaceChildren(...under, ...parts);
}

/** A bar with the name on it; where that has no room with the letter, or with the letter behind it. */
function bar(span, { letter, color }, from, to, next, y) {
  const width = Math.max(3, Math.min(to, next) - from);
  const title = svg("title", {}, `${short(span.worker)}, ${period(span)}`);
  const shape = svg("rect", { x: from, y, width, height: BAR, rx: 2, class: `bar c${color}` }, title);
  const text = (label, at) => svg("text", { x: at, y: y + 12, class: "who" }, label);
  const needs = (label) => label.length * CHAR + 6;
  const name = short(span.worker);
  if (needs(name) <= width) return [shape, text(name, from + 4)];
  if (needs(letter) <= width) return [shape, text(letter, from + 3)];
  return needs(letter) <= next - from - width ? [shape, text(letter, from + width + 2)] : [shape];
}
