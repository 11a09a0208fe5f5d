// Who holds which lease, read from the store every few seconds.

import { el, foreign, say, seen } from "./dom.js";
import { counted, textFilter } from "./filter.js";
import { on } from "./stream.js";
import { table } from "./table.js";
import { atSecond, duration, now } from "./time.js";

let takenAt = 0;

const age = (row) => (row.age_seconds === null ? null : row.age_seconds + now() - takenAt);
const left = (row) => (row.remaining_seconds === null ? null : Math.max(0, row.remaining_seconds - (now() - takenAt)));

/** Tokens are texts, since they may be too long for a number: by length, then by digits. */
const tokenOrder = (row) => (row.token === null ? null : row.token.padStart(24, "0"));

const COLUMNS = [
  { name: "name", title: "Lease", kind: "name", text: (row) => row.name, nodes: (row) => [foreign(row.name)] },
  { name: "holder", title: "Holder", text: (row) => row.worker ?? "", value: (row) => row.worker, nodes: (row) => [foreign(row.worker)] },
  { name: "token", title: "Token", kind: "number", text: (row) => row.token ?? "", value: tokenOrder },
  { name: "age", title: "Age", kind: "number", live: true, text: (row) => duration(age(row)), value: age },
  { name: "left", title: "Time left", kind: "number", live: true, text: (row) => duration(left(row)), value: left },
];

export function leases(section) {
  const filter = textFilter("lease", "Lease or holder", () => refresh());
  const count = el("span", { class: "muted", role: "status" });
  const problem = el("p", { class: "problem", role: "status", hidden: true });
  const shown = table({ name: "leases", label: "Leases", columns: COLUMNS, keyOf: (row) => row.name, empty: "" });
  const filters = el("div", { class: "filters" }, filter.node, count);
  const old = el("p", { class: "muted", role: "status", hidden: true });
  section.append(problem, old, filters, ...shown.nodes);
  let data = null;

  function refresh() {
    const rows = data?.leases ?? [];
    const wanted = filter.value();
    const fitting = rows.filter((row) => `${seen(row.name)}\n${seen(row.worker ?? "")}`.toLowerCase().includes(wanted));
    filters.hidden = rows.length === 0;
    shown.show(fitting, rows.length ? "No lease fits the filter." : empty());
    say(count, counted(fitting.length, rows.length, "lease"));
  }

  function empty() {
    if (data === null) return "Waiting for the store …";
    if (data.provider === undefined) return "This worker runs no background workers, and reads no leases.";
    return data.leases === null ? "" : "Nobody holds a lease.";
  }

  on("connection", () => {
    old.hidden = !data?.leases;
    say(old, old.hidden ? "" : `This list is from ${atSecond(takenAt)} and was not read again yet.`);
  });
  on("leases", (newData) => {
    data = newData;
    old.hidden = true;
    say(old, "");
    takenAt = data.at_ts ?? 0;
    problem.hidden = !data.error;
    problem.replaceChildren(...(data.error ? ["⚠ The store cannot be read", data.leases === null ? ": " : `, so this list is from ${atSecond(takenAt - data.age_seconds)}: `, foreign(data.error, 500)] : []));
    refresh();
  });
  refresh();
}
