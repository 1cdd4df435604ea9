/** What a chart is given to draw, and what every chart is. */

import type { Mark, Remembered } from "../answer/marks";
import type { Roles } from "../answer/roles";
import type { Answer } from "../protocol";
import { visible } from "../text/plain";
import { isContinuous } from "./axis_text";

/** One answer of a run that gives one number. */
export interface HistoryPoint {
  readonly elapsedSeconds: number;
  readonly value: number;
  readonly low: number;
  readonly high: number;
}

export interface Picture {
  readonly answer: Answer;
  readonly roles: Roles;
  /** In the order they are to stand in. */
  readonly marks: readonly Mark[];
  /** Keys of marks whose order with the next one is not certain. */
  readonly uncertain: ReadonlySet<string>;
  readonly isExact: boolean;
  /** Whether the axis of values is to be a logarithmic one. */
  readonly isLog: boolean;
  /** Keys of marks whose period the table fills in part: the first one, and the last. */
  readonly partial: ReadonlySet<string>;
  /** "95 % interval" */
  readonly intervalName: string;
  readonly remembered: Remembered | null;
  readonly history: readonly HistoryPoint[];
  /** Changes with every run: axes are made anew. */
  readonly run: number;
  /** Milliseconds on a clock that only goes forward. */
  readonly now: number;
}

/** In CSS pixels. */
export interface Size {
  readonly width: number;
  readonly height: number;
}

export interface Chart {
  readonly root: HTMLElement;
  /** The element whose box the drawing fills. */
  readonly stage: HTMLElement;
  /** Draw in place, and return what must be said beside the drawing. */
  draw(picture: Picture, size: Size): readonly string[];
  /** Return the marks between two places across the drawing; where both are one, those at that place. */
  marksIn?(from: number, to: number, y: number): readonly Mark[];
}

export const DOUBT_NOTE = "? or outlined: not certified, see the remarks for why";
export const ORDER_NOTE = "≈ order with the next one not certain";
export const BOUND_NOTE = "≥ ≤ bounds: all that is known so far";

/** Return the notes that explain the signs a picture uses. */
export function signNotes(picture: Picture): string[] {
  const spans = picture.marks.flatMap((mark) => (mark.y ? [mark.y] : []));
  return [
    ...partialNotes(picture),
    ...(picture.uncertain.size > 0 ? [ORDER_NOTE] : []),
    ...(spans.some((span) => !span.certified && span.knowledge !== "exact") ? [DOUBT_NOTE] : []),
    ...(spans.some((span) => span.knowledge === "at_least" || span.knowledge === "at_most")
      ? [BOUND_NOTE]
      : []),
  ];
}

/** Return a note where a period is drawn that the table fills in part. */
export function partialNotes(picture: Picture): string[] {
  return picture.partial.size > 0
    ? ["pale or dashed: the data, or the time shown, begin or end within this period"]
    : [];
}

/** Return a note where rows have a value and no place along the chart, which is a line of numbers or of time. */
export function placelessNotes(picture: Picture): string[] {
  const { x } = picture.roles;
  if (x === null || !isContinuous(picture.answer.columns[x]?.type)) return [];
  const count = picture.marks.filter((mark) => mark.y && !mark.x).length;
  const name = visible(columnName(picture, x));
  return count > 0 ? [`${count} not drawn: ${name} is NULL or no finite number`] : [];
}

export function columnName(picture: Picture, role: number | null): string {
  return role === null ? "" : (picture.answer.columns[role]?.name ?? "");
}

/** Return the text of a mark's value as a reader should see it: value, margin, doubt. */
export function valueText(mark: Mark, role: number | null): string {
  const shown = role === null ? undefined : mark.shown[role];
  return shown ? [shown.value, shown.margin, shown.doubtful ? "?" : ""].filter(Boolean).join(" ") : "";
}
