/** The pipeline as a graph, left to right: sources, replicas, flows; each node says which job it has reached. */

import { svg } from "./dom.js";
import { judgeTable, newestJob, troublesOf } from "./judging.js";
import { duration, number } from "./words.js";

const NODE = { width: 190, height: 46 };
const GAP = { x: 54, y: 14 };
const EDGE = 8;
const LETTERS = 24;
const MARKS = { trouble: "✕ ", behind: "▲ " };

/** Where each node and edge lies: a node's layer comes after the layers of all that it reads. */
export function layout(sources, tables) {
  const nodes = new Map(sources.map((name) => [`source ${name}`, { id: `source ${name}`, name, reads: [], height: NODE.height }]));
  for (const { name, kind, reads } of tables) {
    const from = kind === "source" ? [`source ${name.split(".")[0]}`] : reads.map((table) => `table ${table}`);
    nodes.set(`table ${name}`, { id: `table ${name}`, name, reads: from, height: NODE.height, layer: kind === "source" ? 1 : undefined });
  }
  for (const node of nodes.values()) node.reads = node.reads.filter((id) => nodes.has(id));
  for (const node of nodes.values()) node.layer ??= layerOf(node, nodes);
  const edges = [...nodes.values()].flatMap((node) => node.reads.map((id) => edge(nodes.get(id), node)));
  // An edge over several layers has a place in those between, so that it does not run behind their nodes.
  const before = new Map([...nodes.values()].map((node) => [node, []]));
  for (const stops of edges) stops.slice(1).forEach((stop, index) => before.set(stop, [...(before.get(stop) ?? []), stops[index]]));
  const layers = [];
  for (const stop of before.keys()) (layers[stop.layer] ??= []).push(stop);
  const heights = Array.from(layers, (layer = []) => layer.reduce((sum, { height }) => sum + height + GAP.y, -GAP.y));
  const tallest = Math.max(0, ...heights);
  for (const [index, layer] of [...layers.entries()].filter(([, layer]) => layer)) {
    for (const stop of layer) stop.middle = mean(before.get(stop).map(({ y, height }) => y + height / 2)) ?? 0;
    layer.sort((one, other) => one.middle - other.middle);
    let y = EDGE + (tallest - heights[index]) / 2;
    for (const stop of layer) {
      Object.assign(stop, { x: EDGE + index * (NODE.width + GAP.x), y });
      y += stop.height + GAP.y;
    }
  }
  const width = 2 * EDGE + Math.max(1, layers.length) * (NODE.width + GAP.x) - GAP.x;
  return { nodes: [...nodes.values()], edges, width, height: 2 * EDGE + tallest };
}

/** The stops of an edge: its ends, and a narrow place in each layer between. */
function edge(from, to) {
  const between = Array.from({ length: to.layer - from.layer - 1 }, (_, index) => ({ layer: from.layer + 1 + index, height: 2 }));
  return [from, ...between, to];
}

function layerOf(node, nodes) {
  if (node.layer === undefined) {
    if (node.id.startsWith("source ")) node.layer = 0;
    else node.layer = Math.max(1, ...node.reads.map((id) => layerOf(nodes.get(id), nodes))) + 1;
  }
  return node.layer;
}

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

export function graph(status, tables, standard, traced = new Set()) {
  const { nodes, edges, width, height } = layout(Object.keys(status.sources), tables);
  const statuses = new Map(status.tables.map((table) => [table.name, table]));
  return svg(
    "svg",
    { class: traced.size ? "graph tracing" : "graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "group" },
    svg("title", {}, `${number(edges.length, "step")} between ${number(nodes.length, "node")}; the list of tables says the same`),
    edges.map((stops) => svg("path", { class: isTraced(stops, traced) ? "edge traced" : "edge", d: path(stops) })),
    nodes.map((node) =>
      node.id.startsWith("source ")
        ? draw(node, sourceNode(node.name, status))
        : draw(node, tableNode(statuses.get(node.name), status, standard), traced.has(node.name)),
    ),
  );
}

const isTraced = (stops, traced) => traced.has(stops[0].name) && traced.has(stops.at(-1).name);

/** Curves between layers, and straight through the places within them. */
function path([from, ...stops]) {
  const middle = ({ y, height }) => y + height / 2;
  let x = from.x + NODE.width;
  let drawn = `M${x} ${middle(from)}`;
  let last = from;
  for (const stop of stops) {
    const half = (x + stop.x) / 2;
    drawn += `C${half} ${middle(last)} ${half} ${middle(stop)} ${stop.x} ${middle(stop)}`;
    if (stop !== stops.at(-1)) drawn += `h${NODE.width}`;
    x = stop.x + NODE.width;
    last = stop;
  }
  return drawn;
}

function draw(node, { state, line }, isChosen = false) {
  const shown = node.name.length > LETTERS ? `${node.name.slice(0, LETTERS - 1)}…` : node.name;
  const kind = node.layer === 0 ? "source" : node.layer === 1 ? "replica" : "flow";
  return svg(
    "g",
    {
      class: `node ${kind} ${state}${isChosen ? " traced" : ""}`,
      "data-key": node.id,
      transform: `translate(${node.x} ${node.y})`,
      ...(kind === "source" ? {} : { tabindex: "0", role: "button", "aria-label": `Columns of ${node.name}` }),
    },
    svg("title", {}, `${node.name}: ${line}`),
    svg("rect", { width: NODE.width, height: NODE.height, rx: node.layer === 0 ? NODE.height / 2 : 6 }),
    svg("text", { x: 14, y: 19, class: "name" }, shown),
    svg("text", { x: 14, y: 36 }, `${MARKS[state] ?? ""}${line}`),
  );
}

function sourceNode(name, status) {
  const source = status.sources[name];
  const lag = Math.max(0, (Date.parse(status.at) - Date.parse(source.captured.at)) / 1000);
  if (troublesOf(name, source).length) return { state: "trouble", line: "in trouble" };
  // Before anything was captured the instant lies at the beginning of time.
  return { state: "fresh", line: lag > 1e9 ? "not captured yet" : `captured ${duration(lag)} ago` };
}

function tableNode(table, status, standard) {
  if (!table) return { state: "idle", line: "…" };
  const { state } = judgeTable(table, status, standard);
  const missing = newestJob(status) - table.through;
  if (state === "trouble") return { state, line: `failed after job ${table.through}` };
  const behind = missing > 0 ? `, ${number(missing, "job")} behind` : "";
  // A table may have all jobs and still be too old, or miss some that nobody needs yet.
  return { state: state === "fresh" && behind ? "idle" : state, line: `job ${table.through}${behind}` };
}
