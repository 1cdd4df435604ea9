/** Bars that lie: a row a group, its name before it and its value behind it. Long names have room. */

import { isDoubtfulSpan } from "../answer/cells";
import type { Mark } from "../answer/marks";
import { element } from "../dom";
import { fittedApart, textWidth } from "./axis_text";
import { type Chart, columnName, type Picture, signNotes, type Size, valueText } from "./chart";
import { drawTitle, Frame, join, type ValueAxis, ValueScale } from "./frame";
import { barShape, type BarShape } from "./shapes";
import { beyondNotes, extentsOf } from "./steady";
import { type Tip, Tooltip } from "./tooltip";

const TOP = 18;
const ROW = 22;
const MOST_BAR = 16;
const MOST_ROWS = 20;
const MOST_NAME = 0.4; // of the width

interface Row {
  readonly mark: Mark;
  readonly shape: BarShape;
  readonly top: number;
}

export class RowChart implements Chart {
  readonly root = element("div", { class: "chart rows" });
  private readonly frame = new Frame();
  readonly stage = this.frame.root;
  private readonly values = new ValueScale();
  private readonly tooltip = new Tooltip(this.frame, (_, y) => this.tipAt(y));
  private drawn: { rows: readonly Row[]; picture: Picture; left: number } | null = null;

  constructor() {
    this.root.append(this.frame.root);
  }

  draw(picture: Picture, size: Size): readonly string[] {
    const all = picture.marks.filter((mark) => mark.y);
    const wanted = `${TOP + ROW * Math.min(all.length, MOST_ROWS)}px`; // a panel has room for usual numbers
    if (this.stage.style.minHeight !== wanted) this.stage.style.minHeight = wanted;
    const count = Math.min(all.length, Math.max(1, Math.floor((size.height - TOP) / ROW)));
    const marks = all.slice(0, count);
    const spans = marks.flatMap((mark) => mark.y ?? []);
    this.frame.resize(size, describe(picture, all.length));
    const texts = marks.map((mark) => valueText(mark, picture.roles.y));
    const names = marks.map((mark) => mark.label + (picture.uncertain.has(mark.key) ? " ≈" : ""));
    const left = Math.min(MOST_NAME * size.width, Math.max(...names.map(textWidth), 20)) + 8;
    const right = size.width - Math.min(0.4 * size.width, Math.max(...texts.map(textWidth), 20)) - 10;
    const axis = this.values.fit(
      [[0, 0], ...extentsOf(spans)],
      columnName(picture, picture.roles.y),
      right - left,
      picture,
    );
    axis.scale.range([left, right]);
    drawTitle(this.frame, axis.title);
    const step = Math.min(1.6 * ROW, (size.height - TOP) / Math.max(1, count));
    const rows = marks.map((mark, at) => ({ mark, shape: shapeOf(mark), top: TOP + at * step }));
    this.drawn = { rows, picture, left };
    drawRows(this.frame, rows, axis, Math.min(MOST_BAR, step - 6), step);
    drawNames(this.frame, rows, names, texts, left, right, step);
    this.tooltip.refresh();
    const hidden = all.length - count;
    return [
      ...signNotes(picture),
      ...beyondNotes(spans, axis.scale.domain()),
      ...(hidden > 0 ? [`${hidden} more groups in the table`] : []),
    ];
  }

  private rowAt(y: number): Row | undefined {
    const rows = this.drawn?.rows ?? [];
    const step = (rows[1]?.top ?? Infinity) - (rows[0]?.top ?? 0);
    return rows.find((row) => row.top <= y && y < row.top + step);
  }

  marksIn(_from: number, _to: number, y: number): readonly Mark[] {
    const row = this.rowAt(y);
    return row ? [row.mark] : [];
  }

  private tipAt(y: number): Tip | null {
    const row = this.rowAt(y);
    if (!this.drawn || !row) return null;
    const { picture, left } = this.drawn;
    const line = { label: columnName(picture, picture.roles.y), value: valueText(row.mark, picture.roles.y) };
    return { x: left, title: row.mark.label, lines: [line] };
  }
}

function shapeOf(mark: Mark): BarShape {
  return mark.y ? barShape(mark.y) : { solid: [0, 0], faded: null, open: null };
}

function drawRows(frame: Frame, rows: readonly Row[], axis: ValueAxis, height: number, step: number): void {
  const x = axis.scale;
  const key = (row: Row): string => row.mark.key;
  const middle = (row: Row): number => row.top + step / 2;
  const box = (name: string, data: readonly Row[], ends: (row: Row) => readonly [number, number]): void => {
    join(frame.body, "rect", name, data, key)
      .attr("class", (row) => `${name} s0${row.mark.y && isDoubtfulSpan(row.mark.y) ? " doubtful" : ""}`)
      .attr("y", (row) => (middle(row) - height / 2).toFixed(1))
      .attr("height", height.toFixed(1))
      .attr("x", (row) => Math.min(...ends(row).map(x)).toFixed(1))
      .attr("width", (row) => Math.abs(x(ends(row)[0]) - x(ends(row)[1])).toFixed(1));
  };
  const faded = rows.filter((row) => row.shape.faded);
  box("faded", faded, (row) => row.shape.faded ?? [0, 0]);
  box("solid", rows, (row) => row.shape.solid);
  const between = rows.filter((row) => row.mark.y?.knowledge === "between");
  join(frame.body, "path", "whisker", between, key).attr("d", (row) => {
    const [low, high] = (row.shape.faded ?? [0, 0]).map((end) => x(end).toFixed(1));
    return `M${low},${middle(row).toFixed(1)}H${high}`;
  });
  const inexact = rows.filter((row) => row.mark.y && row.mark.y.knowledge !== "exact");
  join(frame.body, "path", "estimate", inexact, key).attr("d", (row) => {
    return `M${x(row.mark.y?.value ?? 0).toFixed(1)},${(middle(row) - height / 2).toFixed(1)}v${height.toFixed(1)}`;
  });
}

function drawNames(
  frame: Frame,
  rows: readonly Row[],
  names: readonly string[],
  texts: readonly string[],
  left: number,
  right: number,
  step: number,
): void {
  const key = (row: Row): string => row.mark.key;
  const shown = fittedApart(names, () => left - 8);
  const y = (row: Row): string => (row.top + step / 2 + 4).toFixed(1);
  join(frame.axis, "text", "row-name", rows, key)
    .attr("x", 0)
    .attr("y", y)
    .text((_, at) => shown[at] ?? "");
  join(frame.axis, "text", "row-value", rows, key)
    .attr("x", right + 8)
    .attr("y", y)
    .text((_, at) => texts[at] ?? "");
}

function describe(picture: Picture, groups: number): string {
  const by = columnName(picture, picture.roles.x);
  return `Bar chart of ${columnName(picture, picture.roles.y)} by ${by}, ${groups} groups. The table has the numbers.`;
}
