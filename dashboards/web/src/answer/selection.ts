/** What is selected in an answer: from marks to the values that the server is sent, and back. Pure. */

import { isContinuous } from "../charts/axis_text";
import type { Answer, PanelUpdate, Scalar, Selection } from "../protocol";
import { visible, showValue } from "../text/plain";
import { cellOf, position } from "./cells";
import type { Mark } from "./marks";
import type { Roles } from "./roles";

const MOST_NAMED = 3;

/** The column of an answer that somebody selects in. */
export interface Brushed {
  readonly name: string;
  readonly at: number;
  /** Whether its values lie on a line, so that a part of it can be selected. */
  readonly isLine: boolean;
}

/** Return the column that a selection is of: what the chart stands on, else the first that can be; or null. */
export function brushedColumn(
  answer: Answer,
  roles: Roles,
  update: Pick<PanelUpdate, "brushes">,
): Brushed | null {
  const can = (at: number): boolean => update.brushes?.includes(answer.columns[at]?.name ?? "") ?? false;
  const at = [roles.x, ...answer.columns.keys()].find((each) => each !== null && can(each)) ?? null;
  const column = at === null ? undefined : answer.columns[at];
  return at === null || !column ? null : { name: column.name, at, isLine: isContinuous(column.type) };
}

/** Return the values of the marks' rows in a column, each once, in the marks' order. */
export function valuesOf(answer: Answer, marks: readonly Mark[], at: number): Scalar[] {
  const values = marks.map((mark) => cellOf(answer.rows[mark.row]?.[at] ?? null).value);
  return [...new Set(values)];
}

/** Return the part of a line from the least to the greatest of the values; null where there is none. */
export function rangeOf(answer: Answer, values: readonly Scalar[], at: number): Selection | null {
  const type = answer.columns[at]?.type ?? "text";
  const known = values.filter((value) => Number.isFinite(position(value, type)));
  known.sort((a, b) => position(a, type) - position(b, type));
  const [low, high] = [known[0], known.at(-1)];
  return low === undefined || high === undefined ? null : { range: [low, high] };
}

/** Whether a row is in a selection of this column. */
export function isSelected(answer: Answer, row: number, at: number, selection: Selection): boolean {
  const { value } = cellOf(answer.rows[row]?.[at] ?? null);
  if ("values" in selection) return selection.values.includes(value);
  const type = answer.columns[at]?.type ?? "text";
  const [low, here, high] = [selection.range[0], value, selection.range[1]].map((each) =>
    position(each, type),
  );
  return low !== undefined && here !== undefined && high !== undefined && low <= here && here <= high;
}

export function sameSelection(a: Selection, b: Selection): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** Return a selection in a few words: "EWR, JFK and 2 more". */
export function selectionText(selection: Selection, answer: Answer | null, column: string): string {
  const type = answer?.columns.find((each) => each.name === column)?.type ?? "text";
  const text = (value: Scalar): string => visible(showValue(value, type, Infinity));
  if ("range" in selection) {
    const [low, high] = selection.range.map(text);
    return low === high ? `${low}` : `${low} to ${high}`;
  }
  const named = selection.values.slice(0, MOST_NAMED).map(text).join(", ");
  const more = selection.values.length - MOST_NAMED;
  return more > 0 ? `${named} and ${more} more` : named;
}
