/** The tables: how fresh each is against its bound, now and in the last minutes, its job, and why it failed. */

import { chart } from "./chart.js";
import { el } from "./dom.js";
import { boundOf, judgeTable, newestJob } from "./judging.js";
import { duration, number } from "./words.js";

export function tableList(status, standard, lags) {
  if (!status.tables.length) return el("p", { class: "none" }, "There are no tables yet.");
  const heads = ["Table", "State", "Lag and bound", `Last ${duration(lags.span)}`, "Job"];
  return el(
    "table",
    { class: "list" },
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, status.tables.map((table) => row(table, status, standard, lags))),
  );
}

function row(table, status, standard, lags) {
  const { state, word } = judgeTable(table, status, standard);
  const bound = boundOf(table, standard);
  return el(
    "tr",
    { "data-key": table.name },
    el("th", { scope: "row" }, el("span", { class: "name" }, table.name), failure(table, status)),
    el("td", {}, el("span", { class: `badge ${state}` }, word)),
    el("td", {}, el("strong", {}, table.lag === null ? "–" : duration(table.lag)), el("small", {}, allowed(table, standard))),
    el("td", {}, chart(table.name, lags, bound)),
    el("td", {}, `job ${table.through}`, missing(newestJob(status) - table.through)),
  );
}

function allowed(table, standard) {
  if (table.target_lag !== null) return `target lag ${duration(table.target_lag)}`;
  if (standard === null) return "no bound";
  return standard ? `default bound ${duration(standard)}` : "on demand (bound 0 s)";
}

const missing = (jobs) => (jobs > 0 ? el("small", {}, `${number(jobs, "job")} behind`) : null);

function failure(table, status) {
  if (table.failure === null) return null;
  const known = status.failures.find(({ what }) => table.failure.includes(what));
  return problem(known ?? { what: table.failure });
}

/** What happened, where, and what to do. */
export function problem({ what, where, hint }) {
  return el(
    "div",
    { class: "problem" },
    el("p", {}, where ? `${where}: ${what}` : what),
    hint ? el("p", { class: "hint" }, "What to do: ", hint) : null,
  );
}
