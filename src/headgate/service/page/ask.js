/** The query box: one statement with its bound; the rows as a table or chart, the receipt, or what is wrong with it; all rows as a file. */

import { $, el, show } from "./dom.js";
import { plot } from "./plot.js";
import { receiptFacts } from "./queries.js";
import { Problem, ask, download } from "./service.js";
import { problem } from "./tables.js";
import { duration, number } from "./words.js";

const ROWS = 200;
const NUMERIC = /^(tinyint|smallint|int|bigint|float|double|decimal)/;

const ENDS = { csv: "csv", parquet: "parquet", arrow: "arrows", json: "json" };

let running = null;
/** What was asked, and its first rows. */
let asked = null;
let isChart = false;

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
  for (const [id, chart] of [["as-table", false], ["as-chart", true]]) {
    $(id).addEventListener("click", () => {
      isChart = chart;
      showRows();
    });
  }
  $("found").addEventListener("click", (event) => {
    const format = event.target.dataset.format;
    if (format && asked) save(format);
  });
}

const bodyOf = (format) => ({
  sql: $("sql").value,
  max_staleness: $("max-staleness").value.trim() || null,
  deadline: $("deadline").value.trim() || null,
  format,
});

/** All rows as a file; what is asked is the query whose rows are shown. */
async function save(format) {
  const line = $("asked").textContent;
  $("asked").textContent = "Downloading …";
  try {
    await download("/v1/query", { ...asked.body, limit: undefined, format }, `answer.${ENDS[format]}`);
    $("asked").textContent = line;
  } catch (error) {
    $("asked").textContent = `No file: ${error.message}`;
  }
}

function showRows() {
  $("found").hidden = !asked;
  $("as-table").setAttribute("aria-pressed", String(!isChart));
  $("as-chart").setAttribute("aria-pressed", String(isChart));
  if (!asked) return;
  const { columns, rows, receipt: said } = asked.found;
  show($("answer"), isChart ? plot(columns, rows.slice(0, ROWS)) : rowTable(asked.found), receipt(said));
}

async function run() {
  // The one that still runs is given up, which calls it off at the service too.
  running?.abort();
  const mine = (running = new AbortController());
  const began = performance.now();
  $("cancel").hidden = false;
  $("asked").textContent = "Running …";
  asked = null;
  showRows();
  show($("answer"));
  const { line, body, found, content } = await answer(mine.signal);
  if (running !== mine) return;
  running = null;
  $("cancel").hidden = true;
  $("asked").textContent = `${line} after ${duration((performance.now() - began) / 1000)}.`;
  asked = found ? { body, found } : null;
  if (found) showRows();
  else show($("answer"), content);
}

async function answer(signal) {
  // One more than is shown tells whether there are more.
  const body = { ...bodyOf("json"), limit: ROWS + 1 };
  try {
    const found = await ask("/v1/query", { method: "POST", body, signal });
    const isAll = found.rows.length <= ROWS;
    const line = isAll ? number(found.rows.length, "row") : `The first ${ROWS} rows (there are more)`;
    return { line, body, found };
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
