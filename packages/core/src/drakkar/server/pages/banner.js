// The line that tells that the connection is lost, since when, and when it is tried again.

import { el, say } from "./dom.js";
import { again, lost, on } from "./stream.js";
import { atSecond, duration, everySecond } from "./time.js";

export function banner() {
  const what = el("span", { role: "status" });
  const when = el("span", { "aria-hidden": "true" });
  const now = el("button", { type: "button", class: "quiet", onclick: again }, "Try now");
  const node = el("p", { id: "connection", hidden: true }, what, " ", when, " ", now);
  const show = () => {
    const state = lost();
    node.hidden = state === null;
    document.querySelector("main").classList.toggle("stale", state !== null);
    say(what, state === null ? "" : `Connection lost since ${atSecond(state.since / 1000)}. What is shown is from then.`);
    const wait = state?.retryAt ? Math.max(0, state.retryAt - Date.now()) / 1000 : 0;
    say(when, state === null ? "" : wait > 0 ? `Trying again in ${duration(Math.ceil(wait))}.` : "Trying again …");
  };
  on("connection", show);
  everySecond(show);
  return node;
}
