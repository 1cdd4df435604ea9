/** What of an interval is drawn solid, faded and open: pure geometry in data units. */

import type { Span } from "../answer/cells";

/** A bar from zero: sure of [solid], perhaps reaching to the other end of [faded]; open: it may go on. */
export interface BarShape {
  readonly solid: readonly [number, number];
  readonly faded: readonly [number, number] | null;
  readonly open: "up" | "down" | null;
}

export function barShape(span: Span): BarShape {
  const { value, low, high } = span;
  switch (span.knowledge) {
    case "exact":
      return { solid: [0, value], faded: null, open: null };
    case "unknown":
      return { solid: [0, 0], faded: [Math.min(0, value), Math.max(0, value)], open: null };
    case "at_least":
      return { solid: [0, Math.max(0, value)], faded: Number.isFinite(high) ? [value, high] : null, open: "up" };
    case "at_most":
      return { solid: [0, 0], faded: [Number.isFinite(low) ? low : Math.min(0, value), value], open: "down" };
    case "between":
      return { solid: [0, nearest(low, high)], faded: finiteEnds(low, high, value), open: openSide(low, high) };
  }
}

/** Return the end of the interval nearer to zero; zero where it holds zero. */
function nearest(low: number, high: number): number {
  if (low > 0) return low;
  return high < 0 ? high : 0;
}

function finiteEnds(low: number, high: number, value: number): readonly [number, number] {
  return [Number.isFinite(low) ? low : Math.min(0, value), Number.isFinite(high) ? high : Math.max(0, value)];
}

function openSide(low: number, high: number): "up" | "down" | null {
  if (!Number.isFinite(high)) return "up";
  return Number.isFinite(low) ? null : "down";
}

/** Return the places of labels of one height that want to stand at `wanted` (ascending) without touching. */
export function spread(wanted: readonly number[], height: number, top: number, bottom: number): number[] {
  const placed = [...wanted];
  for (let at = 0; at < placed.length; at += 1) {
    const least = at === 0 ? top : (placed[at - 1] ?? top) + height;
    placed[at] = Math.max(placed[at] ?? 0, least);
  }
  for (let at = placed.length - 1; at >= 0; at -= 1) {
    const most = at === placed.length - 1 ? bottom : (placed[at + 1] ?? bottom) - height;
    placed[at] = Math.min(placed[at] ?? 0, most);
  }
  return placed;
}
