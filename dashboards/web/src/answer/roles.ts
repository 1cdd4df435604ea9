/** Which column of an answer plays which part in a chart. */

import { isContinuous } from "../charts/axis_text";
import type { Answer, ChartKind, PanelSettings } from "../protocol";
import { visible } from "../text/plain";
import { cellOf, spanOf } from "./cells";

const WITH_SERIES: ReadonlySet<ChartKind> = new Set(["bars", "line", "stacked", "areas", "heatmap"]);

/** Positions of columns; null: no column plays the part. keys: every column that tells rows apart. */
export interface Roles {
  readonly x: number | null;
  readonly y: number | null;
  readonly series: number | null;
  readonly keys: readonly number[];
}

export type AskedRoles = Pick<PanelSettings, "chart" | "x" | "y" | "series">;

/** Return the columns the panel names, and for those it does not name the ones that fit by kind and type. */
export function rolesOf(answer: Answer, asked: AskedRoles): Roles {
  const keys = positions(answer, (column) => column.kind === "key");
  const values = valueColumns(answer);
  const y = named(answer, asked.y) ?? defaultY(asked.chart, values, named(answer, asked.x));
  const x = named(answer, asked.x) ?? defaultX(asked.chart, keys, values, y, named(answer, asked.series));
  const series = named(answer, asked.series) ?? defaultSeries(asked.chart, keys, x);
  return { x, y, series, keys: keys.length > 0 ? keys : rowNames(asked.chart, x, y) };
}

/** Return what rows without keys are called by: what they stand at, or where nothing does, nothing. */
function rowNames(chart: ChartKind, x: number | null, y: number | null): number[] {
  return chart === "table" || x === null || x === y ? [] : [x];
}

/** Return what the chart lacks to be drawn, in words; null where it lacks nothing. */
export function missing(chart: ChartKind, roles: Roles, answer: Answer): string | null {
  return chart === "table" ? null : (missingColumn(chart, roles) ?? missingValues(chart, roles, answer));
}

function missingColumn(chart: ChartKind, roles: Roles): string | null {
  if (roles.y === null) return "there is no column of numbers";
  if (chart !== "number" && roles.x === null) {
    return chart === "scatter" ? "there are not two columns of numbers" : "there is no column to group by";
  }
  return null;
}

/** A chart of which no mark has a place would be empty, and not say why. One number is text, and has a place. */
function missingValues(chart: ChartKind, { x, y }: Roles, answer: Answer): string | null {
  if (chart === "number") return null;
  const placed = isPlacedAcross(chart, x, answer) ? [y, x] : [y];
  for (const at of placed) {
    const column = at === null ? undefined : answer.columns[at];
    if (column?.type === "text") return `${visible(column.name)} is text`;
    if (column && !answer.rows.some((row) => hasPlace(answer, row, at)))
      return `every value of ${visible(column.name)} is NULL or no finite number`;
  }
  if (answer.rows.some((row) => placed.every((at) => hasPlace(answer, row, at)))) return null;
  return `no row has both ${placed.map((at) => visible(answer.columns[at ?? 0]?.name ?? "")).join(" and ")}`;
}

/** Whether marks stand at their x, and not side by side. */
function isPlacedAcross(chart: ChartKind, x: number | null, answer: Answer): boolean {
  if (chart === "scatter" || chart === "histogram" || chart === "areas") return true;
  return chart === "line" && x !== null && isContinuous(answer.columns[x]?.type);
}

function hasPlace(answer: Answer, row: Answer["rows"][number], at: number | null): boolean {
  const type = at === null ? undefined : answer.columns[at]?.type;
  return at !== null && type !== undefined && spanOf(cellOf(row[at] ?? null), type) !== null;
}

function named(answer: Answer, name: string | null): number | null {
  if (name === null) return null;
  const at = answer.columns.findIndex((column) => column.name === name);
  return at < 0 ? null : at;
}

function positions(answer: Answer, fits: (column: Answer["columns"][number]) => boolean): number[] {
  return answer.columns.flatMap((column, at) => (fits(column) ? [at] : []));
}

/** Return the columns of numbers that are no keys; where all numbers are keys, all but the first column. */
function valueColumns(answer: Answer): number[] {
  const values = positions(answer, (column) => column.kind !== "key" && column.type === "number");
  if (values.length > 0) return values;
  return positions(answer, (column) => column.type === "number").slice(answer.columns.length > 1 ? -1 : 0);
}

function defaultY(chart: ChartKind, values: readonly number[], x: number | null): number | null {
  const free = values.filter((at) => at !== x);
  return (chart === "scatter" && x === null ? free[1] : free[0]) ?? null;
}

function defaultX(
  chart: ChartKind,
  keys: readonly number[],
  values: readonly number[],
  y: number | null,
  series: number | null,
): number | null {
  const candidates = chart === "scatter" ? values : [...keys, ...values];
  return candidates.find((at) => at !== y && at !== series) ?? null;
}

function defaultSeries(chart: ChartKind, keys: readonly number[], x: number | null): number | null {
  if (!WITH_SERIES.has(chart)) return null;
  return keys.find((at) => at !== x) ?? null;
}
