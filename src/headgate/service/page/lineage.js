/** Where a column comes from: click a table of the pipeline, then one of its columns. */

import { $, el, show } from "./dom.js";
import { ask } from "./service.js";

const known = new Map();
let table = null;
let column = null;
let trail = [];

/** Tables whose columns the chosen column is made of, and itself: the graph shows them. */
export const traced = () => new Set(column === null ? (table === null ? [] : [table]) : trail.map((step) => step.table));

/** Forgets what was told of tables: flows may have changed. */
export function forgetLineage() {
  known.clear();
}

export function startTracing(redraw) {
  const choose = async (event) => {
    const node = event.target.closest?.("[data-key^='table ']");
    if (!node) return;
    const name = node.dataset.key.slice("table ".length);
    [table, column, trail] = [name === table ? null : name, null, []];
    await draw(redraw);
  };
  $("pipeline").addEventListener("click", choose);
  $("pipeline").addEventListener("keydown", (event) => (event.key === "Enter" ? choose(event) : null));
}

async function lineageOf(name) {
  if (!known.has(name)) known.set(name, await ask(`/v1/lineage/${encodeURIComponent(name)}`));
  return known.get(name).columns;
}

/** Every column that one is made of, through all tables between, each once; the nearest first. */
async function walk(name, from) {
  const found = [{ table: name, column: from, of: [] }];
  for (const step of found) {
    const sources = (await lineageOf(step.table))[step.column];
    step.isUnknown = sources === null;
    for (const source of sources ?? []) {
      step.of.push(source);
      if (!found.some((each) => each.table === source.table && each.column === source.column)) found.push({ ...source, of: [] });
    }
  }
  return found;
}

async function draw(redraw) {
  const place = $("lineage");
  try {
    place.hidden = table === null;
    if (table === null) {
      show(place);
    } else {
      const columns = await lineageOf(table);
      const buttons = Object.keys(columns).map((name) => {
        const button = el("button", { type: "button", class: "chip name", "aria-pressed": String(name === column) }, name);
        button.addEventListener("click", async () => {
          column = name === column ? null : name;
          trail = column === null ? [] : await walk(table, column);
          await draw(redraw);
        });
        return button;
      });
      // Made anew, for the listeners' sake.
      place.replaceChildren(
        el("h3", {}, "Columns of ", el("span", { class: "name" }, table)),
        el("div", { class: "chips" }, buttons),
        column === null ? el("small", {}, "Choose a column to see what it is made of.") : el("ol", { class: "trail" }, trail.map(step)),
      );
    }
  } catch (error) {
    show(place, el("p", { class: "problem" }, error.message));
  }
  redraw();
}

function step({ table: name, column: from, of, isUnknown }) {
  const made = isUnknown
    ? "made by a query that is run as written"
    : of.length
      ? `made of ${of.map((each) => `${each.table}.${each.column}`).join(", ")}`
      : name.includes(".")
        ? "as it is captured"
        : "a constant, or a count of rows";
  return el("li", {}, el("span", { class: "name" }, `${name}.${from}`), el("small", {}, made));
}
