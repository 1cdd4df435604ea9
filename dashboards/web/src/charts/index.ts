/** Which chart draws which kind. The server says which kinds there are, and what people call them. */

import type { ChartKind } from "../protocol";
import { BarChart } from "./bars";
import type { Chart } from "./chart";
import { Heatmap } from "./heatmap";
import { Histogram } from "./histogram";
import { LineChart } from "./line";
import { NumberChart } from "./number";
import { RowChart } from "./rows";
import { ScatterChart } from "./scatter";
import { StackedAreas, StackedBars } from "./stacks";
import { TableChart } from "./table";

const CHARTS: ReadonlyMap<ChartKind, new () => Chart> = new Map<ChartKind, new () => Chart>([
  ["bars", BarChart],
  ["line", LineChart],
  ["number", NumberChart],
  ["table", TableChart],
  ["scatter", ScatterChart],
  ["histogram", Histogram],
  ["rows", RowChart],
  ["stacked", StackedBars],
  ["areas", StackedAreas],
  ["heatmap", Heatmap],
]);

/** Return a new chart of a kind: a table where this page does not know the kind. */
export function newChart(kind: ChartKind): Chart {
  const Drawn = CHARTS.get(kind) ?? TableChart;
  return new Drawn();
}
