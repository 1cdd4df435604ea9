/** The rows of an answer as the marks of a chart: who it is, where it stands, how sure that is. */

import type { Answer, Column, Scalar } from "../protocol";
import { aligned, type Shown, showColumn } from "../text/rounding";
import { showValue } from "../text/plain";
import { type Cell, cellOf, type Span, spanOf } from "./cells";
import type { Roles } from "./roles";

export interface Mark {
  /** Tells the mark from all others of the answer, now and in later updates. */
  readonly key: string;
  /** The group without its series. */
  readonly label: string;
  readonly series: string;
  readonly xCell: Cell | null;
  readonly x: Span | null;
  readonly y: Span | null;
  /** Every column of the row as text. */
  readonly shown: readonly Shown[];
  /** Position of the row in the answer. */
  readonly row: number;
}

export function marksOf(answer: Answer, roles: Roles): Mark[] {
  const cells = answer.rows.map((row) => row.map(cellOf));
  const shown = answer.columns.map((column, at) => textsOf(column, cells, at));
  return withOwnKeys(cells.map((row, at) => markOf(answer, roles, row, at, shown)));
}

/** Rows that look the same are told apart by their number: none may hide another. */
function withOwnKeys(marks: readonly Mark[]): Mark[] {
  const seen = new Map<string, number>();
  return marks.map((mark) => {
    const before = seen.get(mark.key) ?? 0;
    seen.set(mark.key, before + 1);
    return before === 0 ? mark : { ...mark, key: `${mark.key} ${before + 1}` };
  });
}

/** Exact columns are text as they are; only estimates share a unit. */
function textsOf(column: Column, cells: readonly (readonly Cell[])[], at: number): Shown[] {
  const own = cells.map((row) => row[at] ?? cellOf(null));
  if (column.kind === "key" || column.kind === "opaque") {
    return own.map((cell) => ({ value: showValue(cell.value, column.type), margin: "", doubtful: false }));
  }
  const texts = showColumn(own, column.type);
  if (column.type !== "number" || own.some((cell) => cell.knowledge !== "exact")) return texts;
  const values = aligned(texts.map((text) => text.value));
  return texts.map((text, at) => ({ ...text, value: values[at] ?? text.value }));
}

function markOf(
  answer: Answer,
  roles: Roles,
  row: readonly Cell[],
  at: number,
  shown: readonly Shown[][],
): Mark {
  const cell = (role: number | null): Cell | null => (role === null ? null : (row[role] ?? null));
  const text = (role: number): string => shown[role]?.[at]?.value ?? "";
  const labels = roles.keys.filter((role) => role !== roles.series);
  return {
    key: roles.keys.length > 0 ? keyOf(roles.keys.map((role) => row[role]?.value ?? null)) : String(at),
    label: labels.map(text).join(" · "),
    series: roles.series === null ? "" : text(roles.series),
    xCell: cell(roles.x),
    x: spanIn(answer, roles.x, cell(roles.x)),
    y: spanIn(answer, roles.y, cell(roles.y)),
    shown: shown.map((column) => column[at] ?? { value: "", margin: "", doubtful: false }),
    row: at,
  };
}

function keyOf(values: readonly Scalar[]): string {
  return JSON.stringify(values);
}

function spanIn(answer: Answer, role: number | null, cell: Cell | null): Span | null {
  const column = role === null ? undefined : answer.columns[role];
  return column && cell ? spanOf(cell, column.type) : null;
}

/** What somebody asked to remember: the marks of an answer by their key. */
export interface Remembered {
  readonly at: number;
  readonly spans: ReadonlyMap<string, { readonly x: Span | null; readonly y: Span | null }>;
  /** The first value as text, for charts of one number. */
  readonly text: string;
}

export function remember(marks: readonly Mark[], roles: Roles, at: number): Remembered {
  const first = roles.y === null ? undefined : marks[0]?.shown[roles.y];
  return {
    at,
    spans: new Map(marks.map((mark) => [mark.key, { x: mark.x, y: mark.y }])),
    text: first ? [first.value, first.margin].filter(Boolean).join(" ") : "",
  };
}
