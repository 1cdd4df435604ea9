/** The bottom of a chart where it is a line of numbers or of time. */

import { scaleLinear } from "./scale";
import { utcTicks } from "d3-time";
import type { ColumnType } from "../protocol";
import { tickTexts, timeText } from "./axis_text";
import type { Tick } from "./frame";
import type { Domain } from "./steady";

const PIXELS_A_TICK = 90;
const LEAST_GROUPED = 10_000; // below, numbers may be years

export interface Bottom {
  readonly at: (value: number) => number;
  readonly ticks: readonly Tick[];
}

/** domain: numbers, or epoch milliseconds where the type is one of time. */
export function continuousBottom(
  type: ColumnType | undefined,
  domain: Domain,
  left: number,
  right: number,
): Bottom {
  const count = Math.max(2, Math.floor((right - left) / PIXELS_A_TICK));
  const scale = scaleLinear().domain(domain).range([left, right]);
  if (type === "date" || type === "timestamp") {
    const moments = utcTicks(new Date(domain[0]), new Date(domain[1]), count);
    return {
      at: scale,
      ticks: moments.map((moment) => tickOf(Number(moment), scale(Number(moment)), timeText(moment))),
    };
  }
  const values = scale.ticks(count);
  const texts = numberTexts(values);
  return { at: scale, ticks: values.map((value, at) => tickOf(value, scale(value), texts[at] ?? "")) };
}

function tickOf(value: number, at: number, text: string): Tick {
  return { key: String(value), at, text };
}

function numberTexts(values: readonly number[]): string[] {
  const texts = tickTexts(values, 0);
  return values.every((value) => Math.abs(value) < LEAST_GROUPED)
    ? texts.map((text) => text.replace(",", ""))
    : texts;
}
