/** The queries that run, and the receipts of the latest ones. */

import { el } from "./dom.js";
import { facts } from "./sources.js";
import { duration, instant, number } from "./words.js";

const PHASES = { waiting: "waits for its snapshot", reading: "is being read", sending: "is being sent" };
const STATES = { ok: "fresh", stale: "behind", failed: "trouble", cancelled: "idle" };
const MEANINGS = { ok: "answered", stale: "too stale", failed: "failed", cancelled: "cancelled" };

export function queryList(status, history) {
  const receipts = [...history.receipts].sort((one, other) => Date.parse(other.at) - Date.parse(one.at));
  return [
    el("h3", {}, `Open now: ${status.queries.length}`),
    el("ul", { class: "open" }, status.queries.map(open)),
    el("h3", {}, "Latest"),
    receipts.length ? receipts.map(record) : el("p", { class: "none" }, "No query was asked yet."),
  ];
}

const open = (query) =>
  el(
    "li",
    { "data-key": query.id },
    el("code", {}, query.text),
    el("small", {}, `${PHASES[query.phase] ?? query.phase}, for ${duration(query.seconds)}`),
  );

function record(query) {
  const { receipt } = query;
  return el(
    "details",
    { "data-key": `${query.id} ${query.at}` },
    el(
      "summary",
      {},
      el("span", { class: `badge ${STATES[query.outcome]}` }, MEANINGS[query.outcome] ?? query.outcome),
      " ",
      el("code", {}, query.text),
      el("small", {}, [instant(query.at), `took ${duration(query.seconds)}`, receipt && freshness(receipt)].filter(Boolean).join(" · ")),
    ),
    query.problem ? el("p", { class: "problem" }, query.problem) : null,
    receipt ? receiptFacts(receipt) : null,
  );
}

const freshness = ({ staleness }) => (staleness === null ? "reads no source" : `${duration(staleness)} stale on arrival`);

/** All that a receipt says. */
export function receiptFacts(receipt) {
  const { bound, waited } = receipt;
  const how = receipt.closed_job ? "closed for this query" : receipt.shared_cut && receipt.jobs_run ? "shared with other queries" : "reused";
  const parts = ["capture", "queue", "spark", "read"].filter((part) => waited[part] >= 0.001);
  const inside = parts.length ? ` (${parts.map((part) => `${part} ${duration(waited[part])}`).join(", ")})` : "";
  return facts([
    ["Bound", boundText(bound)],
    ["Achieved", `${freshness(receipt)}: ${receipt.missed ? "missed" : "met"}`],
    ["Why missed", receipt.why_missed],
    ["Job", `${receipt.job}, ${how}${receipt.decision ? `: ${receipt.decision}` : ""}`],
    ["Waited", duration(waited.total) + inside],
    ["Work", `${number(receipt.jobs_run, "job")}, ${number(receipt.rows_processed, "row")}`],
    ...receipt.sources.map((source) => [
      `Source ${source.name}`,
      [`lag ${duration(source.lag)}`, source.sampled ? "asked" : "not asked", ...source.cannot_promise].join("; "),
    ]),
    ...(receipt.ranges ?? []).map((each) => [
      `Ranges of ${each.table}`,
      `${each.read.length} of ${each.of} read (${each.read.slice(0, 3).join(", ")}${each.read.length > 3 ? ", …" : ""}), ${each.brought_forward} brought forward, ${each.left_behind} left behind${each.missing?.length ? `, not loaded: ${each.missing.join(", ")}` : ""}`,
    ]),
    ...receipt.warnings.map((warning) => ["Warning", warning]),
  ]);
}

function boundText({ max_staleness: age, deadline, when_stale: otherwise }) {
  const fresh = age === null ? "any age" : `at most ${duration(age)} stale`;
  return fresh + (deadline === null ? "" : `, within ${duration(deadline)}, else ${otherwise}`);
}
