/** How axes are labelled: ticks in one unit, which the axis title names. */

import type { ColumnType } from "../protocol";
import { grouped, visible } from "../text/plain";

const WORDS: readonly (readonly [exponent: number, word: string])[] = [
  [12, "trillions"],
  [9, "billions"],
  [6, "millions"],
  [3, "thousands"],
];

/** Return the power of ten the ticks are divided by, and its word; small numbers stay as they are. */
export function axisUnit(low: number, high: number): { exponent: number; word: string } {
  const most = Math.max(Math.abs(low), Math.abs(high));
  const found = most < 10_000 ? undefined : WORDS.find(([exponent]) => most >= 10 ** exponent);
  return found ? { exponent: found[0], word: found[1] } : { exponent: 0, word: "" };
}

/** Return the ticks as text, all with as many decimals as their step needs. */
export function tickTexts(ticks: readonly number[], exponent: number): string[] {
  const step = Math.abs((ticks[1] ?? 0) - (ticks[0] ?? 0)) / 10 ** exponent || 1;
  const decimals = Math.min(12, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  return ticks.map((tick) => tickText(tick / 10 ** exponent, decimals));
}

function tickText(tick: number, decimals: number): string {
  if (Math.abs(tick) >= 1e15) return tick.toExponential(1).replace("-", "−");
  const [whole = "", rest] = Math.abs(tick).toFixed(decimals).split(".");
  return (tick < 0 ? "−" : "") + grouped(whole) + (rest === undefined ? "" : `.${rest}`);
}

/** Return the title of an axis: the column's name and the unit of its ticks. */
export function axisTitle(name: string, word: string): string {
  return word ? `${visible(name)}, ${word}` : visible(name);
}

/** Return about how wide a text is in an 11 px label, in pixels: measuring it would cost a layout. */
export function textWidth(text: string): number {
  return 6.3 * text.length;
}

/** Return the text cut to a width in pixels, with an ellipsis where something is missing. */
export function fitted(text: string, width: number): string {
  if (textWidth(text) <= width) return text;
  const letters = Math.max(1, Math.floor(width / 6.3) - 1);
  return `${text.slice(0, letters)}…`;
}

/** Return texts cut to their widths. Those that become equal show what tells them apart instead of their ends. */
export function fittedApart(texts: readonly string[], width: (at: number) => number): string[] {
  const cut = texts.map((text, at) => fitted(text, width(at)));
  const alike = new Map<string, Set<string>>();
  cut.forEach((text, at) => {
    const group = alike.get(text) ?? new Set();
    alike.set(text, group.add(texts[at] ?? ""));
  });
  const apart = new Map([...alike].map(([text, group]) => [text, differences(group)]));
  const parted = texts.map((text, at) => {
    const from = apart.get(cut[at] ?? "")?.get(text) ?? -1;
    return from < 0 ? (cut[at] ?? "") : around(text, from, width(at));
  });
  const count = new Map<string, number>();
  return parted.map((text, at) => {
    const before = count.get(text) ?? 0;
    count.set(text, before + 1);
    return before > 0 && texts[at] !== text ? `${text} (${before + 1})` : text;
  });
}

/** Return of each text how many letters it begins with as another one does, −1 where there is no other one. */
function differences(texts: ReadonlySet<string>): Map<string, number> {
  const sorted = [...texts].sort(); // then one of its neighbours has most in common with it
  const beginning = (text: string, other: string | undefined) =>
    other === undefined ? -1 : commonLength(text, other);
  return new Map(
    sorted.map((text, at) => [
      text,
      Math.max(beginning(text, sorted[at - 1]), beginning(text, sorted[at + 1])),
    ]),
  );
}

/** Return a text cut to a width: its beginning, and from where it differs from those that look like it. */
function around(text: string, differs: number, width: number): string {
  const letters = Math.max(3, Math.floor(width / 6.3) - 2);
  const from = Math.min(text.length, differs);
  const rest = text.slice(Math.max(0, Math.min(from, text.length - Math.ceil(letters / 2))));
  const tail = rest.length > letters / 2 ? `${rest.slice(0, Math.ceil(letters / 2))}…` : rest;
  return `${text.slice(0, Math.max(1, letters - tail.length))}…${tail}`;
}

function commonLength(a: string, b: string): number {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at += 1;
  return at;
}

/** Return whether an axis of this type is a line of numbers or of time; otherwise it is a row of groups. */
export function isContinuous(type: ColumnType | undefined): boolean {
  return type === "number" || type === "date" || type === "timestamp";
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Return a moment of a time axis, in UTC, at the coarseness it falls on: 1994, Mar, 5 Mar, 12:30, :15. */
export function timeText(at: Date): string {
  const clock = [at.getUTCHours(), at.getUTCMinutes()].map((n) => String(n).padStart(2, "0")).join(":");
  if (at.getUTCSeconds()) return `${clock}:${String(at.getUTCSeconds()).padStart(2, "0")}`;
  if (at.getUTCHours() || at.getUTCMinutes()) return clock;
  const month = MONTHS[at.getUTCMonth()] ?? "";
  if (at.getUTCDate() !== 1) return `${at.getUTCDate()} ${month}`;
  return at.getUTCMonth() ? month : String(at.getUTCFullYear());
}
