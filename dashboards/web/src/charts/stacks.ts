/** Bars and areas that stand on each other: parts of a whole. The interval of each part is in its tip. */

import { scaleBand } from "d3-scale";
import { area } from "d3-shape";
import { isDoubtfulSpan } from "../answer/cells";
import type { Mark } from "../answer/marks";
import { element } from "../dom";
import { isContinuous } from "./axis_text";
import { continuousBottom } from "./bottom";
import {
  type Chart,
  columnName,
  DOUBT_NOTE,
  partialNotes,
  placelessNotes,
  type Picture,
  type Size,
  valueText,
} from "./chart";
import {
  apart,
  drawBottomTicks,
  drawValueAxis,
  Frame,
  join,
  Legend,
  SeriesColours,
  type Tick,
  ValueScale,
} from "./frame";
import { hull } from "./steady";
import { type Tip, Tooltip } from "./tooltip";

const TOP = 20;
const BOTTOM = 22;
const MOST_BAR = 54;

/** A part: from and to on the axis of values, above zero for what is positive, and below for the rest. */
export interface Part {
  readonly mark: Mark;
  readonly from: number;
  readonly to: number;
}

interface Stack {
  readonly key: string;
  readonly label: string;
  readonly x: number | null;
  readonly parts: readonly Part[];
}

interface Placed {
  readonly at: (stack: Stack) => number;
  readonly width: number;
  readonly ticks: readonly Tick[];
}

abstract class StackedChart implements Chart {
  abstract readonly root: HTMLElement;
  protected readonly frame = new Frame();
  readonly stage = this.frame.root;
  protected readonly legend = new Legend();
  protected readonly colours = new SeriesColours();
  private readonly values = new ValueScale();
  private readonly tooltip = new Tooltip(this.frame, (x) => this.tipAt(x));
  private drawn: { stacks: readonly Stack[]; placed: Placed; picture: Picture } | null = null;

  draw(picture: Picture, size: Size): readonly string[] {
    const series = this.colours.see(picture);
    this.legend.draw(this.colours.texts);
    const stacks = stacksOf(picture.marks, series);
    const name = columnName(picture, picture.roles.y);
    const by = columnName(picture, picture.roles.x);
    this.frame.resize(size, `${this.kind} of ${name} by ${by}. The table has the numbers.`);
    const extents = stacks.flatMap((stack) =>
      stack.parts.map(({ from, to }): [number, number] => order(from, to)),
    );
    const axis = this.values.fit([[0, 0], ...extents], name, size.height - TOP - BOTTOM, {
      ...picture,
      isLog: false, // a part of a stack has no length on a log axis
    });
    axis.scale.range([size.height - BOTTOM, TOP]);
    drawValueAxis(this.frame, axis, axis.width, size.width);
    const placed = this.place(stacks, picture, axis.width, size.width);
    drawBottomTicks(this.frame, apart(placed.ticks, axis.width, size.width), size.height - 5);
    this.drawn = { stacks, placed, picture };
    this.drawParts(stacks, placed, series, axis.scale, picture.partial);
    this.tooltip.refresh();
    const doubts = picture.marks.some((mark) => mark.y && isDoubtfulSpan(mark.y));
    return [
      ...(picture.isExact ? [] : ["hold the pointer over a part for its interval"]),
      ...partialNotes(picture),
      ...(this.isPlacedAcross ? placelessNotes(picture) : []),
      ...(doubts ? [DOUBT_NOTE] : []),
    ];
  }

  protected abstract readonly kind: string;
  protected abstract readonly isPlacedAcross: boolean;
  protected abstract place(stacks: readonly Stack[], picture: Picture, left: number, right: number): Placed;
  protected abstract drawParts(
    stacks: readonly Stack[],
    placed: Placed,
    series: readonly string[],
    y: (value: number) => number,
    partial: ReadonlySet<string>,
  ): void;

  marksIn(from: number, to: number): readonly Mark[] {
    if (!this.drawn) return [];
    const { stacks, placed } = this.drawn;
    const near = (stack: Stack): boolean =>
      to > from
        ? from <= placed.at(stack) + placed.width / 2 && placed.at(stack) - placed.width / 2 <= to
        : stack === this.nearest(from);
    return stacks.filter(near).flatMap((stack) => stack.parts.map((part) => part.mark));
  }

  private nearest(x: number): Stack | null {
    if (!this.drawn) return null;
    const { stacks, placed } = this.drawn;
    const distance = (stack: Stack): number => Math.abs(placed.at(stack) - x);
    return stacks.reduce<Stack | null>(
      (best, each) => (best && distance(best) <= distance(each) ? best : each),
      null,
    );
  }

  private tipAt(x: number): Tip | null {
    const stack = this.nearest(x);
    if (!this.drawn || !stack) return null;
    const { placed, picture } = this.drawn;
    return {
      x: placed.at(stack),
      title: stack.label,
      lines: [...stack.parts].reverse().map(({ mark }) => ({
        label: mark.seriesName || columnName(picture, picture.roles.y),
        value: valueText(mark, picture.roles.y),
        colour: this.colours.classOf(mark.series),
      })),
    };
  }
}

