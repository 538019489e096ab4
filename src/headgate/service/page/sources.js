/** The sources: how far they are captured, at which pace and why, what is retained, and what is wrong. */

import { el } from "./dom.js";
import { troublesOf } from "./judging.js";
import { bytes, duration, instant, number } from "./words.js";

export function sourceList(status) {
  const sources = Object.entries(status.sources);
  if (!sources.length) return el("p", { class: "none" }, "There are no sources.");
  return sources.map(([name, source]) => card(name, source, status));
}

function card(name, source, status) {
  const troubles = troublesOf(name, source);
  return el(
    "article",
    { "data-key": name },
    el("h3", {}, name, " ", el("span", { class: `badge ${troubles.length ? "trouble" : "fresh"}` }, troubles.length ? "in trouble" : "captured")),
    troubles.length ? el("small", { class: "failure" }, "why and what to do: see the top") : null,
    facts([
      ["Captured up to", captured(source, status)],
      ["Not loaded", source.unloaded?.length ? loading(source) : null],
      ...Object.entries(source.range_loads ?? {}).map(([table, load]) => [`Loading ${table}`, ranges(load)]),
      ["Gear", gear(source)],
      ["Why this gear", source.reason],
      ["Waiting for it", source.waiting ? number(source.waiting, "request") : null],
      ["Stream log", size(source.log_bytes, source.log_limit)],
      ["Partitions", source.queue ? `${number(source.queue.partitions.length, "partition")}; ${source.queue.reason}` : null],
      ["Last change of partitions", source.queue?.last_change],
      ["Retained WAL", source.retained_wal === null ? null : size(source.retained_wal, source.retained_wal_limit)],
    ]),
  );
}

/** Names and values; those without a value are left out. */
export const facts = (pairs) =>
  el("dl", { class: "facts" }, pairs.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

function captured(source, status) {
  const lag = (Date.parse(status.at) - Date.parse(source.captured.at)) / 1000;
  return lag > 1e9 ? "nothing yet" : `${instant(source.captured.at)}, ${duration(Math.max(0, lag))} ago`;
}

/** The tables without first rows, and a bar for those that are being read. */
function loading({ unloaded, loading }) {
  if (!loading) return unloaded.join(", ");
  const left = loading.remaining === null ? "" : `, ${duration(loading.remaining)} left`;
  const share = `${Math.floor((100 * loading.rows) / Math.max(loading.estimated, 1))} %${left}`;
  return [el("progress", { max: Math.max(loading.estimated, 1), value: loading.rows, title: share }), ` ${share}: ${unloaded.join(", ")}`];
}

/** A table that is loaded range by range: a bar, how much and how quickly, and what queries wait for. */
function ranges({ count, read, rows, rate, remaining, waiting }) {
  const pace = rate === null ? "" : `, ${number(Math.round(rate), "row")} a second`;
  const left = remaining === null ? "" : `, ${duration(remaining)} left`;
  const awaited = waiting.length ? `; queries wait for ${waiting.slice(0, 3).join(", ")}${waiting.length > 3 ? ", …" : ""}` : "";
  const share = `${read} of ${count} ranges`;
  return [el("progress", { max: count, value: read, title: share }), ` ${share}, ${number(rows, "row")}${pace}${left}${awaited}`];
}

function gear({ gear }) {
  if (!gear) return null;
  const often = gear.period ? `looks every ${duration(gear.period)}` : "looks without a pause";
  return `${often}, ${number(gear.workers, "worker")}`;
}

const size = (held, limit) => bytes(held) + (limit === null ? "" : ` of ${bytes(limit)}`);
