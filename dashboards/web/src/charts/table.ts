/** A table of the answer's rows: names, estimates, and each interval as a dot in its range. */

import { type LinearScale, scaleLinear } from "./scale";
import { extentOf, type Span } from "../answer/cells";
import type { Mark } from "../answer/marks";
import type { Column } from "../protocol";
import { element, setAttribute, setClass, setText } from "../dom";
import { visible } from "../text/plain";
import { type Chart, columnName, type Picture, signNotes, type Size } from "./chart";
import { hull, SteadyDomain } from "./steady";

const MOST_ROWS = 200;
const BAR_HEIGHT = 14;
const NARROW = 480; // pixels; a wider table is scrolled sideways where it has to be
const LETTER = 8; // about how wide one is at most, in pixels
const PADDING = 14;
const LEAST_BAR = 90;
const SVG = "http://www.w3.org/2000/svg";

/** What a column of the drawn table holds. */
type Field =
  | { readonly kind: "plain"; readonly column: Column; readonly at: number }
  | { readonly kind: "value"; readonly column: Column; readonly at: number }
  | { readonly kind: "bar" }
  | { readonly kind: "half"; readonly at: number };

/** How a table fits its place: whole, without bars, or each row as a block of its own. */
type Fit = "whole" | "plain" | "stacked";

interface Row {
  readonly root: HTMLTableRowElement;
  readonly cells: readonly HTMLTableCellElement[];
  readonly bar: Bar | null;
}

export class TableChart implements Chart {
  readonly root = element("div", {
    class: "chart table",
    tabindex: 0,
    role: "group", // no landmark: a page of many tables is not a map of them
    "aria-label": "Table, not drawn yet",
  });
  readonly stage = this.root;
  private readonly head = element("thead");
  private readonly body = element("tbody");
  private rows = new Map<string, Row>();
  private fields: readonly Field[] = [];
  private layout = "";
  private fittedFor = "";
  private fit: Fit = "whole";
  private domain = new SteadyDomain();
  private run: number | null = null;

  constructor() {
    this.root.append(element("table", {}, this.head, this.body));
  }

  draw(picture: Picture, size: Size): readonly string[] {
    setAttribute(this.root, "aria-label", `Table of ${picture.answer.columns.map((c) => c.name).join(", ")}`);
    this.layOut(picture, size);
    const shown = picture.marks.slice(0, MOST_ROWS);
    const scale = this.scaleOf(picture, shown);
    for (const [key, row] of this.rows) {
      if (!shown.some((mark) => mark.key === key)) {
        row.root.remove();
        this.rows.delete(key);
      }
    }
    shown.forEach((mark, at) => this.drawRow(picture, mark, at, scale));
    const hidden = picture.marks.length - shown.length + (picture.answer.truncated ?? 0);
    return [...signNotes(picture), ...(hidden > 0 ? [`… ${hidden.toLocaleString("en")} more rows`] : [])];
  }

  /** Make the head anew where the columns are others than before. */
  private layOut(picture: Picture, size: Size): void {
    this.fields = this.fieldsWithin(picture, size.width);
    const heads = this.fields.map((field) => headOf(field, picture));
    const layout = JSON.stringify([heads, this.fields.map((field) => field.kind)]);
    if (layout === this.layout) return;
    this.layout = layout;
    this.rows = new Map();
    this.body.replaceChildren();
    const cells = this.fields.map((field, at) =>
      heads[at]
        ? element("th", { scope: "col", class: classOf(field) }, heads[at])
        : element("td", { class: classOf(field) }),
    );
    this.head.replaceChildren(element("tr", {}, ...cells));
  }

  /** No number may be cut: what is too narrow loses its bars, or else its columns. It stays so till others come. */
  private fieldsWithin(picture: Picture, width: number): readonly Field[] {
    const all = fieldsOf(picture, width);
    const plain = all.filter((field) => field.kind !== "bar");
    const fittedFor = JSON.stringify([width, all.map((field) => headOf(field, picture))]);
    if (fittedFor !== this.fittedFor) this.fit = "whole";
    this.fittedFor = fittedFor;
    if (width < NARROW) {
      if (this.fit === "whole" && widthOf(all, picture) > width) this.fit = "plain";
      if (this.fit === "plain" && widthOf(plain, picture) > width) this.fit = "stacked";
    }
    setClass(this.root, "is-stacked", this.fit === "stacked");
    return this.fit === "plain" ? plain : all;
  }

  private scaleOf(picture: Picture, marks: readonly Mark[]): LinearScale {
    if (picture.run !== this.run) this.domain = new SteadyDomain();
    this.run = picture.run;
    const extents = marks.flatMap((mark) => (mark.y ? [extentOf(mark.y)] : []));
    return scaleLinear()
      .domain(
        picture.isExact ? this.domain.settle(hull(extents)) : this.domain.fit(hull(extents), picture.now),
      )
      .range([5, 95]);
  }