export class StackedBars extends StackedChart {
  readonly root = element("div", { class: "chart bars" }, this.legend.root, this.frame.root);
  protected readonly kind = "Stacked bars";
  protected readonly isPlacedAcross = false;

  protected place(stacks: readonly Stack[], _picture: Picture, left: number, right: number): Placed {
    const bands = scaleBand<string>()
      .domain(stacks.map((stack) => stack.key))
      .range([left + 6, right - 6])
      .paddingInner(0.25)
      .paddingOuter(0.15);
    const at = (stack: Stack): number => (bands(stack.key) ?? 0) + bands.bandwidth() / 2;
    return {
      at,
      width: Math.min(MOST_BAR, bands.bandwidth()),
      ticks: stacks.map((stack) => ({ key: stack.key, at: at(stack), text: stack.label })),
    };
  }

  protected drawParts(
    stacks: readonly Stack[],
    placed: Placed,
    _series: readonly string[],
    y: (value: number) => number,
    partial: ReadonlySet<string>,
  ): void {
    const data = stacks.flatMap((stack) => stack.parts.map((part) => ({ ...part, x: placed.at(stack) })));
    join(this.frame.body, "rect", "solid", data, (part) => part.mark.key)
      .attr("class", ({ mark }) => {
        const isDoubtful = mark.y !== null && isDoubtfulSpan(mark.y);
        return `solid part ${this.colours.classOf(mark.series)}${isDoubtful ? " doubtful" : ""}`;
      })
      .classed("partial", (part) => partial.has(part.mark.key))
      .attr("x", (part) => (part.x - placed.width / 2).toFixed(1))
      .attr("width", placed.width.toFixed(1))
      .attr("y", (part) => Math.min(y(part.from), y(part.to)).toFixed(1))
      .attr("height", (part) => Math.abs(y(part.from) - y(part.to)).toFixed(1));
  }
}

export class StackedAreas extends StackedChart {
  readonly root = element("div", { class: "chart line" }, this.legend.root, this.frame.root);
  protected readonly kind = "Stacked areas";
  protected readonly isPlacedAcross = true;

  protected place(stacks: readonly Stack[], picture: Picture, left: number, right: number): Placed {
    const type = picture.roles.x === null ? undefined : picture.answer.columns[picture.roles.x]?.type;
    const domain = hull(stacks.flatMap(({ x }): [number, number][] => (x === null ? [] : [[x, x]])));
    const bottom = continuousBottom(isContinuous(type) ? type : "number", domain, left + 4, right - 6);
    return { at: (stack) => bottom.at(stack.x ?? NaN), width: 0, ticks: bottom.ticks };
  }

  protected drawParts(
    stacks: readonly Stack[],
    placed: Placed,
    series: readonly string[],
    y: (value: number) => number,
  ): void {
    const ordered = [...stacks].sort((a, b) => (a.x ?? 0) - (b.x ?? 0));
    const courses = series.map((name) => ({ name, points: courseOf(name, ordered, series) }));
    const shape = area<{ stack: Stack; from: number; to: number }>()
      .x((point) => placed.at(point.stack))
      .y0((point) => y(point.from))
      .y1((point) => y(point.to));
    join(this.frame.body, "path", "part", courses, (course) => course.name)
      .attr("class", (course) => `part area ${this.colours.classOf(course.name)}`)
      .attr("d", (course) => shape(course.points));
  }
}

/** Where a series has no row, its part has no height, and stands on those before it. */
function courseOf(
  name: string,
  stacks: readonly Stack[],
  series: readonly string[],
): { stack: Stack; from: number; to: number }[] {
  const before = new Set(series.slice(0, series.indexOf(name)));
  return stacks.map((stack) => {
    const own = stack.parts.find((part) => part.mark.series === name);
    if (own) return { stack, from: own.from, to: own.to };
    const ground = Math.max(
      0,
      ...stack.parts.filter((part) => before.has(part.mark.series)).map((part) => part.to),
    );
    return { stack, from: ground, to: ground };
  });
}

/** Return the marks of each group on top of each other, in the order of their series. */
export function stacksOf(marks: readonly Mark[], series: readonly string[]): Stack[] {
  const groups = new Map<string, Mark[]>();
  for (const mark of marks) {
    const group = groups.get(mark.group);
    if (group) group.push(mark);
    else groups.set(mark.group, [mark]);
  }
  const place = new Map(series.map((name, at) => [name, at]));
  return [...groups].map(([key, own]) => {
    own.sort((a, b) => (place.get(a.series) ?? 0) - (place.get(b.series) ?? 0));
    let [up, down] = [0, 0];
    const parts = own.flatMap((mark): Part[] => {
      if (!mark.y) return [];
      const from = mark.y.value < 0 ? down : up;
      const to = from + mark.y.value;
      if (mark.y.value < 0) down = to;
      else up = to;
      return [{ mark, from, to }];
    });
    return { key, label: own[0]?.label ?? "", x: own[0]?.x?.value ?? null, parts };
  });
}

function order(a: number, b: number): [number, number] {
  return a < b ? [a, b] : [b, a];
}
