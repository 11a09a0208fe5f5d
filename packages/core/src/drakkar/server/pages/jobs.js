// The background workers of this worker, lane by lane.

import { el, foreign, say, short } from "./dom.js";
import { on } from "./stream.js";
import { table } from "./table.js";
import { duration, now } from "./time.js";

const SIGNS = {
  leading: "●", running: "●", waiting: "○", stopping: "◐", releasing: "◐", backing_off: "⚠", stuck: "⚠", stopped: "○",
};
const KINDS = { leading: "online", running: "online", backing_off: "trouble", stuck: "trouble" };

let takenAt = 0;

const passed = () => now() - takenAt;
const words = (status) => status.replace("_", " ");

const COLUMNS = [
  { name: "name", title: "Background worker", kind: "name", text: (row) => row.name, nodes: (row) => [foreign(row.name)] },
  { name: "shard", title: "Shard", text: (row) => (row.shard === "-" ? "" : row.shard), value: (row) => (row.shard === "-" ? null : row.shard), nodes: (row) => [foreign(row.shard === "-" ? "" : row.shard)] },
  {
    name: "status", title: "Status", kind: "status", text: (row) => words(row.status),
    nodes: (row) => [el("span", { class: KINDS[row.status] ?? "" }, el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[row.status] ?? "·"), words(row.status))],
  },
  { name: "for", title: "For", kind: "number", live: true, text: (row) => duration(row.since_seconds + passed()), value: (row) => row.since_seconds },
  {
    name: "restart", title: "Restart in", kind: "number", live: true, value: (row) => row.restarts_in_seconds,
    text: (row) => (row.restarts_in_seconds === null ? "" : duration(Math.max(0, row.restarts_in_seconds - passed()))),
  },
  { name: "attempts", title: "Failures", kind: "number", text: (row) => (row.attempts ? String(row.attempts) : ""), value: (row) => -row.attempts },
  {
    name: "error", title: "Last error", kind: "error", live: true, value: (row) => row.last_error_at ?? null,
    text: (row) => (row.last_error === null ? "" : `${row.last_error}\n${errorAge(row)}`),
    nodes: (row) => (row.last_error === null ? [] : [el("span", { class: "muted" }, `${errorAge(row)} ago `), foreign(row.last_error, 300)]),
  },
];

const errorAge = (row) => duration(now() - Date.parse(row.last_error_at) / 1000);

export function jobs(section) {
  const held = el("p", { class: "muted" });
  const problem = el("p", { class: "problem", role: "status", hidden: true });
  const shown = table({
    name: "jobs", label: "Background workers here", columns: COLUMNS, keyOf: (row) => `${row.name}\n${row.shard}`, empty: "",
  });
  section.append(problem, held, ...shown.nodes);
  shown.show([], "Waiting for the list …");
  on("supervisor", (data) => {
    takenAt = data.at_ts ?? 0;
    problem.hidden = !data.problem;
    problem.replaceChildren(...(data.problem ? ["⚠ Leases: ", foreign(data.problem, 500)] : []));
    say(held, (data.workers ?? []).filter(isSplit).map(heldShards).join(" · "));
    held.hidden = !held.textContent;
    shown.show((data.workers ?? []).flatMap((worker) => worker.lanes), "This worker runs no background workers.");
  });
}

const isSplit = (worker) => worker.lanes.some((lane) => lane.shard !== "-");

function heldShards(worker) {
  const leading = worker.lanes.filter((lane) => lane.status === "leading").length;
  return `${short(worker.name)}: ${leading} of ${worker.lanes.length} shards held`;
}
