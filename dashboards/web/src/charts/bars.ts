/** Bars with a fuzzy top: solid as far as is sure, faded as far as may be, a tick at the estimate. */

import { scaleBand, type ScaleBand } from "d3-scale";
import { isDoubtfulSpan, type Span } from "../answer/cells";
import type { Mark } from "../answer/marks";
import { element } from "../dom";
import { fittedApart, textWidth } from "./axis_text";
import { type Chart, columnName, type Picture, signNotes, type Size, valueText } from "./chart";
import {
  apart,
  drawBottomTicks,
  drawValueAxis,
  Frame,
  join,
  Legend,
  SeriesColours,
  type Tick,
  type ValueAxis,
  ValueScale,
} from "./frame";
import { barShape, type BarShape } from "./shapes";
import { beyondNotes, extentsOf } from "./steady";
import { type Tip, Tooltip } from "./tooltip";

const LEAST_BAR = 4; // pixels
const MOST_BAR = 54;
const TOP = 20;

interface Bar {
  readonly mark: Mark;
  readonly span: Span;
  readonly shape: BarShape;
  readonly left: number;
  readonly width: number;
  readonly colour: string;
  readonly isPartial: boolean;
}

interface Group {
  readonly key: string;
  readonly label: string;
  readonly marks: readonly Mark[];
}

export class BarChart implements Chart {
  readonly root = element("div", { class: "chart bars" });
  private readonly frame = new Frame();
  readonly stage = this.frame.root;
  private readonly legend = new Legend();
  private readonly colours = new SeriesColours();
  private readonly values = new ValueScale();
  private readonly tooltip = new Tooltip(this.frame, (x) => this.tipAt(x));
  private drawn: { groups: readonly Group[]; bands: ScaleBand<string>; picture: Picture } | null = null;

  constructor() {
    this.root.append(this.legend.root, this.frame.root);
  }

  draw(picture: Picture, size: Size): readonly string[] {
    const series = this.colours.see(picture);
    this.legend.draw(this.colours.texts);
    const all = groupsOf(picture.marks);
    const groups = all.slice(0, Math.max(1, Math.floor((size.width - 60) / (LEAST_BAR * series.length + 4))));
    this.frame.resize(size, describe(picture, all.length));
    const labels = bottomLabels(groups, picture, size.width - 60);
    const bottom = size.height - labels.height;
    const axis = this.fitValues(groups, picture, bottom - TOP);
    axis.scale.range([bottom, TOP]);
    drawValueAxis(this.frame, axis, axis.width, size.width);
    const bands = groupBands(groups, axis.width, size.width);
    this.drawn = { groups, bands, picture };
    drawLabels(this.frame, groups, bands, labels, bottom, size.width);
    const bars = this.barsOf(groups, bands, series, picture.partial);
    drawBars(this.frame, bars, axis);
    drawGhosts(this.frame, bars, picture, axis);
    this.tooltip.refresh();
    const hidden = all.length - groups.length;
    const spans = bars.map((bar) => bar.span);
    return [
      ...signNotes(picture),
      ...beyondNotes(spans, axis.scale.domain()),
      ...(hidden > 0 ? [`${hidden} more groups in the table`] : []),
    ];
  }

  private fitValues(groups: readonly Group[], picture: Picture, length: number): ValueAxis {
    const spans = groups.flatMap((group) => group.marks.flatMap((mark) => (mark.y ? [mark.y] : [])));
    const ghosts = picture.remembered
      ? [...picture.remembered.spans.values()].flatMap((each) => each.y ?? [])
      : [];
    const extents = [
      ...extentsOf(spans),
      ...ghosts.map((ghost): [number, number] => [ghost.value, ghost.value]),
    ];
    return this.values.fit([[0, 0], ...extents], columnName(picture, picture.roles.y), length, picture);
  }

