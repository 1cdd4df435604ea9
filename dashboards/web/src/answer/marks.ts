/** The rows of an answer as the marks of a chart: who it is, where it stands, how sure that is. */

import type { Answer, Column, Scalar } from "../protocol";
import { aligned, type Shown, showColumn } from "../text/rounding";
import { showKeys } from "../text/plain";
import { type Cell, cellOf, type Span, spanOf } from "./cells";
import type { Roles } from "./roles";

export interface Mark {
  /** Tells the mark from all others of the answer, now and in later updates. */
  readonly key: string;
  /** Tells its group, without its series, from all others: places go by values, and never by what is written. */
  readonly group: string;
  /** The group as it is written. */
  readonly label: string;
  /** Tells its series from all others; "" where it has none. */
  readonly series: string;
  /** The series as it is written. */
  readonly seriesName: string;
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

/** Rows whose keys are the same are told apart by their number: none may hide another. */
function withOwnKeys(marks: readonly Mark[]): Mark[] {
  const seen = new Map<string, number>();
  return marks.map((mark) => {
    const before = seen.get(mark.key) ?? 0;
    seen.set(mark.key, before + 1);
    if (before === 0) return mark;
    const [key, group] = [mark.key, mark.group].map((own) => `${own} ${before + 1}`);
    return { ...mark, key: key ?? "", group: group ?? "" };
  });
}

/** Exact columns are text as they are; only estimates share a unit. */
function textsOf(column: Column, cells: readonly (readonly Cell[])[], at: number): Shown[] {
  const own = cells.map((row) => row[at] ?? cellOf(null));
  if (column.kind === "key" || column.kind === "opaque") {
    return showKeys(
      own.map((cell) => cell.value),
      column.type,
    ).map((value) => ({ value, margin: "", doubtful: false }));
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
  const values = (some: readonly number[]): string => keyOf(some.map((role) => row[role]?.value ?? null));
  const labels = roles.keys.filter((role) => role !== roles.series);
  return {
    key: roles.keys.length > 0 ? values(roles.keys) : String(at),
    group: values(labels),
    label: labels.map(text).join(" · "),
    series: roles.series === null ? "" : values([roles.series]),
    seriesName: roles.series === null ? "" : text(roles.series),
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
