// A field that narrows a table, kept in the address.

import { el, seen } from "./dom.js";
import { read, write } from "./query.js";

/** A field to type into; `changed` is called after every change. */
export function textFilter(name, label, changed) {
  const input = el("input", { type: "search", id: `filter-${name}`, autocomplete: "off", spellcheck: "false" });
  input.value = read(name);
  input.addEventListener("input", () => {
    write(name, input.value.trim());
    changed();
  });
  return { node: el("label", {}, label, " ", input), value: () => seen(input.value.trim()).toLowerCase() };
}

/** A choice; `groups` are lists of values under a title. */
export function choiceFilter(name, label, groups, changed) {
  const select = el("select", { id: `filter-${name}` }, el("option", { value: "" }, "all"),
    ...Object.entries(groups).map(([title, values]) =>
      el("optgroup", { label: title }, ...values.map((value) => el("option", { value }, value)))));
  select.value = read(name);
  if (select.selectedIndex < 0) {
    select.value = "";
    write(name, ""); // there is no such choice
  }
  select.addEventListener("change", () => {
    write(name, select.value);
    changed();
  });
  return { node: el("label", {}, label, " ", select), value: () => select.value };
}

/** How many of all are shown: "1 worker", "3 of 8 workers". */
export function counted(shown, all, what) {
  return `${shown === all ? "" : `${shown} of `}${all} ${what}${all === 1 ? "" : "s"}`;
}