  private barsOf(
    groups: readonly Group[],
    bands: ScaleBand<string>,
    series: readonly string[],
    partial: ReadonlySet<string>,
  ): Bar[] {
    const inner = scaleBand<string>().domain(series).range([0, bands.bandwidth()]).paddingInner(0.06);
    const width = Math.min(MOST_BAR, inner.bandwidth());
    const indent =
      (bands.bandwidth() - width * series.length - inner.step() * 0.06 * (series.length - 1)) / 2;
    return groups.flatMap((group) =>
      group.marks.flatMap((mark) => {
        if (!mark.y) return [];
        const at = series.indexOf(mark.series) * (width + inner.step() * 0.06);
        const left = (bands(group.key) ?? 0) + Math.max(0, indent) + at;
        return [
          {
            mark,
            span: mark.y,
            shape: barShape(mark.y),
            left,
            width,
            colour: this.colours.classOf(mark.series),
            isPartial: partial.has(mark.key),
          },
        ];
      }),
    );
  }

  marksIn(from: number, to: number): readonly Mark[] {
    if (!this.drawn) return [];
    const { groups, bands } = this.drawn;
    const place = (x: number): number => Math.floor((x - (bands.range()[0] ?? 0)) / bands.step());
    return groups.slice(Math.max(0, place(from)), Math.max(0, place(to) + 1)).flatMap((group) => group.marks);
  }

  private tipAt(x: number): Tip | null {
    if (!this.drawn) return null;
    const { groups, bands, picture } = this.drawn;
    const at = Math.floor((x - (bands.range()[0] ?? 0)) / bands.step());
    const group = groups[at];
    if (!group) return null;
    return {
      x: (bands(group.key) ?? 0) + bands.bandwidth() / 2,
      title: group.label,
      lines: group.marks.map((mark) => ({
        label: mark.seriesName || columnName(picture, picture.roles.y),
        value: valueText(mark, picture.roles.y),
        colour: this.colours.classOf(mark.series),
      })),
    };
  }
}

function groupsOf(marks: readonly Mark[]): Group[] {
  const groups = new Map<string, Mark[]>();
  for (const mark of marks) {
    const group = groups.get(mark.group);
    if (group) group.push(mark);
    else groups.set(mark.group, [mark]);
  }
  return [...groups].map(([key, own]) => ({ key, label: own[0]?.label ?? "", marks: own }));
}

function groupBands(groups: readonly Group[], left: number, right: number): ScaleBand<string> {
  return scaleBand<string>()
    .domain(groups.map((group) => group.key))
    .range([left + 6, right - 6])
    .paddingInner(groups.length > 20 ? 0.15 : 0.3)
    .paddingOuter(0.15);
}

const LEAN = Math.cos((32 * Math.PI) / 180); // of a slanted label, how much of it lies to the left of its end
const MOST_SLANTED = 110; // pixels of a label that leans
const EDGE = 8; // pixels that it may reach beyond the drawing

interface Labels {
  readonly texts: readonly string[];
  readonly slanted: boolean;
  readonly height: number;
}

/** Labels lie flat where they fit side by side; else they lean, cut to what is left below. */
function bottomLabels(groups: readonly Group[], picture: Picture, width: number): Labels {
  const texts = groups.map((group) => group.label + (isUncertain(group, picture) ? " ≈" : ""));
  const step = width / Math.max(1, groups.length);
  const longest = Math.max(0, ...texts.map(textWidth));
  if (longest <= step - 4 || step < 16) return { texts, slanted: false, height: 22 };
  const shown = Math.min(longest, MOST_SLANTED);
  return { texts, slanted: true, height: 18 + 0.56 * shown };
}

function isUncertain(group: Group, picture: Picture): boolean {
  return group.marks.length === 1 && group.marks.some((mark) => picture.uncertain.has(mark.key));
}

function drawLabels(
  frame: Frame,
  groups: readonly Group[],
  bands: ScaleBand<string>,
  labels: Labels,
  bottom: number,
  right: number,
): void {
  const places = groups.map((group) => (bands(group.key) ?? 0) + bands.bandwidth() / 2);
  const room = (index: number): number => Math.min(MOST_SLANTED, ((places[index] ?? 0) + EDGE) / LEAN);
  const texts = labels.slanted ? fittedApart(labels.texts, room) : labels.texts;
  const ticks = groups.map((group, index): Tick => {
    return { key: group.key, at: places[index] ?? 0, text: texts[index] ?? "" };
  });
  drawBottomTicks(
    frame,
    labels.slanted ? ticks : apart(ticks, 0, right + 20, 6),
    bottom + (labels.slanted ? 12 : 16),
    labels.slanted,
  );
}

