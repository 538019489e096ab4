/** Whether the warehouse is fresh, in words. Pure: the same status gives the same verdict. */

import { duration, number } from "./words.js";

/** Names of the states, worst first, as a reader sees them. */
export const WORDS = { trouble: "In trouble", behind: "Behind", fresh: "Fresh" };

export const newestJob = (status) => status.open.id - 1;

/** Seconds that a table may lag: its own target, else the bound that queries have by default; null without any. */
export const boundOf = (table, standard) => table.target_lag ?? standard;

/** How one table does: a state and the word for it.
 *
 * No table can hold a bound of 0 between two queries. With it, a table is fresh as long as nothing captured is missing. */
export function judgeTable(table, status, standard) {
  const bound = boundOf(table, standard);
  if (table.failure !== null) return { state: "trouble", word: "failed" };
  if (table.lag === null) return { state: "idle", word: "nothing read yet" };
  if (bound) return table.lag <= bound ? { state: "fresh", word: "fresh" } : { state: "behind", word: "behind" };
  const hasAll = table.through >= newestJob(status) && status.open.rows === 0;
  return hasAll ? { state: "fresh", word: "fresh" } : { state: "idle", word: "waits for a query" };
}

/** What is wrong with a source: sentences with what to do. */
export function troublesOf(name, source) {
  const found = [];
  if (source.trouble) found.push({ what: `${name}: ${source.trouble.what}`, hint: source.trouble.hint });
  for (const [table, problem] of Object.entries(source.problems)) {
    found.push({ what: `${name}.${table} is not followed any more: ${problem.what}`, hint: problem.hint, of: problem.what });
  }
  if (source.slot_dropped) {
    const hint = "read its tables afresh: headgate refresh --full";
    found.push({ what: `${name}: the replication slot was dropped, because it retained too much WAL`, hint });
  }
  return [...found, ...source.alarms.map((alarm) => ({ what: `${name}: ${alarm}`, hint: null }))];
}

/** Each problem once: what stops a source's table is told by the table and by its source. */
export function once(problems) {
  const kept = [];
  for (const problem of problems) {
    const of = problem.of ?? problem.what;
    if (!kept.some((other) => (other.of ?? other.what).includes(of))) kept.push(problem);
  }
  return kept.map(({ what, hint }) => ({ what, hint }));
}

/** The verdict about the whole warehouse: a state, and the reasons. */
export function judge(status, standard) {
  const troubles = once([
    ...status.failures.map(({ what, where, hint }) => ({ what: where ? `${where}: ${what}` : what, hint, of: what })),
    ...Object.entries(status.sources).flatMap(([name, source]) => troublesOf(name, source)),
  ]);
  const judged = status.tables.map((table) => ({ table, ...judgeTable(table, status, standard) }));
  const late = judged.filter(({ state }) => state === "behind").map(({ table }) => lateness(table, standard));
  if (troubles.length) return { state: "trouble", reasons: [...troubles, ...late] };
  if (late.length) return { state: "behind", reasons: late };
  return { state: "fresh", reasons: [{ what: freshness(judged), hint: null }] };
}

function lateness(table, standard) {
  const bound = boundOf(table, standard);
  const kind = table.target_lag === null ? "queries allow by default" : "its target lag is";
  const hint = table.target_lag === null ? "the next query that needs it brings it up to date" : null;
  return { what: `${table.name} is ${duration(table.lag)} old; ${kind} ${duration(bound)}`, hint };
}

function freshness(judged) {
  const idle = judged.filter(({ state }) => state === "idle").length;
  if (!judged.length) return "There are no tables yet";
  if (!idle) return "Every table is within its bound";
  const fresh = judged.length - idle;
  const others = idle === 1 ? "1 waits until a query needs it" : `${idle} wait until a query needs them`;
  return fresh ? `${number(fresh, "table")} within ${fresh === 1 ? "its" : "their"} bound, ${others}` : `${number(idle, "table")}: ${others}`;
}
