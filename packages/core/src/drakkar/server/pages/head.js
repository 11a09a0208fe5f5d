// What all pages begin with: whose page it is, the other pages, the switch to another worker.

import { banner } from "./banner.js";
import { el, foreign, short } from "./dom.js";
import { on, open } from "./stream.js";
import { switcher } from "./switcher.js";

const PAGES = [["live", "./", "Live"], ["history", "history", "History"]];

/** The other page has the same filters. */
const keep = ({ currentTarget: link }) => { link.search = location.search; };

export function head(current) {
  const own = el("span", { class: "own" });
  const logout = el("form", { method: "post", action: "logout", hidden: true },
    el("button", { type: "submit", class: "quiet" }, "Log out"));
  const links = PAGES.map(([name, href, title]) =>
    el("a", { href, "aria-current": name === current ? "page" : null, onclick: keep }, title));
  document.getElementById("head").append(
    el("strong", { class: "brand" }, "Drakkar"), own,
    el("nav", { "aria-label": "Pages" }, ...links), switcher(current), logout);
  document.getElementById("head").after(banner());
  on("hello", (hello) => {
    own.replaceChildren(foreign(hello.worker, 60));
    document.title = `${short(hello.worker)} · ${current === "live" ? "" : "History · "}Drakkar`;
    logout.hidden = !hello.login;
  });
  open();
}
