/** Numbers as people read them. */

const UNITS = { d: 86_400, h: 3_600, m: 60, s: 1, ms: 1e-3, us: 1e-6 };
const DURATION = /^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?(?:(\d+)us)?$/;
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Seconds as an age: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function duration(seconds) {
  if (seconds < 0.001) return "0 s";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${Number(seconds.toFixed(1))} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3_600) return pair(whole, 60, "min", 1, "s");
  if (whole < 86_400) return pair(whole, 3_600, "h", 60, "min");
  return pair(whole, 86_400, "d", 3_600, "h");
}

function pair(whole, large, largeUnit, small, smallUnit) {
  const rest = Math.floor((whole % large) / small);
  return `${Math.floor(whole / large)} ${largeUnit}${rest ? ` ${rest} ${smallUnit}` : ""}`;
}

/** Seconds of a duration as the project file has it, 1h30m; null of anything else. */
export function parseDuration(text) {
  const found = typeof text === "string" && text ? DURATION.exec(text) : null;
  if (!found) return null;
  return Object.values(UNITS).reduce((sum, seconds, index) => sum + Number(found[index + 1] ?? 0) * seconds, 0);
}

export function bytes(count) {
  const power = count < 1 ? 0 : Math.min(SIZES.length - 1, Math.floor(Math.log2(count) / 10));
  const shown = count / 1024 ** power;
  return `${power && shown < 10 ? shown.toFixed(1) : Math.round(shown)} ${SIZES[power]}`;
}

export const number = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** An instant in the reader's own time: the time of today, else with the date. */
export function instant(iso) {
  const at = new Date(iso);
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString() : at.toLocaleString();
}
