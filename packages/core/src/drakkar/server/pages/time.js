// The time of day of the worker that answers, and durations. Ages count on by themselves once a second.

let ahead = null; // of our own steady clock, in seconds

const steady = () => performance.now() / 1000;

/** Note what the worker's clock showed when it spoke. A message may be late, never early. */
export function sync(nowTs) {
  const found = nowTs - steady();
  if (ahead === null || found > ahead || found < ahead - 5) ahead = found;
}

const running = () => (ahead === null ? Date.now() / 1000 : steady() + ahead);
let held = null;

/** Let the time stand at what it was then (milliseconds of the browser's clock), until told null: what is shown is of
    then, and must not look as if it went on. */
export function hold(thenMs) {
  held = thenMs === null ? null : held ?? running() - (Date.now() - thenMs) / 1000;
}

/** Epoch seconds on the worker's clock; while the connection is lost, those of when it was lost. */
export const now = () => held ?? running();

/** What the end of what goes on is called. */
export const nowWord = () => (held === null ? "now" : `${atSecond(held)}, when last heard of`);

const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

/** A duration for people: "41 s", "3 min", "2 h", "5 d"; empty for one that is unknown. */
export function duration(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return "";
  const whole = Math.max(0, Math.round(seconds));
  for (const [unit, length] of UNITS) if (whole >= 2 * length) return `${Math.floor(whole / length)} ${unit}`;
  return `${whole} s`;
}

export const ago = (ts) => (typeof ts === "number" ? duration(now() - ts) : "");

const clockTime = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const clockSeconds = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});

export const atMinute = (ts) => clockTime.format(new Date(ts * 1000));
export const atSecond = (ts) => clockSeconds.format(new Date(ts * 1000));

/** Call `work` once a second while the page can be seen. */
export function everySecond(work) {
  setInterval(() => document.hidden || work(), 1000);
  document.addEventListener("visibilitychange", () => document.hidden || work());
}
