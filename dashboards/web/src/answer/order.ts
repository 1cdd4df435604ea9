/** In which order groups stand, and which neighbours might still change places. */

import type { Answer } from "../protocol";
import { cellOf, mayTurn, spanOf } from "./cells";
import type { Mark } from "./marks";

export type Order = "place" | "value";

/** Remembers where each group first stood, so that a chart's groups do not jump about while they settle. */
export class Places {
  private readonly places = new Map<string, number>();

  /** Return the marks in the places they had before; those not seen yet follow, in the order given. */
  keep(marks: readonly Mark[]): Mark[] {
    for (const mark of marks) {
      if (!this.places.has(mark.key)) this.places.set(mark.key, this.places.size);
    }
    return [...marks].sort((a, b) => (this.places.get(a.key) ?? 0) - (this.places.get(b.key) ?? 0));
  }

  forget(): void {
    this.places.clear();
  }
}

/** Compare names as people sort them: "2-HIGH" before "10-LOW". */
export const byName = new Intl.Collator("en", { numeric: true }).compare;

/** Return the marks of an answer that has no order of its own, by name; the group of NULL is last, as in SQL. */
export function byLabel(marks: readonly Mark[]): Mark[] {
  const isNull = (mark: Mark): number => Number(mark.group.startsWith("[null"));
  return [...marks].sort(
    (a, b) => isNull(a) - isNull(b) || byName(a.label, b.label) || byName(a.seriesName, b.seriesName),
  );
}

/** Return the marks with the largest values first; what has none comes last. */
export function byValue(marks: readonly Mark[]): Mark[] {
  const value = (mark: Mark): number => mark.y?.value ?? -Infinity;
  return [...marks].sort((a, b) => value(b) - value(a) || a.row - b.row);
}

/** Return the keys of marks whose order with the next one is not certain. */
export function uncertainOrder(marks: readonly Mark[]): Set<string> {
  const uncertain = new Set<string>();
  marks.forEach((mark, at) => {
    const next = marks[at + 1];
    if (mark.y && next?.y && mayTurn(mark.y, next.y)) uncertain.add(mark.key);
  });
  return uncertain;
}

/** Whether the rows of a ranked answer are ordered by this column, as far as its values tell. */
export function isRankedBy(answer: Answer, column: number | null): boolean {
  const type = column === null ? undefined : answer.columns[column]?.type;
  if (!answer.ranked || column === null || type === undefined || answer.rows.length < 2) return false;
  const values = answer.rows.map((row) => spanOf(cellOf(row[column] ?? null), type)?.value ?? NaN);
  const pairs = values.slice(1).map((value, at) => value - (values[at] ?? NaN));
  return pairs.every((step) => step <= 0) || pairs.every((step) => step >= 0);
}
