/** Bars side by side over a line of numbers or of time, one a class, with the interval of each count. */

import { isDoubtfulSpan, type Span } from "../answer/cells";
import type { Mark } from "../answer/marks";
import { element } from "../dom";
import { continuousBottom } from "./bottom";
import {
  type Chart,
  columnName,
  type Picture,
  placelessNotes,
  signNotes,
  type Size,
  valueText,
} from "./chart";
import { apart, drawBottomTicks, drawValueAxis, Frame, join, type ValueAxis, ValueScale } from "./frame";
import { barShape } from "./shapes";
import { beyondNotes, type Domain, extentsOf } from "./steady";
import { type Tip, Tooltip } from "./tooltip";

const TOP = 20;
const BOTTOM = 36;

interface Bin {
  readonly mark: Mark;
  readonly span: Span;
  readonly left: number;
  readonly right: number;
}

export class Histogram implements Chart {
  readonly root = element("div", { class: "chart histogram" });
  private readonly frame = new Frame();
  readonly stage = this.frame.root;
  private readonly values = new ValueScale();
  private readonly tooltip = new Tooltip(this.frame, (x) => this.tipAt(x));
  private drawn: { bins: readonly Bin[]; picture: Picture } | null = null;

  constructor() {
    this.root.append(this.frame.root);
  }

  draw(picture: Picture, size: Size): readonly string[] {
    const name = columnName(picture, picture.roles.y);
    this.frame.resize(
      size,
      `Histogram of ${name} by ${columnName(picture, picture.roles.x)}. The table has the numbers.`,
    );
    const spans = picture.marks.flatMap((mark) => mark.y ?? []);
    const bottom = size.height - BOTTOM;
    const axis = this.values.fit([[0, 0], ...extentsOf(spans)], name, bottom - TOP, picture);
    axis.scale.range([bottom, TOP]);
    drawValueAxis(this.frame, axis, axis.width, size.width);
    const bins = this.drawBottom(picture, axis.width, size);
    this.drawn = { bins, picture };
    drawBins(this.frame, bins, axis, picture);
    this.tooltip.refresh();
    const signs = signNotes(picture).filter((note) => !note.startsWith("≈"));
    return [...signs, ...placelessNotes(picture), ...beyondNotes(spans, axis.scale.domain())];
  }

  private drawBottom(picture: Picture, left: number, size: Size): Bin[] {
    const marks = picture.marks.filter((mark) => mark.x && mark.y);
    const starts = [...new Set(marks.flatMap((mark) => (mark.x ? [mark.x.value] : [])))].sort(
      (a, b) => a - b,
    );
    const width = binWidth(starts);
    const domain: Domain = [starts[0] ?? 0, (starts.at(-1) ?? 1) + width];
    const type = picture.roles.x === null ? undefined : picture.answer.columns[picture.roles.x]?.type;
    const bottom = continuousBottom(type, domain, left, size.width - 6);
    drawBottomTicks(this.frame, apart(bottom.ticks, left, size.width), size.height - BOTTOM + 16);
    join(this.frame.axis, "text", "bottom-title", [columnName(picture, picture.roles.x)], () => "title")
      .attr("x", size.width - 6)
      .attr("y", size.height - 4)
      .text((title) => title);
    return marks.flatMap((mark) =>
      mark.x && mark.y
        ? [{ mark, span: mark.y, left: bottom.at(mark.x.value), right: bottom.at(mark.x.value + width) }]
        : [],
    );
  }

  marksIn(from: number, to: number): readonly Mark[] {
    return (this.drawn?.bins ?? [])
      .filter((bin) => bin.left <= to && from < bin.right)
      .map((bin) => bin.mark);
  }

  private tipAt(x: number): Tip | null {
    const bin = this.drawn?.bins.find((each) => each.left <= x && x < each.right);
    if (!bin || !this.drawn) return null;
    const { picture } = this.drawn;
    const line = { label: columnName(picture, picture.roles.y), value: valueText(bin.mark, picture.roles.y) };
    return { x: (bin.left + bin.right) / 2, title: bin.mark.label, lines: [line] };
  }
}

/** Return the least distance between classes: a class with no row is a gap, not a wider neighbour. */
export function binWidth(starts: readonly number[]): number {
  const steps = starts.slice(1).map((start, at) => start - (starts[at] ?? start));
  const least = Math.min(...steps.filter((step) => step > 0));
  return Number.isFinite(least) ? least : 1;
}

function drawBins(frame: Frame, bins: readonly Bin[], axis: ValueAxis, picture: Picture): void {
  const y = axis.scale;
  const key = (bin: Bin): string => bin.mark.key;
  const box = (name: string, data: readonly Bin[], ends: (bin: Bin) => readonly [number, number]): void => {
    join(frame.body, "rect", name, data, key)
      .attr("class", (bin) => `${name} s0${isDoubtfulSpan(bin.span) ? " doubtful" : ""}`)
      .attr("x", (bin) => (bin.left + 0.5).toFixed(1))
      .attr("width", (bin) => Math.max(1, bin.right - bin.left - 1).toFixed(1))
      .attr("y", (bin) => Math.min(...ends(bin).map(y)).toFixed(1))
      .attr("height", (bin) => Math.abs(y(ends(bin)[0]) - y(ends(bin)[1])).toFixed(1));
  };
  box(
    "faded",
    bins.filter((bin) => barShape(bin.span).faded),
    (bin) => barShape(bin.span).faded ?? [0, 0],
  );
  box("solid", bins, (bin) => barShape(bin.span).solid);
  const inexact = bins.filter((bin) => bin.span.knowledge !== "exact");
  const tick = (bin: Bin, value: number): string =>
    `M${bin.left.toFixed(1)},${y(value).toFixed(1)}H${bin.right.toFixed(1)}`;
  join(frame.body, "path", "estimate", inexact, key).attr("d", (bin) => tick(bin, bin.span.value));
  const ghosts = bins.flatMap((bin) => {
    const value = picture.remembered?.spans.get(bin.mark.key)?.y?.value;
    return value === undefined ? [] : [{ bin, value }];
  });
  join(frame.over, "path", "ghost", ghosts, (ghost) => key(ghost.bin)).attr("d", (ghost) =>
    tick(ghost.bin, ghost.value),
  );
}
