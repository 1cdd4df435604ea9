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
      return {
        solid: [0, Math.max(0, value)],
        faded: Number.isFinite(high) ? [value, high] : null,
        open: "up",
      };
    case "at_most":
      return { solid: [0, 0], faded: [Number.isFinite(low) ? low : Math.min(0, value), value], open: "down" };
    case "between":
      return {
        solid: [0, nearest(low, high)],
        faded: finiteEnds(low, high, value),
        open: openSide(low, high),
      };
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

export interface Box {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

const LABEL_HEIGHT = 13;
const POINT_RADIUS = 5;

/** Return where the label of each point may stand: right above, left above, or below; null where it cannot. */
export function labelPlaces(
  points: readonly { x: number; y: number; width: number }[],
  edge: number,
): (Box | null)[] {
  const taken = points.map(({ x, y }) =>
    boxAt(x - POINT_RADIUS, y + POINT_RADIUS, 2 * POINT_RADIUS, 2 * POINT_RADIUS),
  );
  return points.map(({ x, y, width }) => {
    const [right, left, above, below] = [x + 7, x - 7 - width, y, y + LABEL_HEIGHT];
    const places = [
      [right, above],
      [left, above],
      [right, below],
      [left, below],
    ] as const;
    const boxes = places.map(([from, bottom]) => boxAt(from, bottom, width, LABEL_HEIGHT));
    const free = boxes.find(
      (box) => box.left >= 0 && box.right <= edge && !taken.some((other) => touch(box, other)),
    );
    if (free) taken.push(free);
    return free ?? null;
  });
}

function boxAt(left: number, bottom: number, width: number, height: number): Box {
  return { left, right: left + width, top: bottom - height, bottom };
}

function touch(a: Box, b: Box): boolean {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}
