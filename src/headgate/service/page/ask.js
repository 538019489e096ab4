/** The query box: one SELECT with its bound; the rows, the receipt, or what is wrong with it. */

import { $, el, show } from "./dom.js";
import { receiptFacts } from "./queries.js";
import { Problem, ask } from "./service.js";
import { problem } from "./tables.js";
import { duration, number } from "./words.js";

const ROWS = 200;
const NUMERIC = /^(tinyint|smallint|int|bigint|float|double|decimal)/;

let running = null;

export function startAsking() {
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  $("ask").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      $("ask").requestSubmit();
    }
  });
  $("cancel").addEventListener("click", () => running?.abort());
}

async function run() {
  // The one that still runs is given up, which calls it off at the service too.
  running?.abort();
  const mine = (running = new AbortController());
  const began = performance.now();
  $("cancel").hidden = false;
  $("asked").textContent = "Running …";
  show($("answer"));
  const said = await answer(mine.signal);
  if (running !== mine) return;
  running = null;
  $("cancel").hidden = true;
  $("asked").textContent = `${said.line} after ${duration((performance.now() - began) / 1000)}.`;
  show($("answer"), said.content);
}

async function answer(signal) {
  const body = {
    sql: $("sql").value,
    max_staleness: $("max-staleness").value.trim() || null,
    deadline: $("deadline").value.trim() || null,
    // One more than is shown tells whether there are more.
    limit: ROWS + 1,
    format: "json",
  };
  try {
    const found = await ask("/v1/query", { method: "POST", body, signal });
    const isAll = found.rows.length <= ROWS;
    const line = isAll ? number(found.rows.length, "row") : `The first ${ROWS} rows (there are more)`;
    return { line, content: [rowTable(found), receipt(found.receipt)] };
  } catch (error) {
    if (signal.aborted) return { line: "Cancelled", content: null };
    const hint = error instanceof Problem ? error.hint : "see whether the service runs, and ask again";
    return { line: "No answer", content: problem({ what: error.message, hint }) };
  }
}

const rowTable = ({ columns, rows }) =>
  el(
    "div",
    { class: "scroll rows", tabindex: "0", role: "group", "aria-label": "Rows of the answer" },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, columns.map(head))),
      el("tbody", {}, rows.slice(0, ROWS).map((row) => el("tr", {}, row.map((value, index) => cell(value, columns[index]))))),
    ),
  );

const head = ({ name, type }) => el("th", { scope: "col", title: type, class: align(type) }, name);

function cell(value, { type }) {
  if (value === null) return el("td", { class: "null" }, "NULL");
  return el("td", { class: align(type) }, typeof value === "string" ? value : JSON.stringify(value));
}

const align = (type) => (NUMERIC.test(type) ? "number" : null);

const receipt = (said) =>
  said ? el("div", { class: "receipt" }, el("h3", {}, "Receipt"), receiptFacts(said)) : el("p", { class: "none" }, "No receipt: nothing was promised.");
