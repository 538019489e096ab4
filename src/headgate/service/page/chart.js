/** The lag of each table over up to 15 minutes: kept in this tab, also when it is loaded again, and drawn as a line. */

import { svg } from "./dom.js";
import { duration } from "./words.js";

const LONGEST = 15 * 60;
const SHORTEST = 60;
/** Seconds without a look after which the line is interrupted. */
const GAP = 30;
const WIDTH = 200;
const HEIGHT = 40;

export class Lags {
  constructor(name, storage = sessionStorage) {
    this.key = `headgate.lags.${name}`;
    this.storage = storage;
    try {
      this.points = new Map(JSON.parse(storage.getItem(this.key) ?? "[]"));
    } catch {
      this.points = new Map();
    }
  }

  /** Takes in one status; tables that are gone are forgotten. */
  add(status) {
    const at = Date.parse(status.at) / 1000;
    this.now = at;
    this.points = new Map(
      status.tables.map(({ name, lag }) => {
        const before = (this.points.get(name) ?? []).filter(([then]) => then > at - LONGEST && then < at);
        return [name, lag === null ? before : [...before, [at, lag]]];
      }),
    );
  }

  of(table) {
    return this.points.get(table) ?? [];
  }

  /** Seconds that the charts show: as long as this tab has looked, within limits. */
  get span() {
    const first = Math.min(this.now, ...[...this.points.values()].flatMap((points) => points.slice(0, 1)).map(([at]) => at));
    return Math.min(LONGEST, Math.max(SHORTEST, this.now - first));
  }

  save() {
    this.storage.setItem(this.key, JSON.stringify([...this.points]));
  }
}

/** A line that ends now, with the bound as a dashed one. */
export function chart(table, lagsOfAll, bound) {
  const { now, span } = lagsOfAll;
  const points = lagsOfAll.of(table);
  const lags = points.map(([, lag]) => lag);
  const top = Math.max(1, (bound ?? 0) * 1.25, ...lags) * 1.05;
  const x = (at) => (WIDTH * (1 - (now - at) / span)).toFixed(1);
  const y = (lag) => (HEIGHT - 1 - (HEIGHT - 2) * (lag / top)).toFixed(1);
  const path = points.map(([at, lag], index) => {
    const begins = index === 0 || at - points[index - 1][0] > GAP;
    return `${begins ? "M" : "L"}${x(at)} ${y(lag)}`;
  });
  return svg(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
    svg("title", {}, describe(table, lags, span, bound)),
    bound ? svg("path", { class: "bound", d: `M0 ${y(bound)}H${WIDTH}` }) : null,
    // Without a second point there is no line: the caps make a dot of it.
    path.length ? svg("path", { class: "line", d: path.length === 1 ? `${path[0]}h0` : path.join("") }) : null,
  );
}

function describe(table, lags, span, bound) {
  const allowed = bound ? `; bound ${duration(bound)}` : "";
  if (!lags.length) return `${table}: no lag known yet${allowed}`;
  const [least, most] = [Math.min(...lags), Math.max(...lags)].map(duration);
  return `Lag of ${table} in the last ${duration(span)}: from ${least} to ${most}, now ${duration(lags.at(-1))}${allowed}`;
}
