/** Numbers to pixels along a line: what charts need of d3's linear scale, without its colours and formats. */

import { nice, ticks } from "d3-array";

export type Ends = readonly [number, number];

/** A value's place in pixels. Its domain and range are set by calling them with two ends, in the manner of d3. */
export interface LinearScale {
  (value: number): number;
  domain(): Ends;
  domain(ends: Ends): this;
  range(): Ends;
  range(ends: Ends): this;
  /** Widens the domain to round numbers, as about so many ticks have. */
  nice(count: number): this;
  ticks(count: number): number[];
}

/** Return a scale; a domain of one number alone lies in the middle of the range. */
export function scaleLinear(domain: Ends = [0, 1], range: Ends = [0, 1]): LinearScale {
  const place = (value: number): number => {
    const share = domain[0] === domain[1] ? 0.5 : (value - domain[0]) / (domain[1] - domain[0]);
    return range[0] * (1 - share) + range[1] * share;
  };
  const scale = Object.assign(place, {
    domain(ends?: Ends): Ends | LinearScale {
      if (!ends) return domain;
      domain = ends;
      return scale;
    },
    range(ends?: Ends): Ends | LinearScale {
      if (!ends) return range;
      range = ends;
      return scale;
    },
    nice: (count: number) => scale.domain(nice(...domain, count)),
    ticks: (count: number) => ticks(...domain, count),
  }) as LinearScale;
  return scale;
}
