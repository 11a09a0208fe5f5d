// Every worker of the fleet.

import { el, foreign, say, seen, short, webAddress } from "./dom.js";
import { choiceFilter, counted, textFilter } from "./filter.js";
import { on } from "./stream.js";
import { table } from "./table.js";
import { ago } from "./time.js";

const MOST_CHIPS = 12;
export const LIVENESS = { true: "online", false: "offline", null: "unknown" };
const SIGNS = { online: "●", offline: "○", unknown: "?" };

const liveness = (row) => LIVENESS[row.online];
const since = (row) => (row.is_current ? "this worker" : row.seen === null ? "" : `${ago(row.seen)} ago`);
const leads = (row) => row.leader_for ?? [];

/** Without what stands before an `@`: it may be a password. */
const shownAddress = (row) => row.url.replace(/^([^/?#]*\/\/)[^/?#]*@/, "$1***@");

function chips(row) {
  const led = row.online === false; // its card is what it last said
  const names = leads(row).slice(0, MOST_CHIPS);
  const rest = leads(row).length - names.length;
  const shown = names.map((name) => el("span", { class: led ? "chip past" : "chip", title: short(name) },
    led ? "led " : null, foreign(name, 60)));
  return rest > 0 ? [...shown, el("span", { class: "muted" }, `and ${rest} more`)] : shown;
}

const COLUMNS = [
  {
    name: "name", title: "Worker", kind: "name",
    value: (row) => row.worker_name,
    text: (row) => `${row.worker_name}\n${row.url}`,
    nodes: (row) => {
      const href = webAddress(row.url);
      const name = foreign(row.worker_name);
      return [href ? el("a", { href, rel: "noreferrer" }, name) : name];
    },
  },
  { name: "cluster", title: "Cluster", text: (row) => row.cluster, value: (row) => row.cluster || null, nodes: (row) => [foreign(row.cluster)] },
  { name: "state", title: "State", kind: "state", text: (row) => row.state ?? "", nodes: (row) => [foreign(row.state)] },
  {
    name: "liveness", title: "Liveness", kind: "liveness", text: liveness,
    value: (row) => ["offline", "unknown", "online"].indexOf(liveness(row)),
    nodes: (row) => [el("span", { class: liveness(row) }, el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[liveness(row)]), liveness(row))],
  },
  {
    name: "seen", title: "Last seen", kind: "number", live: true, text: since,
    value: (row) => (row.is_current ? 0 : row.seen === null ? null : -row.seen),
  },
  { name: "version", title: "Version", kind: "version", text: (row) => row.version ?? "", nodes: (row) => [foreign(row.version)] },
  {
    name: "leads", title: "Leads", kind: "chips",
    text: (row) => `${row.online}\n${leads(row).join("\n")}`,
    value: (row) => -leads(row).length,
    nodes: chips,
  },
  { name: "address", title: "Address", kind: "address", text: shownAddress, nodes: (row) => [foreign(shownAddress(row))] },
];

export function workers(section) {
  const changed = () => refresh();
  const name = textFilter("name", "Name", changed);
  const cluster = textFilter("cluster", "Cluster", changed);
  const state = choiceFilter("state", "State",
    { Liveness: Object.values(LIVENESS), State: ["starting", "running", "draining"] }, changed);
  const count = el("span", { class: "muted", role: "status" });
  const shown = table({ name: "workers", label: "Workers", columns: COLUMNS, keyOf: (row) => row.key, empty: "" });
  section.append(el("div", { class: "filters" }, name.node, cluster.node, state.node, count), ...shown.nodes);
  let rows = [];

  function refresh() {
    const [wantedName, wantedCluster, wantedState] = [name.value(), cluster.value(), state.value()];
    const fitting = rows.filter((row) =>
      row.nameSeen.includes(wantedName)
      && row.clusterSeen.includes(wantedCluster)
      && (!wantedState || wantedState === liveness(row) || wantedState === row.state));
    shown.show(fitting, rows.length ? "No worker fits the filter." : "Waiting for the list …");
    say(count, counted(fitting.length, rows.length, "worker"));
  }

  on("workers", (data) => {
    rows = data.rows;
    for (const row of rows) {
      row.key = row.is_current ? `${row.worker_name}\n` : row.worker_name;
      row.nameSeen = seen(row.worker_name).toLowerCase();
      row.clusterSeen = seen(row.cluster).toLowerCase();
      row.seen = null;
    }
  });
  on("seen", ({ last_seen_ts: seen }) => {
    rows.forEach((row, index) => { row.seen = seen[index] ?? null; });
    refresh();
  });
}
