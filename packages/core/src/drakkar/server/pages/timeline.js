// Who led what in the last hour, as bars; and the same as a list.

import { el, foreign, say, short, svg } from "./dom.js";
import { on } from "./stream.js";
import { atMinute, everySecond, now } from "./time.js";

const SHOWN = 3600;
const LEAST = 600; // of a worker that has just started
const BAR = 16; // pixels, as all that follow
const GAP = 4;
const AXIS = 18;
const MOST_ROWS = 40;
const MOST_LANES = 4;
const HANDOVER = 45; // a leader that went is seen to be gone a little later than its successor is seen
const CHAR = 6.4;
const COLORS = 8;

export function timeline(section) {
  const drawing = svg("svg", { role: "img", "aria-label": "Timeline of leaders; the same as a list below" });
  const none = el("p", { class: "muted" }, "Nobody has led anything yet.");
  const list = el("ul");
  const details = el("details", {}, el("summary", {}, "As a list"), list);
  const note = el("p", { class: "muted", hidden: true });
  section.append(none, el("div", { class: "strip" }, drawing), note, details);
  let spans = [];
  let since = 0;
  let drawnAt = 0;

  function draw() {
    drawnAt = now();
    const rows = rowsOf(spans.filter((span) => (span.to_ts ?? drawnAt) > drawnAt - SHOWN));
    none.hidden = rows.length > 0;
    drawing.parentNode.hidden = details.hidden = rows.length === 0;
    note.hidden = rows.length <= MOST_ROWS;
    say(note, note.hidden ? "" : `and ${rows.length - MOST_ROWS} more`);
    paint(drawing, rows.slice(0, MOST_ROWS), since, drawnAt);
    if (details.open) tell();
  }

  function tell() {
    list.replaceChildren(...spans.map((span) => el("li", {}, foreign(span.name), ": ", foreign(span.worker),
      ` ${atMinute(span.from_ts)}–${span.to_ts === null ? "now" : atMinute(span.to_ts)}`)));
  }

  on("history", (data) => {
    spans = data.spans;
    since = data.since_ts;
    draw();
  });
  details.addEventListener("toggle", () => details.open && tell());
  new ResizeObserver(draw).observe(section);
  everySecond(() => now() - drawnAt >= 10 && draw());
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

function paint(drawing, rows, since, until) {
  const width = Math.max(280, drawing.parentNode.clientWidth);
  const gutter = Math.min(170, width * 0.3);
  const shown = Math.min(SHOWN, Math.max(LEAST, until - since));
  const tick = [120, 300, 600].find((seconds) => shown / seconds <= 6) ?? 600;
  const x = (ts) => gutter + (Math.max(0, ts - until + shown) / shown) * (width - gutter);
  const under = [];
  const parts = [];
  let y = 2;
  for (const row of rows) {
    const label = short(row.name, Math.floor(gutter / CHAR) - (row.hidden ? 5 : 1)) + (row.hidden ? ` +${row.hidden}` : "");
    parts.push(svg("text", { x: 0, y: y + 12, class: "label" }, svg("title", {}, short(row.name)), label));
    for (const lane of row.lanes) {
      under.push(svg("rect", { x: x(since), y, width: width - x(since), height: BAR, class: "free" }));
      for (const span of lane) parts.push(...bar(span, x(span.from_ts), x(span.to_ts ?? until), y));
      y += BAR + 2;
    }
    y += GAP;
  }
  for (let ts = Math.ceil((until - shown) / tick) * tick; ts < until; ts += tick) {
    under.push(svg("line", { x1: x(ts), x2: x(ts), y1: 0, y2: y, class: "tick" }));
    if (x(ts) > gutter + 14 && x(ts) < width - 44) parts.push(svg("text", { x: x(ts), y: y + 12, class: "axis" }, atMinute(ts)));
  }
  parts.push(svg("text", { x: width, y: y + 12, class: "axis end" }, "now"));
  drawing.setAttribute("width", width);
  drawing.setAttribute("height", y + AXIS);
  drawing.replaceChildren(...under, ...parts);
}

function bar(span, from, to, y) {
  const width = Math.max(3, to - from);
  const room = Math.floor((width - 8) / CHAR);
  const end = span.to_ts === null ? "now" : atMinute(span.to_ts);
  const title = svg("title", {}, `${short(span.worker)}, ${atMinute(span.from_ts)}–${end}`);
  const shape = svg("rect", { x: from, y, width, height: BAR, rx: 2, class: `bar c${colorOf(span.worker)}` }, title);
  if (room < 3) return [shape];
  return [shape, svg("text", { x: from + 4, y: y + 12, class: "who" }, short(span.worker, room - 1))];
}

/** The same worker has the same color everywhere; what it means is written on the bar. */
function colorOf(worker) {
  let hash = 2166136261;
  for (const char of worker) hash = Math.imul(hash ^ char.codePointAt(0), 16777619);
  return (hash >>> 0) % COLORS;
}
