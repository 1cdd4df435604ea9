/**
 * How estimates are written: the interval decides how many digits a value may show.
 *
 * A half-width is written with two significant digits and the value to the same decimal place (GUM 7.2.6), so
 * `120.0 M ± 3.1 M`. Numbers of a column share one suffix. What is exact has six digits. The terminal and
 * HTML renderings of a snapshot do the same in Python (relaqs/rendering/rounding.py).
 */

import { type Cell, isDoubtful } from "../answer/cells";
import type { ColumnType, Scalar } from "../protocol";
import { showMoment } from "./moments";
import { DIGITS_OF_A_MEASURE, exponentOf, grouped, showMeasured, showValue } from "./plain";

export const UNKNOWN = "±?";
const SPACE = "\u00a0";
const SUFFIXES: Readonly<Record<number, string>> = {
  0: "",
  3: `${SPACE}k`,
  6: `${SPACE}M`,
  9: `${SPACE}B`,
  12: `${SPACE}T`,
};
const SMALLEST_PLAIN = -4; // powers of ten; beyond these a number is written as 1.5e-7
const LARGEST_PLAIN = 17;
const MOST_DECIMALS = 4;
const SAME_SIDES = 0.1; // sides that differ by less than this share of the half-width are shown as one

/** A cell as text. margin: "± 3.1 M", "+1.9/−1.5 M", "(≤ 8.0)", "±?", or "" where the value is exact. */
export interface Shown {
  readonly value: string;
  readonly margin: string;
  readonly doubtful: boolean;
}

/** The power of ten a column is written in, and the text that says so. */
export interface Unit {
  readonly exponent: number;
  readonly text: string;
}

export const ONES: Unit = { exponent: 0, text: "" };

/** Return the cells of one column as text, in one common unit. */
export function showColumn(cells: readonly Cell[], type: ColumnType): Shown[] {
  const unit = commonUnit(cells.filter((cell) => isSpread(cell, type)));
  return cells.map((cell) => ({ ...show(cell, type, unit), doubtful: isDoubtful(cell) }));
}

/** Return exact numbers below each other with one count of decimals, which the largest of them sets. */
export function aligned(texts: readonly string[]): string[] {
  const numbers = texts.filter((text) => PLAIN_NUMBER.test(text));
  const whole = Math.max(
    1,
    ...numbers.map((text) => /^−?([\d,]+)/.exec(text)?.[1]?.replace(/,/g, "").length ?? 1),
  );
  const most = Math.max(0, ...numbers.map(decimalsOf));
  const decimals = Math.min(most, Math.max(2, DIGITS_OF_A_MEASURE - whole));
  return texts.map((text) => (PLAIN_NUMBER.test(text) ? withDecimals(text, decimals) : text));
}

const PLAIN_NUMBER = /^−?[\d,]+(\.\d+)?$/;

function decimalsOf(text: string): number {
  return text.split(".")[1]?.length ?? 0;
}

/** Return the number with so many decimals; one that would have less than three digits left stays as it is. */
function withDecimals(text: string, decimals: number): string {
  const own = decimalsOf(text);
  if (own <= decimals)
    return decimals === 0 ? text : `${text}${own === 0 ? "." : ""}${"0".repeat(decimals - own)}`;
  const number = Number(text.replace(/,/g, "").replace("−", "-"));
  if (Math.abs(number) < 10 ** (2 - decimals)) return text;
  return showValue(number.toFixed(decimals), "number", 1_000);
}

export function fullText(shown: Shown): string {
  return [shown.value, shown.margin, shown.doubtful ? "not certified" : ""].filter(Boolean).join(" ");
}

type Text = Pick<Shown, "value" | "margin">;

function show(cell: Cell, type: ColumnType, unit: Unit): Text {
  switch (cell.knowledge) {
    case "exact":
      return { value: showMeasured(cell.value, type), margin: "" };
    case "at_least":
      return { value: `≥ ${showValue(cell.value, type)}`, margin: beyond("≤", cell.value, cell.high, type) };
    case "at_most":
      return { value: `≤ ${showValue(cell.value, type)}`, margin: beyond("≥", cell.value, cell.low, type) };
    case "unknown":
      return { value: showUnbounded(cell.value, type), margin: UNKNOWN };
    case "between":
      if (isSpread(cell, type)) return showSpread(cell, unit);
      if (isNumberAsText(cell, type)) return showSpread(cell, ONES);
      if (type !== "number") {
        const moment = showMoment(cell);
        if (moment !== null) return moment;
      }
      return {
        value: showValue(cell.value, type),
        margin: cell.value === null ? UNKNOWN : showEnds(cell, type),
      };
  }
}

function isSpread(cell: Cell, type: ColumnType): boolean {
  return type === "number" && cell.knowledge === "between" && Number.isFinite(finite(cell.value));
}

/** Whether a text and both of its ends are numbers, as SUMMARIZE gives them. */
function isNumberAsText(cell: Cell, type: ColumnType): boolean {
  const parts = [cell.value, cell.low, cell.high];
  return type === "text" && parts.every((part) => typeof part === "string" && Number.isFinite(finite(part)));
}

function finite(value: Scalar): number {
  return value === null || value === "" || typeof value === "boolean" ? NaN : Number(value);
}

function halfWidth(cell: Cell): number {
  const [value, low, high] = [finite(cell.value), finite(cell.low), finite(cell.high)];
  if (Number.isNaN(low)) return Math.abs(high - value);
  return Number.isNaN(high) ? Math.abs(value - low) : (high - low) / 2;
}

