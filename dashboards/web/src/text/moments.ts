/**
 * How dates and times with an interval are written: 2020-05-16 ± 12 days. And which periods of time a page may show.
 *
 * The half-width has two significant digits and a unit of time, and the moment is written as finely as that. The
 * terminal and HTML renderings of a snapshot do the same in Python (relaqs/rendering/rounding.py).
 */

import { type Cell, position } from "../answer/cells";
import type { Scalar } from "../protocol";
import { grouped } from "./plain";

const DAY = 86_400_000;
const MINUTE = 60_000;
const SECOND = 1_000;
const UNITS: readonly (readonly [string, number])[] = [
  ["days", DAY],
  ["h", 3_600_000],
  ["min", MINUTE],
  ["s", SECOND],
  ["ms", 1],
];
const SAME_SIDES = 0.1; // sides that differ by less than this share of the half-width are shown as one

/** Return a moment and its margin as text, or null where it is none, or its interval is shorter than a millisecond. */
export function showMoment(cell: Cell): { value: string; margin: string } | null {
  const [value, low, high] = [milliseconds(cell.value), milliseconds(cell.low), milliseconds(cell.high)];
  const [below, above] = [value - low, high - value];
  const half = (below + above) / 2;
  if (!(below >= 0 && above >= 0 && half >= 1)) return null;
  const [unit, size] = UNITS.find(([, each]) => each <= half) ?? ["ms", 1];
  const margin =
    Math.abs(above - below) < half * SAME_SIDES
      ? `± ${twoDigits(half / size)}`
      : `+${twoDigits(above / size)}/−${twoDigits(below / size)}`;
  return { value: asFine(String(cell.value), half), margin: `${margin} ${unit}` };
}

/** Return the milliseconds of a moment in ISO text, since 1970 or since midnight; NaN for anything else. */
function milliseconds(value: Scalar): number {
  if (typeof value !== "string") return NaN;
  if (/^\d\d:\d\d:\d\d(\.\d+)?$/.test(value)) return position(`1970-01-01T${value}`, "timestamp");
  return /^\d{4}-\d\d-\d\d([T ]|$)/.test(value) ? position(value, "timestamp") : NaN;
}

/** The first and the last day of a period, both included. */
export type Range = readonly [first: string, last: string];

interface Ends {
  readonly first: string;
  readonly last: string;
}

const LAST_DAYS: readonly (readonly [value: string, days: number, text: string])[] = [
  ["1", 1, "last day"],
  ["7", 7, "last 7 days"],
  ["30", 30, "last 30 days"],
  ["90", 90, "last 90 days"],
  ["365", 365, "last 365 days"],
];

/** What a page may show of the time. The last days are those of the data, and not of the calendar. */
export const PERIODS: readonly { readonly value: string; readonly text: string }[] = [
  { value: "all", text: "everything" },
  ...LAST_DAYS.map(([value, , text]) => ({ value, text: `${text} of the data` })),
  { value: "own", text: "from … to …" },
];

/** Return the days of a period; null for all of them. */
export function rangeOfPeriod(ends: Ends, period: string): Range | null {
  const days = LAST_DAYS.find(([value]) => value === period)?.[1];
  return days === undefined ? null : [dayBefore(ends.last, days - 1), ends.last];
}

/** Return which period a range is, "own" where it is none of them. */
export function periodOf(ends: Ends, range: Range): string {
  const isIt = ([value]: readonly [string, number, string]): boolean =>
    JSON.stringify(rangeOfPeriod(ends, value)) === JSON.stringify(range);
  return LAST_DAYS.find(isIt)?.[0] ?? "own";
}

function dayBefore(day: string, days: number): string {
  return new Date(Date.parse(`${day}T00:00:00Z`) - days * DAY).toISOString().slice(0, 10);
}

const GRAIN_DAYS: readonly (readonly [unit: string, days: number])[] = [
  ["minute", 1 / 1440],
  ["hour", 1 / 24],
  ["day", 1],
  ["week", 7],
  ["month", 30],
  ["quarter", 91],
  ["year", 365],
];
const MOST_PERIODS = 1000; // as many rows of an answer come to the page

/** Return the units by which a range can be shown. */
export function grainsOf([first, last]: Range, hasHours: boolean): string[] {
  const days = (Date.parse(last) - Date.parse(first)) / DAY + 1;
  const fits = (size: number): boolean => days / size <= MOST_PERIODS && (size <= days || size === 1);
  return GRAIN_DAYS.filter(([, size]) => fits(size) && (hasHours || size >= 1)).map(([unit]) => unit);
}

function twoDigits(number: number): string {
  return number < 9.95 ? number.toFixed(1) : grouped(Math.round(number).toFixed(0));
}

/** Return ISO text as finely as a half-width in milliseconds tells it. */
function asFine(iso: string, half: number): string {
  const [, day = "", time = "", zone = ""] = /^(?:(\d{4}-\d\d-\d\d)[T ]?)?([\d:.]*)(.*)$/.exec(iso) ?? [];
  if (time === "" || (day !== "" && half >= 10 * DAY)) return day;
  const shown = time.slice(0, half >= 10 * MINUTE ? 5 : half >= 10 * SECOND ? 8 : 12);
  return (day === "" ? shown : `${day} ${shown}`) + zone;
}
