/** The chart kinds a panel may choose from. */

import type { ChartKind } from "../protocol";
import { BarChart } from "./bars";
import type { Chart } from "./chart";
import { Histogram } from "./histogram";
import { LineChart } from "./line";
import { NumberChart } from "./number";
import { ScatterChart } from "./scatter";
import { TableChart } from "./table";

export const CHART_KINDS: readonly ChartKind[] = ["bars", "line", "number", "table", "scatter", "histogram"];

export function newChart(kind: ChartKind): Chart {
  switch (kind) {
    case "bars":
      return new BarChart();
    case "line":
      return new LineChart();
    case "number":
      return new NumberChart();
    case "table":
      return new TableChart();
    case "scatter":
      return new ScatterChart();
    case "histogram":
      return new Histogram();
  }
}
