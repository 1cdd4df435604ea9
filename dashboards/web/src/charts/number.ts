/** One big number with its margin, the way it came to it, and the answer's other numbers below. */

import { scaleLinear } from "./scale";
import { area, line } from "d3-shape";
import { cellOf } from "../answer/cells";
import { element, setClass, setHidden, setText } from "../dom";
import { visible } from "../text/plain";
import { showInterval } from "../text/rounding";
import { tickTexts } from "./axis_text";
import {
  BOUND_NOTE,
  type Chart,
  columnName,
  DOUBT_NOTE,
  type HistoryPoint,
  type Picture,
  type Size,
  valueText,
} from "./chart";
import { apart, drawBottomTicks, drawValueAxis, Frame, join, type ValueAxis, ValueScale } from "./frame";
import { hull } from "./steady";

const TOP = 8;
const BOTTOM = 20;
const WIDE = 3; // times the median width

export class NumberChart implements Chart {
  readonly root = element("div", { class: "chart number" });
  private readonly value = element("span", { class: "value" });
  private readonly margin = element("span", { class: "margin" });
  private readonly interval = element("p", { class: "interval" });
  private readonly memory = element("p", { class: "memory" });
  private readonly others = element("dl", { class: "others" });
  private readonly frame = new Frame();
  readonly stage = this.frame.root;
  private readonly values = new ValueScale();

  constructor() {
    const big = element("p", { class: "big" }, this.value, " ", this.margin);
    this.root.append(big, this.interval, this.memory, this.others, this.frame.root);
  }

  draw(picture: Picture, size: Size): readonly string[] {
    this.drawText(picture);
    this.drawOthers(picture);
    // Without a history the drawing keeps its width, and where one is still to come also its place.
    setClass(this.frame.root, "is-blank", picture.history.length < 2);
    setClass(this.frame.root, "is-closed", picture.history.length < 2 && picture.isExact);
    if (picture.history.length >= 2) this.drawHistory(picture, size);
    const span = picture.marks[0]?.y;
    if (span?.knowledge === "at_least" || span?.knowledge === "at_most") return [BOUND_NOTE];
    return span && !span.certified && span.knowledge !== "exact" ? [DOUBT_NOTE] : [];
  }

  private drawText(picture: Picture): void {
    const mark = picture.marks[0];
    const shown = picture.roles.y === null ? undefined : mark?.shown[picture.roles.y];
    setText(this.value, shown?.value ?? "");
    setText(this.margin, [shown?.margin ?? "", shown?.doubtful ? "?" : ""].filter(Boolean).join(" "));
    setClass(this.value, "doubtful", shown?.doubtful ?? false);
    setClass(this.value, "long", (shown?.value.length ?? 0) > 12);
    setClass(this.value, "longer", (shown?.value.length ?? 0) > 16);
    setText(this.interval, intervalText(picture));
    const remembered = picture.remembered;
    setHidden(this.memory, remembered === null);
    if (remembered) setText(this.memory, `remembered: ${remembered.text}`);
  }

  /** The other columns of the row, each in a line. */
  private drawOthers(picture: Picture): void {
    const mark = picture.marks[0];
    const others = picture.answer.columns.flatMap((column, at) =>
      mark && at !== picture.roles.y ? [{ name: visible(column.name), text: valueText(mark, at) }] : [],
    );
    setHidden(this.others, others.length === 0);
    while (this.others.childElementCount > 2 * others.length) this.others.lastElementChild?.remove();
    while (this.others.childElementCount < 2 * others.length)
      this.others.append(element("dt"), element("dd"));
    others.forEach((other, at) => {
      const [term, value] = [this.others.children[2 * at], this.others.children[2 * at + 1]];
      if (term && value) {
        setText(term, other.name);
        setText(value, other.text);
      }
    });
  }

  private drawHistory(picture: Picture, size: Size): void {
    const history = settledPart(picture.history);
    const ghost = picture.remembered ? [...picture.remembered.spans.values()][0]?.y?.value : undefined;
    const extents = history.map(({ low, high, value }): [number, number] => [
      Math.min(low, value),
      Math.max(high, value),
    ]);
    if (ghost !== undefined) extents.push([ghost, ghost]);
    const name = columnName(picture, picture.roles.y);
    this.frame.resize(size, `${name} since the query began, with its interval`);
    const axis = this.values.fit(extents, "", size.height - TOP - BOTTOM, picture);
    axis.scale.range([size.height - BOTTOM, TOP]);
    drawValueAxis(this.frame, { ...axis, title: "" }, axis.width, size.width);
    const x = scaleLinear(hull(history.map((p): [number, number] => [p.elapsedSeconds, p.elapsedSeconds])), [
      axis.width,
      size.width - 4,
    ]);
    drawCourse(this.frame, history, x, axis);
    const ticks = x.ticks(Math.max(2, Math.floor(size.width / 90)));
    const texts = tickTexts(ticks, 0);
    const labels = ticks.map((tick, at) => ({ key: String(tick), at: x(tick), text: `${texts[at]} s` }));
    drawBottomTicks(this.frame, apart(labels, axis.width, size.width), size.height - 4);
    join(this.frame.over, "path", "ghost", ghost === undefined ? [] : [ghost], () => "ghost").attr(
      "d",
      (value) => `M${axis.width},${axis.scale(value).toFixed(1)}H${size.width}`,
    );
  }
}

/** Return the history without its beginning, where the interval was so wide that it would hide all the rest. */
export function settledPart(history: readonly HistoryPoint[]): readonly HistoryPoint[] {
  const widths = history.map((point) => point.high - point.low).sort((a, b) => a - b);
  const usual = widths[Math.floor(widths.length / 2)] ?? 0;
  const first = history.findIndex((point) => point.high - point.low <= WIDE * usual);
  return history.slice(Math.max(0, Math.min(first, history.length - 2)));
}

function drawCourse(
  frame: Frame,
  history: readonly HistoryPoint[],
  x: (seconds: number) => number,
  axis: ValueAxis,
): void {
  const y = axis.scale;
  const band = area<HistoryPoint>()
    .x((p) => x(p.elapsedSeconds))
    .y0((p) => y(p.low))
    .y1((p) => y(p.high));
  const stroke = line<HistoryPoint>()
    .x((p) => x(p.elapsedSeconds))
    .y((p) => y(p.value));
  const points = [...history];
  join(frame.body, "path", "band", [points], () => "band")
    .classed("s0", true)
    .attr("d", (course) => band(course));
  join(frame.body, "path", "stroke", [points], () => "stroke")
    .classed("s0", true)
    .attr("d", (course) => stroke(course));
}

function intervalText(picture: Picture): string {
  const wire = picture.roles.y === null ? undefined : picture.answer.rows[0]?.[picture.roles.y];
  const cell = cellOf(wire ?? null);
  const name = visible(columnName(picture, picture.roles.y));
  switch (cell.knowledge) {
    case "exact":
      if (cell.value === null) return `${name} · NULL: there is no value`;
      return picture.isExact ? `${name} · exact: every row was read` : name;
    case "at_least":
      return `${name} · at least this; more may come`;
    case "at_most":
      return `${name} · at most this; less may come`;
    case "unknown":
      return `${name} · nothing bounds it yet`;
    case "between":
      return `${name} · ${picture.intervalName} ${showInterval(cell)}`;
  }
}
