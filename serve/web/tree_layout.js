// Where the runs of the tree lie in the picture: pure functions of the nodes that the server reports.
//
// A run begins where its parent ends, and lies beside those with the same parent: from left to right are the positions of a
// prompt, from top to bottom its branches. All coordinates are from 0 to 1.

/** The height of retained leaves, where that of leaves in use is 1 or more; they count less for the axis, too. */
const RETAINED_HEIGHT = 0.35;
const RETAINED_WEIGHT = 0.25;

/** The part of the picture's height that leaves in use have at least, all together, as far as MOST_HEIGHT allows it. */
const IN_USE_PART = 0.6;
/** The most height of a leaf in use. Without retained leaves beside it, it has the height 1. */
const MOST_HEIGHT = 30;

/** From this number of tokens on, a stretch in which nothing begins or ends grows with the logarithm only. */
const LONG_STRETCH = 512;

/** Whether a request or a pin keeps a run in memory. */
export function is_in_use(run) {
  return run.sequences + run.pins > 0;
}

/**
 * The tree of the server's nodes, of which each comes before those below it: `runs` by id in the same order, and `trunks`,
 * those without a parent among them. A run is a node with `above` and `below`; older ones come first, so that a new one never
 * changes the order of the others.
 */
export function link_runs(nodes) {
  const runs = new Map();
  const trunks = [];
  for (const node of nodes) {
    const run = { ...node, above: runs.get(node.parent) ?? null, below: [] };
    runs.set(run.id, run);
    (run.above?.below ?? trunks).push(run);
  }
  const by_age = (a, b) => a.id - b.id;
  for (const run of runs.values()) run.below.sort(by_age);
  trunks.sort(by_age);
  return { runs, trunks };
}

/** A run and all below it, parents first. */
export function runs_below(run) {
  const found = [run];
  for (let i = 0; i < found.length; i++) found.push(...found[i].below);
  return found;
}

/** The runs in use that nothing in use continues: where requests are now. */
export function ends_below(run) {
  return runs_below(run).filter((one) => one.sequences > 0 && !one.below.some((child) => child.sequences > 0));
}

/**
 * The axis of positions. Where many runs lie above each other it is stretched, and where a single one is long it is
 * compressed; otherwise the trunk of a long prompt would leave no room for the branches, which are what one wants to see.
 */
function make_axis(runs) {
  const changes = new Map();
  const add = (position, change) => changes.set(position, (changes.get(position) ?? 0) + change);
  for (const run of runs) {
    const weight = is_in_use(run) ? 1 : RETAINED_WEIGHT;
    add(run.position, weight);
    add(run.position + run.tokens, -weight);
  }
  const positions = [...changes.keys()].sort((a, b) => a - b);
  const places = [0];
  let weight = 0;
  for (let i = 1; i < positions.length; i++) {
    weight += changes.get(positions[i - 1]);
    const length = positions[i] - positions[i - 1];
    const shown = length <= LONG_STRETCH ? length : LONG_STRETCH * (1 + Math.log(length / LONG_STRETCH) / 4);
    places.push(places[i - 1] + shown * Math.min(Math.max(weight, RETAINED_WEIGHT), 64) ** 0.75);
  }
  const whole = places.at(-1) || 1;
  return { positions, places: places.map((place) => place / whole) };
}

/** The value in `to` that belongs to one of `from`; both are sorted, and between their items the relation is linear. */
function convert(value, from, to) {
  let low = 0;
  let high = from.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= value) low = middle;
    else high = middle;
  }
  if (high <= low) return to[0] ?? 0;
  return to[low] + ((value - from[low]) / (from[high] - from[low] || 1)) * (to[high] - to[low]);
}

/** The place of a position on the axis, from 0 to 1, and the position at a place. */
export function place_of(axis, position) {
  return convert(position, axis.positions, axis.places);
}
export function position_at(axis, place) {
  return convert(place, axis.places, axis.positions);
}

/** The height of a leaf in use. */
function height_in_use(runs) {
  let in_use = 0;
  let retained = 0;
  for (const run of runs) {
    if (run.below.length > 0) continue;
    if (is_in_use(run)) in_use++;
    else retained += RETAINED_HEIGHT;
  }
  const wanted = (retained * IN_USE_PART) / (1 - IN_USE_PART) / Math.max(1, in_use);
  return Math.min(MOST_HEIGHT, Math.max(1, wanted));
}

/**
 * Lay out the tree, or the part below one run. Returns the axis, and the places by the runs' ids, each with left, right, top and
 * bottom.
 */
export function lay_out(tree, zoomed = null) {
  const shown = zoomed ? runs_below(zoomed) : [...tree.runs.values()];
  const trunks = zoomed ? [zoomed] : tree.trunks;
  const axis = make_axis(shown);
  const heights = new Map();
  const in_use = height_in_use(shown);
  for (let i = shown.length - 1; i >= 0; i--) {
    const run = shown[i];
    const height = run.below.reduce((sum, child) => sum + heights.get(child.id), 0);
    heights.set(run.id, height || (is_in_use(run) ? in_use : RETAINED_HEIGHT));
  }
  const whole = trunks.reduce((sum, run) => sum + heights.get(run.id), 0) || 1;
  const places = new Map();
  const stack = (runs, top) => {
    for (const run of runs) {
      const bottom = top + heights.get(run.id) / whole;
      places.set(run.id, { left: place_of(axis, run.position), right: place_of(axis, run.position + run.tokens), top, bottom });
      top = bottom;
    }
  };
  stack(trunks, 0);
  for (const run of shown) stack(run.below, places.get(run.id).top);
  return { axis, places };
}
