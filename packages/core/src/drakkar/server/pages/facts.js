// The line of facts on top: how many, and whether what is shown can be trusted.

import { el, foreign } from "./dom.js";
import { on } from "./stream.js";
import { ago, everySecond } from "./time.js";

const OPERATIONS = { publish: "its own card cannot be published", list: "the list cannot be read", start: "the provider could not start" };

export function facts(list) {
  const workers = fact(list, "Workers");
  const registry = fact(list, "Registry");
  const leaseStore = fact(list, "Leases");
  let health = null;

  on("workers", ({ rows }) => {
    const count = (online) => rows.filter((row) => row.online === online).length;
    const parts = [[count(true), "online"], [count(false), "offline"], [count(null), "unknown"]];
    workers.replaceChildren(parts.filter(([number], index) => number || !index).map(([number, word]) => `${number} ${word}`).join(", "));
  });
  let held = null;

  on("leases", (data) => {
    held = data.leases;
    leaseStore.classList.toggle("trouble", Boolean(data.error));
    if (data.provider === undefined) leaseStore.replaceChildren("none here");
    else leaseStore.replaceChildren(foreign(data.provider), data.error ? ", ⚠ cannot be read" : `, ${held.length} held`);
  });
  on("connection", () => {
    if (held !== null) leaseStore.append(", not read again yet");
    held = null; // said once is enough
  });
  on("registry", (data) => {
    health = data.registry;
    showRegistry();
  });
  everySecond(showRegistry);

  function showRegistry() {
    if (health === null) {
      registry.replaceChildren("none");
      return;
    }
    const failing = Object.entries(health.failing);
    registry.classList.toggle("trouble", failing.length > 0);
    registry.replaceChildren(foreign(health.provider), `, list ${ago(health.snapshot_ts)} old`,
      ...failing.flatMap(([operation, { since_ts: since, error }]) =>
        [el("br"), `⚠ ${OPERATIONS[operation] ?? operation} since ${ago(since)}`, error ? ": " : "", foreign(error ?? "", 300)]));
  }
}

function fact(list, title) {
  const value = el("dd", {}, "…");
  list.append(el("div", {}, el("dt", {}, title), value));
  return value;
}
