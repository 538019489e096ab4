/** Which results of flows are stored, what others would gain, and why: asked for when it is opened. */

import { $, el, show } from "./dom.js";
import { ask } from "./service.js";

export function startAdvising() {
  $("advice").addEventListener("toggle", () => ($("advice").open ? draw() : null));
}

async function draw() {
  try {
    const { flows, decided } = await ask("/v1/advise");
    show($("advised"), flows.length ? flows.map((flow) => told(flow, decided[flow.flow])) : el("p", { class: "none" }, "No flow is kept incrementally."));
  } catch (error) {
    show($("advised"), el("p", { class: "none" }, error.message));
  }
}

const told = (flow, decided) =>
  el(
    "div",
    { "data-key": flow.flow },
    el("h3", { class: "name" }, flow.flow),
    el("p", {}, `${flow.changed_rows} of ${flow.rows} rows change per read, λ ${flow.shared.toFixed(1)}; seconds as written are ${flow.is_measured ? "measured" : "modelled"}.`),
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ["Operator", "As written", "Incremental", "Gain"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, flow.operators.map(line)),
    ),
    el("p", {}, `Stored ${flow.current.length ? `behind ${flow.current.join(" and ")}` : "is nothing: recomputed when it is read"}. Best: ${flow.reason}.`),
    flow.fixed ? el("p", {}, `The whole result stays stored: ${flow.fixed}.`) : null,
    decided ? el("p", {}, `Last look: ${decided}.`) : null,
  );

const line = ({ operator, as_written, incremental, gain }) =>
  el(
    "tr",
    {},
    el("th", { scope: "row" }, operator),
    el("td", {}, seconds(as_written)),
    el("td", {}, seconds(incremental)),
    el("td", {}, gain === null ? "" : gain.toFixed(2)),
  );

const seconds = (value) => (value === null ? "∞" : `${value.toFixed(3)} s`);
