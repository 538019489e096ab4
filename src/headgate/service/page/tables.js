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
    el("th", { scope: "row" }, el("span", { class: "name" }, table.name), failure(table), violations(table)),
    el("td", {}, el("span", { class: `badge ${state}` }, word)),
    el("td", {}, el("strong", {}, table.lag === null ? "–" : duration(table.lag)), el("small", {}, allowed(table, standard))),
    el("td", {}, chart(table.name, lags, bound)),
    el("td", {}, `job ${table.through}`, missing(newestJob(status) - table.through), ranges(table, newestJob(status))),
  );
}

function allowed(table, standard) {
  if (table.target_lag !== null) return `target lag ${duration(table.target_lag)}`;
  if (standard === null) return "no bound";
  return standard ? `default bound ${duration(standard)}` : "on demand (bound 0 s)";
}

const missing = (jobs) => (jobs > 0 ? el("small", {}, `${number(jobs, "job")} behind`) : null);

/** The key ranges, where there are several: how many are at the newest job, and each with its own. */
function ranges({ ranges: jobs = {}, missing: lost = {} }, newest) {
  const found = Object.entries(jobs);
  if (found.length < 2) return null;
  const there = found.filter(([, job]) => job >= newest).length;
  return el(
    "details",
    { class: "ranges" },
    el("summary", {}, `${there} of ${number(found.length, "range")} there`),
    el("ol", {}, found.map(([name, job]) => el("li", { class: name in lost ? "failure" : null, title: lost[name] ?? null }, `${name}: job ${job}`, name in lost ? ", missing" : ""))),
  );
}

/** What happened, and what to do, is said once: at the top of the page. */
const failure = (table) => (table.failure === null ? null : el("small", { class: "failure" }, "why and what to do: see the top"));

const FATES = { drop: "dropped", warn: "kept", fail: "refused" };

const violations = ({ expectations = [] }) =>
  expectations.map(({ name, condition, action, violations: count, job }) =>
    el(
      "small",
      { class: count ? "violated" : null, title: `EXPECT (${condition}) ON VIOLATION ${action.toUpperCase()}${job === null ? "" : `, as of job ${job}`}` },
      count === null ? `${name}: not counted yet` : count ? `${name}: ${number(count, "row")} ${FATES[action]}` : `${name}: holds`,
    ),
  );

/** What happened, where, and what to do. */
export function problem({ what, where, hint }) {
  return el(
    "div",
    { class: "problem" },
    el("p", {}, where ? `${where}: ${what}` : what),
    hint ? el("p", { class: "hint" }, "What to do: ", hint) : null,
  );
}
