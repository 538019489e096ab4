/** What the query box offers while someone types: tables, columns of the tables that the query names, words of SQL. */

import { $, el, show } from "./dom.js";

const MOST = 8;
const WORDS = (
  "SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT JOIN LEFT RIGHT FULL INNER CROSS ON USING AS AND OR NOT IN EXISTS BETWEEN LIKE IS NULL CASE WHEN " +
  "THEN ELSE END DISTINCT UNION ALL INTERSECT EXCEPT WITH OVER PARTITION ASC DESC CAST COUNT SUM AVG MIN MAX COALESCE SHOW TABLES FLOWS DESCRIBE " +
  "EXTENDED EXPLAIN CURRENCY BOUND DEADLINE STALE SERVE WAIT FAIL"
).split(" ");

/** Pure: what completes the word before the caret, best first. `tables` are as the service tells them. */
export function offers(text, caret, tables) {
  const typed = /[\w.]*$/.exec(text.slice(0, caret))[0];
  const dot = typed.lastIndexOf(".");
  const [before, last] = dot < 0 ? ["", typed] : [typed.slice(0, dot).toLowerCase(), typed.slice(dot + 1)];
  if (!typed || (dot < 0 && /^\d/.test(typed))) return { last, found: [] };
  const named = new Set((text.toLowerCase().match(/[\w.]+/g) ?? []).filter((word) => word !== typed.toLowerCase()));
  const read = tables.filter(({ name }) => named.has(name.toLowerCase()));
  const columnsOf = (some) => some.flatMap(({ name, columns }) => columns.map((column) => ({ word: column.name, kind: `${name} · ${column.type}` })));
  let all;
  if (before) {
    const inside = tables.filter(({ name }) => name.toLowerCase().startsWith(`${before}.`));
    const exact = tables.filter(({ name }) => name.toLowerCase() === before);
    // What is neither a source nor a table is taken for another name of one in the query.
    const columns = columnsOf(exact.length ? exact : inside.length ? [] : read);
    all = [...inside.map(({ name }) => ({ word: name.slice(before.length + 1), kind: "table" })), ...columns];
  } else {
    all = [
      ...columnsOf(read),
      ...tables.map(({ name, kind }) => ({ word: name, kind: kind === "source" ? "source table" : kind })),
      ...columnsOf(read.length ? [] : tables),
      ...WORDS.map((word) => ({ word, kind: "" })),
    ];
  }
  const start = last.toLowerCase();
  const seen = new Set();
  const found = all.filter(({ word }) => {
    const low = word.toLowerCase();
    return low.startsWith(start) && low !== start && !seen.has(low) && seen.add(low);
  });
  return { last, found: found.slice(0, MOST) };
}

export function startCompleting(tables) {
  const box = $("sql");
  const list = $("offers");
  let found = [];
  let last = "";
  let chosen = 0;

  const close = () => {
    found = [];
    render();
  };

  function render() {
    list.hidden = !found.length;
    box.setAttribute("aria-expanded", String(found.length > 0));
    if (found.length) box.setAttribute("aria-activedescendant", `offer-${chosen}`);
    else box.removeAttribute("aria-activedescendant");
    show(
      list,
      found.map(({ word, kind }, index) =>
        el(
          "li",
          { role: "option", id: `offer-${index}`, "aria-selected": String(index === chosen) },
          el("span", { class: "name" }, word),
          el("small", {}, kind),
        ),
      ),
    );
  }

  function look() {
    ({ last, found } = offers(box.value, box.selectionStart, tables()));
    chosen = 0;
    render();
  }

  function take(index) {
    const { word } = found[index];
    const at = box.selectionStart;
    const written = /^[\w.]+$/.test(word) ? word : `\`${word.replaceAll("`", "``")}\``;
    box.setRangeText(written, at - last.length, at, "end");
    close();
    box.focus();
  }

  box.addEventListener("input", look);
  box.addEventListener("blur", () => setTimeout(close, 150));
  box.addEventListener("click", close);
  box.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      look();
      return;
    }
    if (!found.length || event.ctrlKey || event.metaKey) return;
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) chosen = (chosen + move + found.length) % found.length;
    else if (event.key === "Tab" || event.key === "Enter") take(chosen);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    if (found.length) render();
  });
  list.addEventListener("pointerdown", (event) => {
    const item = event.target.closest("li");
    if (!item) return;
    event.preventDefault();
    take(Number(item.id.split("-")[1]));
  });
}
