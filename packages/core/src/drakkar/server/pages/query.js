// Filters and sorting, kept in the address, so that a view can be shared and comes back with the page.

const query = new URLSearchParams(location.search);

export const read = (name) => query.get(name) ?? "";

export function write(name, value) {
  if (value) query.set(name, value);
  else query.delete(name);
  const text = query.toString();
  history.replaceState(null, "", (text ? `?${text}` : location.pathname) + location.hash);
}
