// The last leader changes and crashes of this worker.

import { el, foreign } from "./dom.js";
import { on } from "./stream.js";
import { table } from "./table.js";
import { ago, atSecond } from "./time.js";

const SIGNS = { acquired: "●", released: "○", crashed: "⚠" };
const KINDS = { acquired: "online", crashed: "trouble" };

const COLUMNS = [
  {
    name: "time", title: "Time", kind: "time", text: (row) => atSecond(row.at_ts), value: (row) => -row.at_ts,
    nodes: (row) => [el("time", { datetime: new Date(row.at_ts * 1000).toISOString() }, atSecond(row.at_ts))],
  },
  { name: "ago", title: "Ago", kind: "number", live: true, text: (row) => ago(row.at_ts), value: (row) => -row.at_ts },
  {
    name: "event", title: "Event", kind: "status", text: (row) => row.event,
    nodes: (row) => [el("span", { class: KINDS[row.event] ?? "" }, el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[row.event] ?? "·"), row.event)],
  },
  { name: "name", title: "Background worker", kind: "name", text: (row) => row.name, nodes: (row) => [foreign(row.name)] },
  { name: "shard", title: "Shard", text: (row) => (row.shard === "-" ? "" : row.shard), nodes: (row) => [foreign(row.shard === "-" ? "" : row.shard)] },
  { name: "error", title: "Error", kind: "error", text: (row) => row.error ?? "", nodes: (row) => [foreign(row.error, 1000)] },
];

export function events(section) {
  const shown = table({ name: "events", label: "Leader changes and crashes here", columns: COLUMNS, keyOf: (row) => row.number, empty: "" });
  section.append(...shown.nodes);
  shown.show([], "Waiting for the list …");
  on("history", (data) => shown.show(data.events, "Nothing has happened since this worker started."));
}
