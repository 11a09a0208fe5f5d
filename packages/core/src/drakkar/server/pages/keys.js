// A letter and a color for each worker of a drawing, so that one is told from another where its name has no room.

const COLORS = 8;

/** A function from the workers that are drawn to their keys, in the order of the letters. A worker keeps its own for as
    long as it is drawn; what it gives back, the next one takes. */
export function keys() {
  let known = new Map();
  return (workers) => {
    const drawn = new Set(workers);
    const kept = new Map([...known].filter(([worker]) => drawn.has(worker)));
    const taken = new Set([...kept.values()].map(({ index }) => index));
    let index = 0;
    for (const worker of [...drawn].sort()) {
      if (kept.has(worker)) continue;
      while (taken.has(index)) index += 1;
      taken.add(index);
      kept.set(worker, { index, letter: letterOf(index), color: index % COLORS });
    }
    known = new Map([...kept].sort(([, a], [, b]) => a.index - b.index));
    return known;
  };
}

/** A to Z, then AA, AB and so on. */
function letterOf(index) {
  return (index < 26 ? "" : letterOf(Math.floor(index / 26) - 1)) + String.fromCharCode(65 + (index % 26));
}
