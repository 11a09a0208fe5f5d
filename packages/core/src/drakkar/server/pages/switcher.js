// "Go to worker": a combobox with a list, after the pattern of the ARIA practices. It goes to the same page there.

import { el, foreign, seen, short, webAddress } from "./dom.js";
import { on } from "./stream.js";

const MOST = 50;
const WORDS = { true: "online", false: "offline", null: "unknown" };

export function switcher(page) {
  const list = el("ul", { id: "switch-list", role: "listbox", "aria-label": "Workers", hidden: true });
  const input = el("input", {
    id: "switch", role: "combobox", autocomplete: "off", spellcheck: "false", placeholder: "Go to worker …",
    "aria-label": "Go to worker", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "switch-list",
  });
  let workers = [];
  let found = [];
  let active = -1;

  function isOpen() {
    return !list.hidden;
  }

  function show() {
    const wanted = seen(input.value.trim()).toLowerCase();
    const fitting = workers.filter((worker) => worker.key.includes(wanted));
    const exact = fitting.filter((worker) => worker.key === wanted);
    found = [...new Set([...exact, ...fitting])].slice(0, MOST);
    list.replaceChildren(...found.map((worker, index) => el("li", {
      id: `switch-${index}`, role: "option", "aria-selected": "false", "aria-disabled": worker.address ? null : "true",
      onmousedown: (event) => event.preventDefault(), onclick: () => go(worker),
    }, foreign(worker.worker_name), el("span", { class: "muted" }, about(worker)))));
    if (!found.length) note(workers.length ? "No such worker" : "Waiting for the list …");
    if (found.length < fitting.length) note(`and ${fitting.length - found.length} more`);
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    choose(wanted && found.length ? 0 : -1);
  }

  function note(text) {
    list.append(el("li", { role: "option", "aria-disabled": "true", "aria-selected": "false", class: "muted" }, text));
  }

  function about(worker) {
    const state = worker.is_current ? "this one" : WORDS[worker.online];
    return [state, worker.address ? "" : "no address to go to", short(worker.cluster, 40)].filter(Boolean).join(" · ");
  }

  function hide() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    choose(-1);
  }

  function choose(index) {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = index;
    const option = index < 0 ? null : list.children[index];
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) input.setAttribute("aria-activedescendant", option.id);
    else input.removeAttribute("aria-activedescendant");
  }

  function go(worker) {
    if (!worker.address) return; // its line says so
    const base = worker.address.replace(/[?#].*$/, "").replace(/\/*$/, "/");
    location.assign(base + (page === "live" ? "" : page) + location.search + location.hash);
  }

  const keys = {
    ArrowDown: () => (isOpen() ? found.length && choose((active + 1) % found.length) : show()),
    ArrowUp: () => (isOpen() ? found.length && choose((active + found.length - (active < 0 ? 0 : 1)) % found.length) : show()),
    Enter: () => found[active] && isOpen() && go(found[active]),
    Escape: () => {
      input.value = "";
      hide();
    },
  };
  input.addEventListener("keydown", (event) => {
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  input.addEventListener("input", show);
  input.addEventListener("click", () => isOpen() || show());
  input.addEventListener("blur", hide);
  on("workers", ({ rows }) => {
    workers = rows.map((row) => ({ ...row, key: seen(row.worker_name).toLowerCase(), address: webAddress(row.url) }));
    if (!isOpen()) return;
    const name = found[active]?.worker_name;
    show();
    if (name !== undefined) choose(found.findIndex((worker) => worker.worker_name === name));
  });
  return el("div", { class: "switcher" }, input, list);
}
