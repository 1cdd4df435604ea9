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
  /** Puts values beyond the domain at its ends. */
  clamp(): this;
}

/** Return a scale by the logarithm of values above 0. Its round numbers are 1, 2 and 5 times powers of ten. */
export function scaleLog(): LinearScale {
  const log = (value: number): number => Math.log10(Math.max(value, Number.MIN_VALUE));
  const inside = scaleLinear();
  let domain: Ends = [1, 10];
  const scale = Object.assign((value: number): number => inside(log(value)), {
    domain(ends?: Ends): Ends | LinearScale {
      if (!ends) return domain;
      domain = ends;
      inside.domain([log(ends[0]), log(ends[1])]);
      return scale;
    },
    range(ends?: Ends): Ends | LinearScale {
      if (!ends) return inside.range();
      inside.range(ends);
      return scale;
    },
    nice: () => {
      const power = (value: number, round: (x: number) => number): number => 10 ** round(log(value));
      const [low, high] = [power(domain[0], Math.floor), power(domain[1], Math.ceil)];
      return scale.domain(low < high ? [low, high] : [low, 10 * low]);
    },
    ticks: (count: number) => {
      const powers: number[] = [];
      for (let at = domain[0]; at <= domain[1] * 1.0001; at *= 10) powers.push(at);
      const fine = powers.flatMap((each) => [each, 2 * each, 5 * each]).filter((each) => each <= domain[1]);
      const step = Math.max(1, Math.ceil(powers.length / Math.max(1, count)));
      return fine.length <= count ? fine : powers.filter((_, at) => at % step === 0);
    },
    clamp: () => {
      inside.clamp();
      return scale;
    },
  }) as LinearScale;
  return scale;
}

/** Return a scale; a domain of one number alone lies in the middle of the range. */
export function scaleLinear(domain: Ends = [0, 1], range: Ends = [0, 1]): LinearScale {
  let isClamped = false;
  const place = (value: number): number => {
    let share = domain[0] === domain[1] ? 0.5 : (value - domain[0]) / (domain[1] - domain[0]);
    if (isClamped) share = Math.min(1, Math.max(0, share));
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
    clamp: () => {
      isClamped = true;
      return scale;
    },
  }) as LinearScale;
  return scale;
}
