/** How exact values, counts, shares and times are written. */

import type { ColumnType, Scalar } from "../protocol";

const THIN = "\u00a0"; // between a number and its unit: never a line's end

/** Return an exact value in full; numbers get thousands separators from `groupFrom` on. */
export function showValue(value: Scalar, type: ColumnType = "text", groupFrom = 10_000): string {
  if (value === null) return "NULL";
  if (typeof value === "boolean") return value ? "true" : "false";
  if (typeof value === "number" || type === "number") return showNumber(String(value), groupFrom);
  if (type === "timestamp")
    return visible(
      String(value)
        .replace("T", " ")
        .replace(/ 00:00:00(\.0+)?$/, ""),
    );
  const text = visible(String(value));
  return type === "text" && UNCLEAR.test(String(value)) ? `'${text}'` : text;
}

/** Text in quotes: what is written like NULL, what begins or ends blank, and what has quotes around it already. */
const UNCLEAR = /^$|^NULL$|^[^\S\u0000-\u001f]|[^\S\u0000-\u001f]$|^'[^]*'$/;

/** Return the keys of a column as text: midnights with a zone are days where all are, and stay apart. */
export function showKeys(values: readonly Scalar[], type: ColumnType): string[] {
  const texts = values.map((value) => showValue(value, type));
  if (type !== "timestamp") return texts;
  const days = texts.map((text) => text.replace(/ 00:00(:00(\.0+)?)?([+-]\d\d(:?\d\d)*|Z)$/, ""));
  const isDays = days.every((day) => day === "NULL" || /^[+-]?\d+-\d\d-\d\d$/.test(day));
  return isDays && new Set(days).size === new Set(texts).size ? days : texts;
}

export const DIGITS_OF_A_MEASURE = 6;

/** Return an exact number that was computed: six digits, but all before the point. Exports have all digits. */
export function showMeasured(value: Scalar, type: ColumnType): string {
  const number = type === "number" && value !== null ? Number(value) : NaN;
  if (!Number.isFinite(number) || number === 0) return showValue(value, type, 1_000);
  const places = Math.max(0, DIGITS_OF_A_MEASURE - 1 - exponentOf(Math.abs(number), 17));
  const [, decimals = ""] = String(value).split(".");
  const cents = typeof value === "string" ? 2 : 0; // a decimal's own, such as of money
  if (/e/i.test(String(value)) || decimals.length <= Math.max(places, cents) || Math.abs(number) >= 1e15)
    return showValue(places > 100 ? Number(number.toPrecision(DIGITS_OF_A_MEASURE)) : value, type, 1_000);
  const rounded = number.toFixed(Math.min(100, Math.max(places, cents)));
  return showValue(cents > 0 ? rounded : String(Number(rounded)), type, 1_000);
}

/** Return a number's decimal text with its integer digits in groups of three. */
function showNumber(text: string, groupFrom: number): string {
  const parts = /^(-?)(\d+)(\.\d+)?$/.exec(text);
  if (!parts) return text.replace("Infinity", "inf");
  const [, sign = "", whole = "", decimals = ""] = parts;
  const small = whole.length < 16 && Number(whole) < groupFrom;
  return (sign ? "−" : "") + (small ? whole : grouped(whole)) + decimals;
}

export function grouped(digits: string): string {
  return digits.replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Return the text with control and direction characters spelled out, so that it cannot rearrange the page. */
export function visible(text: string): string {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Return a share in percent with two significant digits, and never "100 %" below the whole. */
export function showPercent(share: number): string {
  const percent = share * 100;
  if (!Number.isFinite(percent)) return "?";
  let decimals = percent > 0 ? Math.max(0, 1 - exponentOf(percent, 2)) : 0;
  while (share < 1 && decimals < 6 && Number(percent.toFixed(decimals)) >= 100) decimals += 1;
  return `${percent.toFixed(decimals)}${THIN}%`;
}

/** Return a share that somebody chose, as they chose it: ±1 %, not ±1.0 %. */
export function showChosen(share: number): string {
  return `±${Number((100 * share).toPrecision(3))}${THIN}%`;
}

/** Return the power of ten of a number's first digit, once it is rounded to `digits` digits. */
export function exponentOf(number: number, digits: number): number {
  return Number(number.toExponential(digits - 1).split("e")[1]);
}

const COUNT_UNITS = ["", "k", "M", "B", "T"];

/** Return a count in three digits: 15.4 M. */
export function showCount(count: number): string {
  if (count < 10_000) return grouped(count.toFixed(0));
  const power = Math.min(4, Math.floor(exponentOf(count, 3) / 3));
  const digits = (count / 1000 ** power).toPrecision(3);
  return `${digits.includes("e") ? grouped((count / 1000 ** power).toFixed(0)) : digits}${THIN}${COUNT_UNITS[power]}`;
}

/** Return a time that was measured: 10.0 s, 2 min 05 s, 1 h 02 min. */
export function showSeconds(seconds: number): string {
  if (seconds < 99.95) return `${seconds.toFixed(1)}${THIN}s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)}${THIN}min ${two(whole % 60)}${THIN}s`;
  return `${Math.floor(whole / 3600)}${THIN}h ${two(Math.floor((whole % 3600) / 60))}${THIN}min`;
}

/** Return a time that is only predicted, in no more digits than a prediction has. */
export function showAbout(seconds: number): string {
  if (seconds < 1) return `1${THIN}s`;
  if (seconds < 10) return `${Math.round(seconds)}${THIN}s`;
  if (seconds < 90) return `${5 * Math.round(seconds / 5)}${THIN}s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)}${THIN}min`;
  return `${Math.round(seconds / 3600)}${THIN}h`;
}

/** Return a number of cores; a little is not nothing. */
export function showCores(cores: number): string {
  return cores > 0 && cores < 0.05 ? "<0.1" : cores.toFixed(1);
}

/** Return the local time of day, 14:03:09. */
export function showClock(epochMilliseconds: number): string {
  const at = new Date(epochMilliseconds);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}