function drawBars(frame: Frame, bars: readonly Bar[], axis: ValueAxis): void {
  const y = axis.scale;
  const key = (bar: Bar): string => bar.mark.key;
  const box = (name: string, data: readonly Bar[], ends: (bar: Bar) => readonly [number, number]): void => {
    join(frame.body, "rect", name, data, key)
      .attr("class", (bar) => `${name} ${bar.colour}${isDoubtfulSpan(bar.span) ? " doubtful" : ""}`)
      .classed("partial", (bar) => bar.isPartial)
      .attr("x", (bar) => bar.left.toFixed(1))
      .attr("width", (bar) => bar.width.toFixed(1))
      .attr("y", (bar) => Math.min(...ends(bar).map(y)).toFixed(1))
      .attr("height", (bar) => Math.abs(y(ends(bar)[0]) - y(ends(bar)[1])).toFixed(1));
  };
  box(
    "faded",
    bars.filter((bar) => bar.shape.faded),
    (bar) => bar.shape.faded ?? [0, 0],
  );
  box("solid", bars, (bar) => bar.shape.solid);
  drawSigns(frame, bars, axis);
}

/** Whiskers, ticks at the estimates, and arrows where a bar may go on. */
function drawSigns(frame: Frame, bars: readonly Bar[], axis: ValueAxis): void {
  const y = axis.scale;
  const key = (bar: Bar): string => bar.mark.key;
  const middle = (bar: Bar): number => bar.left + bar.width / 2;
  const between = bars.filter((bar) => bar.span.knowledge === "between" && bar.width >= 8);
  join(frame.body, "path", "whisker", between, key).attr("d", (bar) => whisker(middle(bar), bar, y));
  const inexact = bars.filter((bar) => bar.span.knowledge !== "exact");
  join(frame.body, "path", "estimate", inexact, key).attr(
    "d",
    (bar) => `M${bar.left.toFixed(1)},${y(bar.span.value).toFixed(1)}h${bar.width.toFixed(1)}`,
  );
  join(
    frame.body,
    "path",
    "arrow",
    bars.filter((bar) => bar.shape.open),
    key,
  ).attr("d", (bar) =>
    bar.shape.open === "up"
      ? `M${middle(bar) - 4},${y(bar.span.value) - 4}l4,-5l4,5`
      : `M${middle(bar) - 4},${y(bar.span.value) + 4}l4,5l4,-5`,
  );
}

function whisker(x: number, bar: Bar, y: (value: number) => number): string {
  const [low, high] = bar.shape.faded ?? [bar.span.value, bar.span.value];
  const cap = Math.min(4, bar.width / 4);
  const ends = [y(low), y(high)].map(
    (end) => `M${(x - cap).toFixed(1)},${end.toFixed(1)}h${(2 * cap).toFixed(1)}`,
  );
  return `M${x.toFixed(1)},${y(low).toFixed(1)}V${y(high).toFixed(1)}${ends.join("")}`;
}

function drawGhosts(frame: Frame, bars: readonly Bar[], picture: Picture, axis: ValueAxis): void {
  const ghosts = bars.flatMap((bar) => {
    const value = picture.remembered?.spans.get(bar.mark.key)?.y?.value;
    return value === undefined ? [] : [{ bar, value }];
  });
  const zero = axis.scale(0);
  join(frame.over, "path", "ghost", ghosts, (ghost) => ghost.bar.mark.key).attr("d", ({ bar, value }) => {
    const left = (bar.left - 2).toFixed(1);
    return `M${left},${zero.toFixed(1)}V${axis.scale(value).toFixed(1)}h${(bar.width + 4).toFixed(1)}V${zero.toFixed(1)}`;
  });
}

function describe(picture: Picture, groups: number): string {
  const by = columnName(picture, picture.roles.x);
  return `Bar chart of ${columnName(picture, picture.roles.y)} by ${by}, ${groups} groups. The table has the numbers.`;
}
