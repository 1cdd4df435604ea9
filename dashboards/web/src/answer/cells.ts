/** Cells of an answer as values with an interval. */

import type { ApproximateCell, ColumnType, Scalar, WireCell } from "../protocol";

/**
 * What is known of a value.
 * exact: final, be it that there is no value. between: an interval around it. at_least, at_most: the value is itself a bound.
 * unknown: nothing bounds it yet.
 */
export type Knowledge = "exact" | "between" | "at_least" | "at_most" | "unknown";

export interface Cell {
  readonly value: Scalar;
  readonly low: Scalar;
  readonly high: Scalar;
  readonly certified: boolean;
  readonly knowledge: Knowledge;
}

export function cellOf(wire: WireCell): Cell {
  if (!isApproximate(wire)) {
    return { value: wire, low: wire, high: wire, certified: true, knowledge: "exact" };
  }
  const [value, low, high, certified] = wire;
  const isNothing = value === null && low === null && high === null && certified;
  return { value, low, high, certified, knowledge: isNothing ? "exact" : knowledgeOf(value, low, high) };
}

export function isApproximate(wire: WireCell): wire is ApproximateCell {
  return Array.isArray(wire);
}

function knowledgeOf(value: Scalar, low: Scalar, high: Scalar): Knowledge {
  if (low === null && high === null) return "unknown";
  if (same(value, low) && same(value, high)) return "exact";
  if (same(value, low)) return "at_least";
  if (same(value, high)) return "at_most";
  return "between";
}

function same(value: Scalar, bound: Scalar): boolean {
  if (value === null || bound === null) return false;
  return value === bound || (typeof value !== typeof bound && Number(value) === Number(bound));
}

/** Whether a reader must be told that nobody vouches for the interval. */
export function isDoubtful(cell: Cell): boolean {
  return !cell.certified && cell.knowledge !== "exact";
}

/** Return where a value stands on an axis: numbers as they are, dates in epoch milliseconds; NaN: nowhere. */
export function position(value: Scalar, type: ColumnType): number {
  if (value === null || value === "") return NaN;
  if (type === "number") return Number(value);
  if (type === "bool") return value ? 1 : 0;
  if (type === "text") return NaN;
  return epochMilliseconds(String(value));
}

/** ISO text without a zone is read as UTC, so that a date is the same day everywhere. */
function epochMilliseconds(iso: string): number {
  const text = iso.trim().replace(" ", "T");
  if (/^[+-]?\d{4,6}-\d\d-\d\d$/.test(text)) return Date.parse(`${text}T00:00:00Z`);
  return Date.parse(/(Z|[+-]\d\d(:?\d\d)?)$/.test(text) ? text : `${text}Z`);
}

/** An interval on an axis. low, high: infinite where the side is open. */
export interface Span {
  readonly value: number;
  readonly low: number;
  readonly high: number;
  readonly knowledge: Knowledge;
  readonly certified: boolean;
}

/** Return the cell as numbers, or null where the value is none. */
export function spanOf(cell: Cell, type: ColumnType = "number"): Span | null {
  const value = position(cell.value, type);
  if (!Number.isFinite(value)) return null;
  const low = position(cell.low, type);
  const high = position(cell.high, type);
  return {
    value,
    low: Number.isFinite(low) ? low : -Infinity,
    high: Number.isFinite(high) ? high : Infinity,
    knowledge: cell.knowledge,
    certified: cell.certified,
  };
}

export function isDoubtfulSpan(span: Span): boolean {
  return !span.certified && span.knowledge !== "exact";
}

/** Return the ends an axis should make room for: bounded sides only, doubtful ones at most the value itself away. */
export function extentOf(span: Span): [number, number] {
  if (span.knowledge === "unknown") return [span.value, span.value];
  const reach = span.certified ? Infinity : Math.abs(span.value);
  const low = Number.isFinite(span.low) ? Math.max(span.low, span.value - reach) : span.value;
  const high = Number.isFinite(span.high) ? Math.min(span.high, span.value + reach) : span.value;
  return [Math.min(low, span.value), Math.max(high, span.value)];
}

/** Whether the order of two values may still turn: their intervals overlap. */
export function mayTurn(a: Span, b: Span): boolean {
  if (a.knowledge === "exact" && b.knowledge === "exact") return false;
  if (a.knowledge === "unknown" || b.knowledge === "unknown") return true;
  return a.low <= b.high && b.low <= a.high;
}
