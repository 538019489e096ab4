/** Settings that can be changed while the warehouse runs, and who changed what, when. */

import { $, el, show } from "./dom.js";
import { ask } from "./service.js";
import { instant } from "./words.js";

let current = {};

/** A setting as it was when it was last heard of. */
export const setting = (name) => current[name];

export async function lookAtSettings() {
  take(await ask("/v1/settings"));
}

export function startChanging() {
  $("setting").addEventListener("change", suggest);
  $("change").addEventListener("submit", (event) => {
    event.preventDefault();
    change({ value: $("value").value });
  });
  $("reset").addEventListener("click", () => change({ reset: true }));
}

async function change(how) {
  const name = $("setting").value;
  const body = { name, who: $("who").value.trim() || "the page", ...how };
  try {
    take(await ask("/v1/settings", { method: "PATCH", body }));
    suggest();
    $("changed").textContent = `${name} is ${text(current[name])} now.`;
  } catch (error) {
    $("changed").textContent = error.hint ? `${error.message}. What to do: ${error.hint}` : error.message;
  }
}

function take({ settings, changes }) {
  const isFirst = !Object.keys(current).length;
  current = settings;
  show($("setting"), Object.keys(settings).map((name) => el("option", { value: name, "data-key": name }, name)));
  if (isFirst) suggest();
  const holding = new Map(changes.filter(({ holds }) => holds).map((change) => [change.name, change]));
  show(
    $("settings"),
    el("h3", {}, "Changes"),
    changes.length ? el("ol", { class: "changes" }, [...changes].reverse().slice(0, 50).map(line)) : el("p", { class: "none" }, "Nobody changed a setting yet."),
    el("details", {}, el("summary", {}, "All settings as they are now"), list(settings, holding)),
  );
}

const list = (settings, holding) =>
  el(
    "dl",
    { class: "facts" },
    Object.entries(settings).map(([name, value]) => {
      const change = holding.get(name);
      return [el("dt", {}, name), el("dd", {}, text(value), change ? el("small", {}, `changed by ${change.who}, ${instant(change.at)}`) : null)];
    }),
  );

const VERBS = { change: "changed", reset: "reset", superseded: "took back the change of" };

const line = ({ at, who, name, before, after, kind }) =>
  el(
    "li",
    { "data-key": `${at} ${name}` },
    el("strong", {}, who),
    ` ${VERBS[kind] ?? kind} `,
    el("code", {}, name),
    ` from ${text(before)} to ${text(after)}`,
    el("small", {}, instant(at)),
  );

function suggest() {
  $("value").value = text(current[$("setting").value] ?? "");
}

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
