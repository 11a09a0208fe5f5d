// The one stream of a page. When it breaks it is opened again, later and later, from the last message on.

import { hold, sync } from "./time.js";

const PARTS = ["workers", "seen", "registry", "supervisor", "history", "leases"];
const SILENT_MS = 15000; // a beat comes every five seconds
const LONGEST_WAIT_MS = 15000;
const HIDDEN_MS = 30000;

const listeners = new Map();
let source = null;
let last = "";
let version = null;
let failures = 0;
let heardAt = Date.now();
let lostAt = null;
let retryAt = null;
let watchdog = 0;
let retry = 0;

/** Call `work` with the data of each message about `part`. */
export function on(part, work) {
  listeners.set(part, [...(listeners.get(part) ?? []), work]);
}

/** Since when nothing was heard, and when it is tried again (milliseconds, null); or null while there is one. */
export const lost = () => (lostAt === null ? null : { since: lostAt, retryAt });

export function open() {
  close();
  retryAt = null;
  source = new EventSource(last ? `api/v1/events?after=${encodeURIComponent(last)}` : "api/v1/events");
  source.addEventListener("hello", ({ data }) => greet(JSON.parse(data)));
  source.addEventListener("beat", ({ data }) => heard(() => sync(JSON.parse(data).now_ts)));
  for (const part of PARTS) {
    source.addEventListener(part, (message) => heard(() => {
      last = message.lastEventId;
      tell(part, JSON.parse(message.data));
    }));
  }
  source.addEventListener("error", broken);
  listen();
}

function greet(hello) {
  if (version !== null && version !== hello.version) location.reload(); // these files are of another release
  version = hello.version;
  failures = 0;
  lostAt = null;
  heardAt = Date.now();
  hold(null);
  sync(hello.now_ts);
  tell("hello", hello);
  tell("connection", null);
  listen();
}

function heard(work) {
  heardAt = Date.now();
  listen();
  work();
}

function listen() {
  clearTimeout(watchdog);
  watchdog = setTimeout(broken, SILENT_MS);
}

function close() {
  clearTimeout(watchdog);
  clearTimeout(retry);
  source?.close();
  source = null;
}

function broken() {
  close();
  lostAt ??= heardAt;
  hold(lostAt);
  const wait = Math.min(LONGEST_WAIT_MS, 500 * 2 ** failures) * (0.5 + Math.random() / 2);
  failures += 1;
  retryAt = Date.now() + wait;
  retry = setTimeout(again, wait);
  tell("connection", null);
}

/** Try at once what would be tried a little later. */
export async function again() {
  clearTimeout(retry);
  retryAt = null;
  // A stream that is refused does not say why; this does.
  const answer = await fetch("api/v1/identity", { signal: AbortSignal.timeout(SILENT_MS) }).catch(() => null);
  if (lostAt === null) return; // another try was quicker
  if (answer?.status === 401) location.reload(); // to the login, and back here after it
  else if (answer?.ok) open();
  else broken();
}

function tell(part, data) {
  for (const work of listeners.get(part) ?? []) work(data);
}

// A page that nobody looks at costs the worker nothing.
let hiding = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(close, HIDDEN_MS);
  else if (source === null && lostAt === null) open();
  else if (source === null) again();
});
