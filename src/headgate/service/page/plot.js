/** The rows of an answer as a chart: bars by name, or lines over numbers and times. */

import { el, svg } from "./dom.js";

const WIDTH = 720;
const HEIGHT = 260;
const LEFT = 64;
const BOTTOM = 34;
const TOP = 10;
const NUMERIC = /^(tinyint|smallint|int|bigint|float|double|decimal)/;
const TIMED = /^(date|timestamp)/;
const MOST_BARS = 40;
const MOST_SERIES = 4;

/** Pure: which column is along, which ones are drawn; null when there is nothing to draw. */
export function shape(columns, rows) {
  const measures = columns.map((column, index) => ({ ...column, index })).filter(({ type }) => NUMERIC.test(type));
  const along = columns.map((column, index) => ({ ...column, index })).find(({ type }) => !NUMERIC.test(type)) ?? (measures.length > 1 ? measures[0] : null);
  const drawn = measures.filter(({ index }) => index !== along?.index).slice(0, MOST_SERIES);
  if (!rows.length || !drawn.length) return null;
  const isLine = along !== null && (TIMED.test(along.type) || NUMERIC.test(along.type));
  const found = rows.map((row, number) => ({
    label: along === null ? String(number + 1) : row[along.index] === null ? "NULL" : String(row[along.index]),
    at: along === null ? number : TIMED.test(along.type) ? Date.parse(row[along.index]) : Number(row[along.index]),
    values: drawn.map(({ index }) => (row[index] === null ? null : Number(row[index]))),
  }));
  if (!isLine) return { kind: "bars", along, drawn, points: found.slice(0, MOST_BARS) };
  const points = found.filter(({ at }) => Number.isFinite(at)).sort((one, other) => one.at - other.at);
  return points.length ? { kind: "lines", along, drawn, points } : null;
}

export function plot(columns, rows) {
  if (!rows.length) return el("p", { class: "none" }, "There are no rows to draw.");
  const found = shape(columns, rows);
  if (found === null) return el("p", { class: "none" }, "A chart needs a column of numbers.");
  const { kind, along, drawn, points } = found;
  const values = points.flatMap(({ values }) => values).filter(Number.isFinite);
  const [low, high] = range(values);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low));
  const picture = svg(
    "svg",
    { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" },
    svg("title", {}, `${drawn.map(({ name }) => name).join(", ")} by ${along?.name ?? "row"}; the table has the same figures`),
    ticks(low, high).map((tick) => [
      svg("path", { class: tick === 0 ? "zero" : "grid", d: `M${LEFT} ${y(tick)}H${WIDTH}` }),
      svg("text", { x: LEFT - 8, y: y(tick) + 4, class: "tick y" }, short(tick)),
    ]),
    kind === "bars" ? bars(points, drawn, y, low) : lines(points, drawn, y),
    labels(points, kind),
  );
  const legend = el("p", { class: "legend" }, drawn.map(({ name }, index) => el("span", { class: `series-${index}` }, name)));
  const left = rows.length > points.length ? el("small", {}, `The first ${points.length} rows are drawn.`) : null;
  return el("div", { class: "scroll plotted", tabindex: "0", role: "group", "aria-label": "Chart of the answer" }, picture, legend, left);
}

function range(values) {
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  return low === high ? [0, 1] : [low, high];
}

function ticks(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step) found.push(Math.abs(tick) < step / 1e6 ? 0 : tick);
  return found;
}

const short = (value) => new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value);

const xOf = (index, count) => LEFT + (WIDTH - LEFT) * ((index + 0.5) / count);

function bars(points, drawn, y, low) {
  const width = Math.min(60, ((WIDTH - LEFT) / points.length) * 0.8) / drawn.length;
  return points.flatMap(({ label, values }, index) =>
    values.map((value, series) => {
      if (!Number.isFinite(value)) return null;
      const [top, bottom] = [y(Math.max(value, 0)), y(Math.min(Math.max(low, 0), value) < 0 ? value : 0)];
      const x = xOf(index, points.length) + (series - drawn.length / 2) * width;
      return svg(
        "rect",
        { class: `bar series-${series}`, x: x.toFixed(1), y: top.toFixed(1), width: (width - 1).toFixed(1), height: Math.max(1, bottom - top).toFixed(1) },
        svg("title", {}, `${label}: ${drawn[series].name} ${value}`),
      );
    }),
  );
}

function lines(points, drawn, y) {
  const [first, last] = [points[0].at, points.at(-1).at];
  const x = (at) => (last === first ? (LEFT + WIDTH) / 2 : LEFT + 6 + (WIDTH - LEFT - 12) * ((at - first) / (last - first)));
  return drawn.map((_, series) => {
    const shown = points.filter(({ values }) => Number.isFinite(values[series]));
    const path = shown.map(({ at, values }, index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(values[series]).toFixed(1)}`).join("");
    return path ? svg("path", { class: `line series-${series}`, d: shown.length === 1 ? `${path}h0` : path }) : null;
  });
}

function labels(points, kind) {
  const text = (x, label, anchor) => svg("text", { x, y: HEIGHT - 12, class: `tick ${anchor}` }, label.length > 18 ? `${label.slice(0, 17)}…` : label);
  if (kind === "lines") return [text(LEFT, points[0].label, "first"), text(WIDTH, points.at(-1).label, "y")];
  const every = Math.ceil(points.length / 8);
  return points.map(({ label }, index) => (index % every ? null : text(xOf(index, points.length), label, "middle")));
}
