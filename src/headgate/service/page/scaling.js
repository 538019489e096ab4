/** The parts of a warehouse that is scaled: size, load and limit of each over up to 15 minutes, and what changed lately. */

import { el, svg } from "./dom.js";
import { duration, instant } from "./words.js";

const LONGEST = 15 * 60;
const SHORTEST = 60;
const WIDTH = 200;
const HEIGHT = 40;
const CHANGES = 10;

/** What was seen of each part: [at, size, load], kept as long as the page is open. */
const seen = new Map();

/** Takes in one status, and gives what there is to show of it; nothing where no part is scaled. */
export function scalingList(status) {
  if (!status.scaling) return null;
  const at = Date.parse(status.at) / 1000;
  const { parts, executors, executor_hours, changes } = status.scaling;
  const rows = Object.entries(parts).map(([name, part]) => {
    const points = [...(seen.get(name) ?? []).filter(([then]) => then > at - LONGEST && then < at), [at, part.size, part.load]];
    seen.set(name, points);
    return row(name, part, points, at);
  });
  const latest = [...changes].reverse().slice(0, CHANGES);
  return [
    el("p", {}, `${executors} ${executors === 1 ? "executor" : "executors"} at work, ${executor_hours.toFixed(2)} executor hours today.`),
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["Part", "Size", "Load", "Lately", "Why"].map((head) => el("th", {}, head)))), el("tbody", {}, rows))),
    latest.length ? el("ol", { class: "changes" }, latest.map(change)) : el("p", { class: "none" }, "No size changed yet."),
  ];
}

const share = (load) => (load === null ? "–" : `${Math.round(100 * load)} % of its limit`);

function row(name, part, points, now) {
  const set = part.fixed ? " (set by hand)" : "";
  return el(
    "tr",
    { "data-key": `part ${name}` },
    el("td", {}, name, part.is_limiting ? [" ", el("span", { class: "badge behind" }, "limits")] : null),
    el("td", {}, `${part.size} of ${part.most}${set}`),
    el("td", {}, share(part.load)),
    el("td", {}, picture(name, part, points, now)),
    el("td", {}, part.reason),
  );
}

/** The load as a line, its limit as a dashed one, the size as steps: each from nothing to the most that is shown. */
function picture(name, part, points, now) {
  const span = Math.min(LONGEST, Math.max(SHORTEST, now - points[0][0]));
  const loads = points.filter(([, , load]) => load !== null);
  const top = Math.max(1.25, ...loads.map(([, , load]) => load)) * 1.05;
  const x = (at) => (WIDTH * (1 - (now - at) / span)).toFixed(1);
  const y = (value, most) => (HEIGHT - 1 - (HEIGHT - 2) * (value / most)).toFixed(1);
  const sizes = points.map(([at, size], index) => (index === 0 ? `M${x(at)} ${y(size, part.most)}` : `H${x(at)}V${y(size, part.most)}`));
  const line = loads.map(([at, , load], index) => `${index === 0 ? "M" : "L"}${x(at)} ${y(load, top)}`);
  const heard = points.map(([, size]) => size);
  const title = `${name} in the last ${duration(span)}: size from ${Math.min(...heard)} to ${Math.max(...heard)}, load now ${share(part.load)}`;
  return svg(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
    svg("title", {}, title),
    svg("path", { class: "bound", d: `M0 ${y(1, top)}H${WIDTH}` }),
    svg("path", { class: "size", d: sizes.length === 1 ? `${sizes[0]}h0` : sizes.join("") }),
    line.length ? svg("path", { class: "line", d: line.length === 1 ? `${line[0]}h0` : line.join("") }) : null,
  );
}

const change = ({ at, part, before, after, reason }) =>
  el("li", { "data-key": `${at} ${part}` }, el("strong", {}, part), ` from ${before} to ${after}: ${reason}`, el("small", {}, instant(at)));
