// Numbers, sizes and moments as people read them.

const COUNT = new Intl.NumberFormat("en");
const SIZES = ["B", "KB", "MB", "GB", "TB", "PB"];

/** 12,345 */
export function count(value) {
  return value === null || value === undefined ? "–" : COUNT.format(value);
}

/** "1 row", "2 rows" */
export function some(value, word) {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}

/** 1.4 MB; powers of 1,000. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < SIZES.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${SIZES[unit]}`;
}

/** 8 ms, 1.4 s, 3 min 20 s, 2 h 5 min */
export function took(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** 14:03:09, as of the clock of whoever looks. */
export function moment(ms) {
  if (!ms) return "–";
  const date = new Date(ms);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

/** The whole moment, for titles. */
export function whole(ms) {
  return ms ? new Date(ms).toISOString() : "";
}

/** A share of something, 0 to 100. */
export function share(part, all) {
  return all > 0 ? Math.max(0, Math.min(100, (100 * part) / all)) : 0;
}
