/** What an axis must show, and one that grows at once and shrinks rarely. */

import { extentOf, isDoubtfulSpan, type Span } from "../answer/cells";

const SHRINK_BELOW = 0.7; // of the present length
const SHRINK_AFTER_MS = 3_000;

export type Domain = readonly [low: number, high: number];

/** Holds the domain of one axis between updates. Times are milliseconds on the caller's clock. */
export class SteadyDomain {
  private current: Domain | null = null;
  private tooLongSince: number | null = null;

  /** Return a domain that holds `needed`: the present one where it is neither too short nor far too long. */
  fit(needed: Domain, now: number): Domain {
    const current = this.current;
    if (current === null || needed[0] < current[0] || needed[1] > current[1]) {
      return this.set(current === null ? needed : union(current, needed));
    }
    if (length(needed) >= SHRINK_BELOW * length(current)) {
      this.tooLongSince = null;
      return current;
    }
    this.tooLongSince ??= now;
    return now - this.tooLongSince >= SHRINK_AFTER_MS ? this.set(needed) : current;
  }

  /** Take the needed domain as it is, whatever was shown before. */
  settle(needed: Domain): Domain {
    return this.set(needed);
  }

  private set(domain: Domain): Domain {
    this.tooLongSince = null;
    this.current = domain;
    return domain;
  }
}

function union(a: Domain, b: Domain): Domain {
  return [Math.min(a[0], b[0]), Math.max(a[1], b[1])];
}

function length(domain: Domain): number {
  return domain[1] - domain[0];
}

const ROOM = 1; // of the length of the certified values, on either side of them

/**
 * Return what an axis should hold of some values. Where most are certified they alone set its length: one wild
 * estimate must not make all others flat. It is drawn at the axis's end then, until it is known better.
 */
export function extentsOf(spans: readonly Span[]): Domain[] {
  const sure = spans.filter((span) => !isDoubtfulSpan(span)).map(extentOf);
  if (2 * sure.length <= spans.length) return spans.map(extentOf);
  const [low, high] = hull(sure);
  const room = ROOM * (high - low);
  const near = spans.filter(({ value }) => low - room <= value && value <= high + room);
  return [...sure, ...near.filter(isDoubtfulSpan).map(({ value }): Domain => [value, value])];
}

/** Return a note where values lie beyond an axis. */
export function beyondNotes(spans: readonly Span[], [low, high]: Domain): string[] {
  const count = spans.filter(({ value }) => value < low || value > high).length;
  return count > 0 ? [`${count} not certified beyond the axis`] : [];
}

/** Return the smallest domain that holds all extents; [0, 1] where there are none, and never a point. */
export function hull(extents: Iterable<Domain>): Domain {
  let low = Infinity;
  let high = -Infinity;
  for (const extent of extents) {
    if (extent[0] < low) low = extent[0];
    if (extent[1] > high) high = extent[1];
  }
  if (low > high) return [0, 1];
  if (low < high) return [low, high];
  const room = Math.abs(low) / 20 || 1;
  return [low - room, high + room];
}
