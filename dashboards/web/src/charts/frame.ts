/** The ground of a drawn chart: an SVG with layers, axes and grid, drawn in place. */

import { type LinearScale, scaleLinear, scaleLog } from "./scale";
import { type BaseType, select, type Selection } from "d3-selection";
import { byName } from "../answer/order";
import { element, setAttribute } from "../dom";
import { showCount } from "../text/plain";
import { axisTitle, axisUnit, textWidth, tickTexts } from "./axis_text";
import type { Picture, Size } from "./chart";
import { type Domain, hull, SteadyDomain } from "./steady";

export type Layer = Selection<SVGGElement, unknown, null, undefined>;

export interface Margins {
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
  readonly left: number;
}

const SVG = "http://www.w3.org/2000/svg";
const PIXELS_A_TICK = 34;
const GRID = ["grid", "body", "axis", "over"] as const;

export class Frame {
  readonly root = element("div", { class: "drawing" });
  readonly svg: SVGSVGElement;
  private readonly layers: Readonly<Record<(typeof GRID)[number], Layer>>;

  constructor() {
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("aria-label", "Chart, not drawn yet");
    this.root.append(this.svg);
    const layer = (name: string): Layer => select(this.svg).append("g").attr("class", name);
    this.layers = { grid: layer("grid"), body: layer("body"), axis: layer("axis"), over: layer("over") };
  }

  get grid(): Layer {
    return this.layers.grid;
  }
  get body(): Layer {
    return this.layers.body;
  }
  get axis(): Layer {
    return this.layers.axis;
  }
  get over(): Layer {
    return this.layers.over;
  }

  resize(size: Size, label: string): void {
    setAttribute(this.svg, "width", size.width);
    setAttribute(this.svg, "height", size.height);
    setAttribute(this.svg, "aria-label", label);
  }
}

/** Join data to elements of one class by key, in place. */
export function join<Tag extends keyof SVGElementTagNameMap, Datum>(
  layer: Layer,
  tag: Tag,
  name: string,
  data: readonly Datum[],
  key: (datum: Datum, at: number) => string,
): Selection<SVGElementTagNameMap[Tag], Datum, SVGGElement, unknown> {
  return layer
    .selectChildren<SVGElementTagNameMap[Tag] & BaseType, Datum>(`.${name}`)
    .data(data, key)
    .join(tag)
    .attr("class", name) as unknown as Selection<SVGElementTagNameMap[Tag], Datum, SVGGElement, unknown>;
}

/** An axis of numbers: its scale, its ticks as text, and its title. */
export interface ValueAxis {
  readonly scale: LinearScale;
  readonly ticks: readonly number[];
  readonly texts: readonly string[];
  readonly title: string;
  /** Pixels its labels need. */
  readonly width: number;
}

/** What of a picture an axis depends on: what is exact will not change any more, and gets the axis it needs. */
type Moment = Pick<Picture, "run" | "now" | "isExact" | "isLog">;

/** Keeps the domain of a value axis steady over the updates of a run. */
export class ValueScale {
  private domain = new SteadyDomain();
  private run: number | null = null;
  private isLog = false;

  /** extents: what must be seen. Returns an axis over `length` pixels; its range is still to be set. */
  fit(extents: readonly Domain[], name: string, length: number, picture: Moment): ValueAxis {
    const above = extents.filter(([, high]) => high !== 0).flat();
    const isLog = picture.isLog && above.length > 0 && Math.min(...above) > 0;
    if (picture.run !== this.run || isLog !== this.isLog) this.domain = new SteadyDomain();
    this.run = picture.run;
    this.isLog = isLog;
    const needed: Domain = isLog ? [Math.min(...above), Math.max(...above)] : hull(extents);
    const domain = picture.isExact ? this.domain.settle(needed) : this.domain.fit(needed, picture.now);
    return isLog ? logAxis(domain, name, length) : valueAxis(domain, name, length);
  }
}

export function valueAxis(domain: Domain, name: string, length: number): ValueAxis {
  const count = Math.max(3, Math.round(length / PIXELS_A_TICK));
  const scale = scaleLinear().domain(domain).nice(count).clamp();
  const ticks = scale.ticks(count);
  const [low, high] = scale.domain();
  const unit = axisUnit(low, high);
  const texts = tickTexts(ticks, unit.exponent);
  const width = Math.max(...texts.map(textWidth), 12) + 10;
  return { scale, ticks, texts, title: axisTitle(name, unit.word), width };
}

function logAxis(domain: Domain, name: string, length: number): ValueAxis {
  const count = Math.max(3, Math.round(length / PIXELS_A_TICK));
  const scale = scaleLog().domain(domain).nice(count).clamp();
  const ticks = scale.ticks(count);
  const texts = ticks.map((tick) => (tick >= 10_000 ? showCount(tick) : String(Number(tick.toPrecision(3)))));
  const width = Math.max(...texts.map(textWidth), 12) + 10;
  return { scale, ticks, texts, title: axisTitle(name, "log scale"), width };
}