function showSpread(cell: Cell, column: Unit): Text {
  const [value, low, high] = [finite(cell.value), finite(cell.low), finite(cell.high)];
  const own = unitOf(Math.max(Math.abs(value), halfWidth(cell)));
  const unit = own.exponent >= 0 ? column : own;
  const place = placeOf(halfWidth(cell));
  return {
    value: write(value, ownPlace(value, place), unit) + unit.text,
    margin: margin(value, low, high, place, unit) + closing(low, high, unit),
  };
}

function closing(low: number, high: number, unit: Unit): string {
  return unit.text + (Number.isNaN(low) || Number.isNaN(high) ? ")" : "");
}

function margin(value: number, low: number, high: number, place: number, unit: Unit): string {
  if (Number.isNaN(high)) return `(≥ ${write(low, place, unit)}`;
  if (Number.isNaN(low)) return `(≤ ${write(high, place, unit)}`;
  const [above, below, half] = [high - value, value - low, (high - low) / 2];
  if (above < 0 || below < 0) return `in ${write(low, place, unit)} … ${write(high, place, unit)}`;
  if (Math.abs(above - below) < Math.max(10 ** place, half * SAME_SIDES))
    return `± ${write(half, place, unit)}`;
  const [up, down] = [above, below].map((side) => write(side, ownPlace(side, place), unit));
  return `+${up}/−${down}`;
}

function showEnds(cell: Cell, type: ColumnType): string {
  if (cell.low === null) return `(≤ ${showValue(cell.high, type)})`;
  if (cell.high === null) return `(≥ ${showValue(cell.low, type)})`;
  return `in ${showValue(cell.low, type)} … ${showValue(cell.high, type)}`;
}

/** Return the far bound of a value that is itself a bound, rounded outwards; "" where there is none. */
function beyond(sign: string, value: Scalar, bound: Scalar, type: ColumnType): string {
  if (bound === null) return "";
  const [near, far] = [finite(value), finite(bound)];
  if (type !== "number" || Number.isNaN(far) || far === near) return `(${sign} ${showValue(bound, type)})`;
  const unit = unitOf(far);
  return `(${sign} ${write(far, placeOf(Math.abs(far - near)), unit, far > near ? Math.ceil : Math.floor)}${unit.text})`;
}

/** Return a value of which nothing is known: a number keeps three digits, anything else is itself. */
function showUnbounded(value: Scalar, type: ColumnType): string {
  const number = finite(value);
  if (type !== "number" || !Number.isFinite(number) || number === 0) return showValue(value, type);
  const unit = unitOf(number);
  return write(number, exponentOf(Math.abs(number), 3) - 2, unit) + unit.text;
}

/** Return the interval's two ends in the unit and to the place of its estimate: "116.9 M to 123.1 M". */
export function showInterval(cell: Cell): string {
  const place = placeOf(halfWidth(cell));
  const unit = commonUnit([cell]);
  const [low, high] = [finite(cell.low), finite(cell.high)];
  if (Number.isNaN(low)) return `at most ${write(high, place, unit, Math.ceil)}${unit.text}`;
  if (Number.isNaN(high)) return `at least ${write(low, place, unit, Math.floor)}${unit.text}`;
  return `${write(low, place, unit)}${unit.text} to ${write(high, place, unit)}${unit.text}`;
}

/** Return the unit of the largest number, smaller where another number would trail too many decimals. */
function commonUnit(cells: readonly Cell[]): Unit {
  if (cells.length === 0) return ONES;
  const unit = unitOf(
    Math.max(...cells.map((cell) => Math.max(Math.abs(finite(cell.value)), halfWidth(cell)))),
  );
  const finest = Math.min(...cells.map((cell) => ownPlace(finite(cell.value), placeOf(halfWidth(cell)))));
  let exponent = unit.exponent;
  while (unit.exponent in SUFFIXES && exponent > 0 && exponent - finest > MOST_DECIMALS) exponent -= 3;
  return suffixed(exponent) ?? unit;
}

function suffixed(exponent: number): Unit | null {
  const text = SUFFIXES[exponent];
  return text === undefined ? null : { exponent, text };
}

export function unitOf(number: number): Unit {
  const power = number ? exponentOf(Math.abs(number), 17) : 0;
  if (power < SMALLEST_PLAIN || power > LARGEST_PLAIN) return { exponent: power, text: `e${power}` };
  return suffixed(Math.min(12, Math.max(0, Math.floor(power / 3) * 3))) ?? ONES;
}

/** Return the decimal place (a power of ten) of the second significant digit, after rounding to it. */
export function placeOf(half: number): number {
  return half > 0 && Number.isFinite(half) ? exponentOf(half, 2) - 1 : 0;
}

/** Return the place, or that of the number's first digit where this is up to four places finer. */
function ownPlace(number: number, place: number): number {
  const first = number ? exponentOf(Math.abs(number), 17) : place;
  return place - MOST_DECIMALS <= first && first < place ? first : place;
}

/** Return the number rounded to 10**place, in this unit, without its text. */
export function write(
  number: number,
  place: number,
  unit: Unit,
  round: (x: number) => number = Math.round,
): string {
  const decimals = Math.min(100, Math.max(0, unit.exponent - place));
  const shift = place - unit.exponent; // of the rounded digit against the unit's one
  const scaled = scale(number, -unit.exponent);
  const rounded = round === Math.round && shift <= 0 ? scaled : scale(round(scale(number, -place)), shift);
  const text = Math.abs(rounded).toFixed(decimals);
  const [whole = "", rest] = text.split(".");
  const sign = rounded < 0 && Number(text) !== 0 ? "−" : "";
  return sign + (whole.includes("e") ? whole : grouped(whole)) + (rest === undefined ? "" : `.${rest}`);
}

/** Return number × 10**power without the error of 10**-n, which no float holds. */
function scale(number: number, power: number): number {
  return power >= 0 ? number * 10 ** power : number / 10 ** -power;
}
