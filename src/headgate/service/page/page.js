/** The page: looks at the service every two seconds while someone can see it, and says so when nobody answers. */

import { startAdvising } from "./advice.js";
import { startAsking } from "./ask.js";
import { Lags } from "./chart.js";
import { startCompleting } from "./completion.js";
import { $, el, show } from "./dom.js";
import { graph } from "./graph.js";
import { WORDS, judge, newestJob } from "./judging.js";
import { forgetLineage, startTracing, traced } from "./lineage.js";
import { queryList } from "./queries.js";
import { Problem, ask, keepToken } from "./service.js";
import { lookAtSettings, setting, startChanging } from "./settings.js";
import { scalingList } from "./scaling.js";
import { sourceList } from "./sources.js";
import { problem, tableList } from "./tables.js";
import { instant, number, parseDuration } from "./words.js";

const EVERY = 2_000;
/** Looks after which settings and definitions are asked for again. */
const SELDOM = 5;
const THEME = "headgate.theme";

let lags = null;
let tables = [];
let looks = 0;
let goneSince = null;
let timer = null;
let isLooking = false;
let drawn = () => {};

async function turn() {
  clearTimeout(timer);
  if (document.hidden || isLooking) return;
  isLooking = true;
  const goesOn = await look().catch(tell);
  isLooking = false;
  if (goesOn) timer = setTimeout(turn, EVERY);
}

async function look() {
  const [status, history] = await Promise.all([ask("/v1/status"), ask("/v1/history?limit=20")]);
  if (looks % SELDOM === 0 || !isSame(status.tables, tables)) {
    [{ tables }] = await Promise.all([ask("/v1/tables"), lookAtSettings()]);
    forgetLineage();
  }
  looks += 1;
  goneSince = null;
  render(status, history);
  return true;
}

const isSame = (one, other) => one.length === other.length && one.every(({ name }, index) => other[index].name === name);

/** Views that only count what violates a table's constraints are told with that table. */
function withoutCounts(status) {
  const counted = new Set(status.tables.filter(({ expectations }) => expectations?.length).map(({ name }) => `${name}__expectations`));
  const isShown = ({ name, failure }) => !counted.has(name) || failure;
  return { shown: { ...status, tables: status.tables.filter(isShown) }, known: tables.filter(({ name }) => !counted.has(name)) };
}

function render(all, history) {
  const { shown: status, known } = withoutCounts(all);
  lags ??= new Lags(status.name);
  lags.add(status);
  const standard = parseDuration(setting("freshness.max_staleness"));
  const { state, reasons } = judge(status, standard);
  say(state, WORDS[state], status.name);
  show($("reasons"), el("ul", {}, reasons.map((reason) => el("li", {}, problem(reason)))));
  show($("notice"));
  $("token").hidden = true;
  $("main").hidden = false;
  const newest = newestJob(status);
  const jobs = status.complete < newest ? `${newest} (all tables: ${status.complete})` : String(newest);
  const waiting = status.waiting ? ` (${status.waiting} waiting)` : "";
  const pairs = [
    ["Open queries", `${status.queries.length}${waiting}`],
    ["Newest job", jobs],
    ["Not in a job yet", number(status.open.rows, "row")],
    ["Last update", instant(status.at)],
  ];
  if (status.opening) {
    const { done, of, job, unbuilt } = status.opening;
    if (done < of) pairs.push(["Opening", `${done} of ${number(of, "table")} back at job ${job}`]);
    if (unbuilt.length) pairs.push(["Still to be built", unbuilt.join(", ")]);
  }
  for (const { text } of status.loads ?? []) pairs.push(["Loading", text]);
  if (status.postgres) pairs.push(["PostgreSQL’s clients", status.postgres]);
  const { count, last_at, last_why } = status.restarts;
  if (count) pairs.push(["Spark was started again", `${number(count, "time")}, last ${instant(last_at)}: ${last_why}`]);
  show($("facts"), pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  drawn = () => show($("pipeline"), graph(status, known, standard, traced()));
  drawn();
  cue();
  show($("tables"), tableList(status, standard, lags));
  show($("sources"), sourceList(status));
  show($("queries"), queryList(status, history));
  const scaled = scalingList(status);
  $("scaled").hidden = scaled === null;
  show($("scaling"), scaled);
}

/** Says why there is nothing new; tells whether it makes sense to look again without being told to. */
function tell(error) {
  show($("reasons"));
  if (error instanceof Problem && error.status === 401) {
    say("unknown", "Locked");
    show($("notice"), problem({ what: error.message, hint: "enter the token that the service was started with, or that of a role" }));
    $("main").hidden = true;
    $("token").hidden = false;
    $("token-text").focus();
    return false;
  }
  goneSince ??= new Date();
  const isProblem = error instanceof Problem;
  const isOpening = isProblem && error.status === 503;
  say(isOpening || !isProblem ? "unknown" : "trouble", isOpening ? "Not ready" : isProblem ? WORDS.trouble : "No answer");
  const since = `since ${instant(goneSince)}; what is below may be from before. Trying again every 2 seconds.`;
  show($("notice"), problem({ what: `${error.message}, ${since}`, hint: isProblem ? error.hint : "see whether the service runs: headgate run" }));
  // It may come back as another one.
  looks = 0;
  return true;
}

function say(state, word, name) {
  document.body.dataset.state = state;
  const verdict = $("verdict");
  verdict.className = `badge ${state}`;
  if (verdict.textContent !== word) verdict.textContent = word;
  if (name) $("name").textContent = name;
  document.title = `${word} · ${$("name").textContent}`;
}

/** Shows on which side the pipeline goes on beyond its frame. */
function cue() {
  const { scrollLeft, scrollWidth, clientWidth, parentElement } = $("pipeline");
  parentElement.classList.toggle("more-left", scrollLeft > 4);
  parentElement.classList.toggle("more-right", scrollLeft + clientWidth < scrollWidth - 4);
  $("cue").hidden = scrollWidth <= clientWidth + 4;
}

function startThemes() {
  const take = (theme) => (document.documentElement.dataset.theme = theme);
  $("theme").value = take(localStorage.getItem(THEME) ?? "system");
  $("theme").addEventListener("change", () => localStorage.setItem(THEME, take($("theme").value)));
}

startThemes();
startAsking();
startCompleting(() => tables);
startTracing(() => drawn());
$("pipeline").addEventListener("scroll", cue, { passive: true });
window.addEventListener("resize", cue);
startChanging();
startAdvising();
$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken($("token-text").value.trim());
  $("token-text").value = "";
  turn();
});
document.addEventListener("visibilitychange", turn);
window.addEventListener("pagehide", () => lags?.save());
turn();