/** Draw the labels and lines of a vertical axis of numbers. */
export function drawValueAxis(frame: Frame, axis: ValueAxis, left: number, right: number): void {
  const data = axis.ticks.map((tick, at) => ({ tick, text: axis.texts[at] ?? "" }));
  const y = (datum: { tick: number }): number => Math.round(axis.scale(datum.tick)) + 0.5;
  const key = (datum: { tick: number }): string => String(datum.tick);
  join(frame.grid, "line", "rule", data, key).attr("x1", left).attr("x2", right).attr("y1", y).attr("y2", y);
  join(frame.axis, "text", "value-tick", data, key)
    .attr("x", left - 7)
    .attr("y", (datum) => y(datum) + 3.5)
    .text((datum) => datum.text);
  drawTitle(frame, axis.title);
}

export function drawTitle(frame: Frame, title: string): void {
  join(frame.axis, "text", "axis-title", title ? [title] : [], () => "title")
    .attr("x", 0)
    .attr("y", 10)
    .text((text) => text);
}

export interface Tick {
  readonly key: string;
  readonly at: number;
  readonly text: string;
}

/** Draw labels along the bottom. slanted: they lean, to fit side by side. */
export function drawBottomTicks(frame: Frame, ticks: readonly Tick[], y: number, slanted = false): void {
  join(frame.axis, "text", "group-tick", ticks, (tick) => tick.key)
    .classed("slanted", slanted)
    .attr("transform", (tick) => `translate(${tick.at.toFixed(1)},${y})${slanted ? " rotate(-32)" : ""}`)
    .text((tick) => tick.text);
}

/** Return those ticks whose labels stand apart by at least `gap` pixels, and inside [left, right]. */
export function apart(ticks: readonly Tick[], left: number, right: number, gap = 10): Tick[] {
  const kept: Tick[] = [];
  let edge = -Infinity;
  for (const tick of ticks) {
    const half = textWidth(tick.text) / 2;
    if (tick.at - half < Math.max(edge + gap, left - 24) || tick.at + half > right + 4) continue;
    edge = tick.at + half;
    kept.push(tick);
  }
  return kept;
}

/** A legend of series as HTML, so that it wraps. Series beyond the colours share an entry. */
export class Legend {
  readonly root = element("ul", { class: "legend" });
  private shown = "";

  draw(series: readonly string[]): void {
    const text = JSON.stringify(series);
    if (text === this.shown) return;
    this.shown = text;
    const items = series.length > 1 ? series.slice(0, colouredOf(series.length)) : [];
    const others = series.length - items.length;
    const entry = (colour: string, name: string): HTMLElement =>
      element("li", {}, element("i", { class: `swatch ${colour}` }), name);
    this.root.replaceChildren(
      ...items.map((name, at) => entry(`s${at}`, name)),
      ...(items.length > 0 && others > 0 ? [entry(OTHERS, `${others} others`)] : []),
    );
  }
}

export const SERIES_COLOURS = 8;
const OTHERS = "rest";

/** Return how many of so many series have a colour of their own: a ninth one takes the eighth for all others. */
function colouredOf(count: number): number {
  return count > SERIES_COLOURS ? SERIES_COLOURS - 1 : count;
}

/**
 * Gives each series a colour of its own, which it keeps in later answers and later runs. Where there are more
 * series than colours, the largest have one, and the others are grey: no two look alike by chance.
 */
export class SeriesColours {
  private names: readonly string[] = [];
  private written: ReadonlyMap<string, string> = new Map();
  private run: number | null = null;

  /** Return the series in the order they were first seen in, those of the picture's run alone. */
  see({ marks, run }: Pick<Picture, "marks" | "run">): readonly string[] {
    const names = new Map(marks.map((mark) => [mark.series, mark.seriesName]));
    if (run !== this.run) this.names = this.names.filter((name) => names.has(name));
    this.written = new Map([...(run === this.run ? this.written : []), ...names]);
    this.run = run;
    const text = (name: string): string => names.get(name) ?? "";
    const unseen = [...names.keys()]
      .filter((name) => !this.names.includes(name))
      .sort((a, b) => byName(text(a), text(b)));
    if (this.names.length + unseen.length > SERIES_COLOURS) {
      const sizes = new Map<string, number>();
      for (const { series, y } of marks)
        sizes.set(series, (sizes.get(series) ?? 0) + Math.abs(y?.value ?? 0));
      unseen.sort((a, b) => (sizes.get(b) ?? 0) - (sizes.get(a) ?? 0));
    }
    this.names = [...this.names, ...unseen];
    return this.names;
  }

  /** The series that were seen, as they are written. */
  get texts(): readonly string[] {
    return this.names.map((name) => this.written.get(name) ?? "");
  }

  isRest(name: string): boolean {
    return this.classOf(name) === OTHERS;
  }

  classOf(name: string): string {
    const at = Math.max(0, this.names.indexOf(name));
    return at < colouredOf(this.names.length) ? `s${at}` : OTHERS;
  }
}