  private drawRow(picture: Picture, mark: Mark, at: number, scale: LinearScale): void {
    const row = this.rows.get(mark.key) ?? this.addRow(picture, mark.key);
    if (this.body.children[at] !== row.root) this.body.insertBefore(row.root, this.body.children[at] ?? null);
    this.fields.forEach((field, place) => {
      const cell = row.cells[place];
      if (!cell || field.kind === "bar") return;
      const shown = mark.shown[field.at];
      setText(cell, textOf(field, place, picture, mark));
      setClass(cell, "doubtful", field.kind !== "plain" && (shown?.doubtful ?? false));
    });
    row.bar?.draw(mark.y, picture.remembered?.spans.get(mark.key)?.y ?? null, scale);
  }

  private addRow(picture: Picture, key: string): Row {
    const bar = this.fields.some((field) => field.kind === "bar") ? new Bar() : null;
    const cells = this.fields.map((field, at) => {
      const cell = at === 0 && field.kind === "plain" ? element("th", { scope: "row" }) : element("td");
      cell.className = classOf(field);
      setAttribute(cell, "data-head", headOf(field, picture));
      if (field.kind === "bar" && bar) cell.append(bar.root);
      return cell;
    });
    const row = { root: element("tr", { "data-key": key }, ...cells), cells, bar };
    this.rows.set(key, row);
    return row;
  }
}

/** Return about how wide a table of these fields is, in pixels: measuring it would cost a layout. */
function widthOf(fields: readonly Field[], picture: Picture): number {
  const marks = picture.marks.slice(0, MOST_ROWS);
  const widths = fields.map((field, place) => {
    if (field.kind === "bar") return LEAST_BAR;
    const texts = [headOf(field, picture), ...marks.map((mark) => textOf(field, place, picture, mark))];
    return LETTER * Math.max(...texts.map((text) => text.length));
  });
  return widths.reduce((sum, width) => sum + width + PADDING, 0);
}

/** Names first; behind the watched value its interval drawn and in figures; then the other values. */
function fieldsOf(picture: Picture, width: number): Field[] {
  const { columns } = picture.answer;
  const { y } = picture.roles;
  const isDrawn = !picture.isExact || picture.remembered !== null; // a dot alone says nothing
  const hasBars = isDrawn && picture.marks.filter((mark) => mark.y).length > 1 && width >= 280;
  return columns.flatMap((column, at): Field[] => {
    if (!isApproximate(column)) return [{ kind: "plain", column, at }];
    const half: Field[] = picture.isExact ? [] : [{ kind: "half", at }];
    const bars: Field[] = hasBars && at === y ? [{ kind: "bar" }] : [];
    return [{ kind: "value", column, at }, ...bars, ...half];
  });
}

function isApproximate(column: Column): boolean {
  return column.kind !== "key" && column.kind !== "opaque";
}

function headOf(field: Field, picture: Picture): string {
  if (field.kind === "bar") return picture.isExact ? "" : picture.intervalName;
  return field.kind === "half" ? "±" : visible(columnName(picture, field.at));
}

function classOf(field: Field): string {
  const isNumber = field.kind === "half" || (field.kind !== "bar" && field.column.type === "number");
  return `${field.kind}${isNumber ? " figure" : ""}`;
}

function textOf(field: Exclude<Field, { kind: "bar" }>, place: number, picture: Picture, mark: Mark): string {
  const shown = mark.shown[field.at];
  if (!shown) return "";
  if (field.kind === "half") return shown.margin.replace(/^± /, "") + (shown.doubtful ? " ?" : "");
  const turns = place === 0 && picture.uncertain.has(mark.key);
  return shown.value + (turns ? " ≈" : "");
}

/** An interval as a rounded line with a dot at the estimate; scaled by the viewBox, so never measured. */
class Bar {
  readonly root = document.createElementNS(SVG, "svg");
  private readonly range = document.createElementNS(SVG, "line");
  private readonly dot = document.createElementNS(SVG, "line");
  private readonly ghost = document.createElementNS(SVG, "line");

  constructor() {
    setAttribute(this.root, "viewBox", `0 0 100 ${BAR_HEIGHT}`);
    setAttribute(this.root, "preserveAspectRatio", "none");
    setAttribute(this.root, "aria-hidden", "true");
    for (const [line, name] of [
      [this.range, "range"],
      [this.ghost, "ghost"],
      [this.dot, "point"],
    ] as const) {
      setAttribute(line, "class", name);
      setAttribute(line, "vector-effect", "non-scaling-stroke");
      this.root.append(line);
    }
  }

  draw(span: Span | null, remembered: Span | null, scale: LinearScale): void {
    setAttribute(this.root, "class", span && !span.certified ? "doubtful" : "certified");
    const within = (value: number): number => Math.min(100, Math.max(0, scale(value)));
    if (span && span.knowledge !== "unknown") this.place(this.range, within(span.low), within(span.high));
    else this.place(this.range, null, null);
    this.place(this.dot, span && scale(span.value), span && scale(span.value) + 0.01);
    this.place(
      this.ghost,
      remembered && within(remembered.value),
      remembered && within(remembered.value) + 0.01,
    );
  }

  private place(line: SVGLineElement, from: number | null, to: number | null): void {
    setAttribute(line, "visibility", from === null ? "hidden" : null);
    if (from === null || to === null) return;
    setAttribute(line, "x1", from.toFixed(2));
    setAttribute(line, "x2", to.toFixed(2));
    setAttribute(line, "y1", BAR_HEIGHT / 2);
    setAttribute(line, "y2", BAR_HEIGHT / 2);
  }
}
