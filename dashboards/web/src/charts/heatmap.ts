/** A grid of two keys: the deeper a cell's colour, the larger its value. What is not certified is outlined. */

import { scaleBand } from "d3-scale";
import { isDoubtfulSpan } from "../answer/cells";
import { byName } from "../answer/order";
import type { Mark } from "../answer/marks";
import { element } from "../dom";
import { fittedApart, textWidth } from "./axis_text";
import { type Chart, columnName, DOUBT_NOTE, type Picture, type Size, valueText } from "./chart";
import { apart, drawBottomTicks, drawTitle, Frame, join } from "./frame";
import { extentsOf, hull } from "./steady";
import { type Tip, Tooltip } from "./tooltip";

const TOP = 18;
const BOTTOM = 22;
const LEAST_SHARE = 0.08; // of the deepest colour: the least value is no empty cell
const MOST_NAME = 0.3; // of the width

interface Grid {
  readonly columns: ReturnType<typeof scaleBand<string>>;
  readonly rows: ReturnType<typeof scaleBand<string>>;
}

export class Heatmap implements Chart {
  readonly root = element("div", { class: "chart heatmap" });
  private readonly frame = new Frame();
  readonly stage = this.frame.root;
  private readonly tooltip = new Tooltip(this.frame, (x, y) => this.tipAt(x, y));
  private drawn: { grid: Grid; picture: Picture } | null = null;

  constructor() {
    this.root.append(this.frame.root);
  }

  draw(picture: Picture, size: Size): readonly string[] {
    const { marks, roles } = picture;
    const name = columnName(picture, roles.y);
    const by = [roles.x, roles.series].map((role) => columnName(picture, role)).filter(Boolean);
    this.frame.resize(size, `Heat map of ${name} by ${by.join(" and ")}. The table has the numbers.`);
    const groups = new Map(marks.map((mark) => [mark.group, mark.label]));
    const series = [...new Map(marks.map((mark) => [mark.series, mark.seriesName]))];
    series.sort(([, a], [, b]) => byName(a, b));
    const names = series.map(([, text]) => text);
    const left = Math.min(MOST_NAME * size.width, Math.max(0, ...names.map(textWidth))) + 8;
    const grid: Grid = {
      columns: scaleBand<string>()
        .domain([...groups.keys()])
        .range([left, size.width])
        .padding(0.04),
      rows: scaleBand<string>()
        .domain(series.map(([key]) => key))
        .range([TOP, size.height - BOTTOM])
        .padding(0.04),
    };
    this.drawn = { grid, picture };
    drawTitle(this.frame, by.length > 1 ? `${name} by ${by.join(" and ")}` : name);
    this.drawCells(picture, grid);
    const labels = fittedApart([...groups.values()], () => Math.max(40, grid.columns.step() - 6));
    const ticks = [...groups.keys()].map((key, at) => ({
      key,
      at: (grid.columns(key) ?? 0) + grid.columns.bandwidth() / 2,
      text: labels[at] ?? "",
    }));
    const shown = fittedApart(names, () => left - 8);
    drawBottomTicks(this.frame, apart(ticks, left, size.width, 6), size.height - 6);
    join(this.frame.axis, "text", "row-name", series, ([key]) => key)
      .attr("x", 0)
      .attr("y", ([key]) => ((grid.rows(key) ?? 0) + grid.rows.bandwidth() / 2 + 4).toFixed(1))
      .text((_, at) => shown[at] ?? "");
    this.tooltip.refresh();
    return marks.some((mark) => mark.y && isDoubtfulSpan(mark.y)) ? [DOUBT_NOTE] : [];
  }

  private drawCells({ marks }: Picture, { columns, rows }: Grid): void {
    const cells = marks.filter((mark) => mark.y);
    const points = cells.flatMap(({ y }) => (y ? [{ ...y, low: y.value, high: y.value }] : []));
    const [low, high] = hull(extentsOf(points));
    const share = ({ y }: Mark): number =>
      Math.min(1, Math.max(LEAST_SHARE, ((y?.value ?? low) - low) / (high - low || 1)));
    join(this.frame.body, "rect", "cell", cells, (mark) => mark.key)
      .attr("class", (mark) => `cell s0${mark.y && isDoubtfulSpan(mark.y) ? " doubtful" : ""}`)
      .attr("fill-opacity", (mark) => share(mark).toFixed(3))
      .attr("x", (mark) => (columns(mark.group) ?? 0).toFixed(1))
      .attr("y", (mark) => (rows(mark.series) ?? 0).toFixed(1))
      .attr("width", columns.bandwidth().toFixed(1))
      .attr("height", rows.bandwidth().toFixed(1));
  }

  private markAt(x: number, y: number): Mark | undefined {
    if (!this.drawn) return undefined;
    const { columns, rows } = this.drawn.grid;
    const isIn = (from: number | undefined, step: number, at: number): boolean =>
      from !== undefined && from <= at && at < from + step;
    return this.drawn.picture.marks.find(
      (mark) => isIn(columns(mark.group), columns.step(), x) && isIn(rows(mark.series), rows.step(), y),
    );
  }

  marksIn(from: number, to: number, y: number): readonly Mark[] {
    if (!this.drawn) return [];
    const mark = this.markAt(from, y);
    if (to <= from) return mark ? [mark] : [];
    const { columns } = this.drawn.grid;
    const isIn = (start: number): boolean => from <= start + columns.bandwidth() && start <= to;
    return this.drawn.picture.marks.filter((each) => isIn(columns(each.group) ?? -1));
  }

  private tipAt(x: number, y: number): Tip | null {
    const mark = this.markAt(x, y);
    if (!this.drawn || !mark) return null;
    const { roles } = this.drawn.picture;
    const line = { label: columnName(this.drawn.picture, roles.y), value: valueText(mark, roles.y) };
    const title = [mark.label, mark.seriesName].filter(Boolean).join(" · ");
    return { x: this.drawn.grid.columns(mark.group) ?? x, title, lines: [line] };
  }
}
