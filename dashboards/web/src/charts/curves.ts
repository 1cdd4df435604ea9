/** How a job's quality went, and how it was predicted to go on. */

import { type LinearScale, scaleLinear } from "./scale";
import { line } from "d3-shape";
import { element } from "../dom";
import type { WorkQuality } from "../protocol";
import { showPercent } from "../text/plain";
import type { Size } from "./chart";
import { apart, drawBottomTicks, drawValueAxis, Frame, join, valueAxis } from "./frame";
import { hull } from "./steady";

const TOP = 20;
const BOTTOM = 22;
const RIGHT = 16; // half of the last label, "100 %"

/** Work is a share of the rows for queries, steps for training; quality is an error or a loss: less is better. */
export interface CurvesPicture {
  readonly name: string;
  readonly isShare: boolean;
  readonly history: readonly WorkQuality[];
  readonly predicted: readonly WorkQuality[];
  /** The first prediction made, to be held against what came. */
  readonly foretold: readonly WorkQuality[];
}

export class CurvesChart {
  readonly root = element("div", { class: "chart curves" });
  private readonly frame = new Frame();
  readonly stage = this.frame.root;

  constructor() {
    this.root.append(this.frame.root);
  }

  draw(picture: CurvesPicture, size: Size): void {
    const what = picture.isShare ? "relative error over rows read" : "loss over steps";
    this.frame.resize(size, `${picture.name}: ${what}, actual and predicted`);
    const all = [...picture.history, ...picture.predicted, ...picture.foretold];
    const bottom = size.height - BOTTOM;
    const high = hull(all.map(([, quality]): [number, number] => [quality, quality]));
    const percent = picture.isShare ? 100 : 1;
    const axis = valueAxis([Math.min(0, high[0] * percent), high[1] * percent], "", bottom - TOP);
    axis.scale.range([bottom, TOP]);
    drawValueAxis(
      this.frame,
      { ...axis, title: picture.isShare ? "± %, by rows read" : "loss, by steps" },
      axis.width,
      size.width,
    );
    const work = hull(all.map(([done]): [number, number] => [done, done]));
    const x = scaleLinear(picture.isShare ? [0, 1] : [Math.min(0, work[0]), work[1]], [
      axis.width,
      size.width - RIGHT,
    ]);
    drawBottom(this.frame, x, picture.isShare, axis.width, size);
    const path = line<WorkQuality>()
      .x((p) => x(p[0]))
      .y((p) => axis.scale(p[1] * percent));
    const draw = (name: string, points: readonly WorkQuality[]): void => {
      join(this.frame.body, "path", name, points.length > 1 ? [points] : [], () => name).attr("d", (each) =>
        path([...each]),
      );
    };
    draw("foretold", picture.foretold);
    draw("predicted", picture.predicted);
    draw("actual", picture.history);
    join(this.frame.body, "circle", "dot", picture.history.slice(-1), () => "now")
      .classed("s0", true)
      .attr("r", 3.5)
      .attr("cx", (p) => x(p[0]).toFixed(1))
      .attr("cy", (p) => axis.scale(p[1] * percent).toFixed(1));
  }
}

function drawBottom(frame: Frame, x: LinearScale, isShare: boolean, left: number, size: Size): void {
  const ticks = x.ticks(Math.max(2, Math.floor(size.width / 60))).map((tick) => ({
    key: String(tick),
    at: x(tick),
    text: isShare ? `${Math.round(tick * 100)} %` : `${tick}`,
  }));
  drawBottomTicks(frame, apart(ticks, left, size.width), size.height - 5);
}

export function qualityText(quality: number | null, isShare: boolean): string {
  if (quality === null) return "not known yet";
  return isShare ? `± ${showPercent(quality)}` : `loss ${quality.toPrecision(4)}`;
}
