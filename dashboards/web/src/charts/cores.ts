/** Who had how many cores over the last minute: one area a job, its name beside it. */

import { scaleLinear } from "./scale";
import { area } from "d3-shape";
import { element } from "../dom";
import { showCores, visible } from "../text/plain";
import { fitted, textWidth } from "./axis_text";
import type { Size } from "./chart";
import { drawBottomTicks, drawValueAxis, Frame, join, valueAxis, type ValueAxis } from "./frame";
import { spread } from "./shapes";
import { type Tip, Tooltip } from "./tooltip";

export const WINDOW_MS = 60_000;
const TOP = 20;
const BOTTOM = 22;
const LABEL_HEIGHT = 15;
const MOST_LABEL = 260; // pixels
const INSIDE_LEAST = { width: 60, height: 15 };

/** One job's cores at each of the samples. isTraining: drawn in greys, as it is not a panel's. */
export interface Band {
  readonly id: string;
  readonly name: string;
  readonly isTraining: boolean;
  readonly colour: string;
  readonly cores: readonly number[];
}

export interface CoresPicture {
  /** Epoch milliseconds, ascending. */
  readonly times: readonly number[];
  readonly bands: readonly Band[];
  readonly capacity: number;
}

interface Layer {
  readonly band: Band;
  readonly low: readonly number[];
  readonly high: readonly number[];
}

interface Edges {
  readonly left: number;
  readonly right: number;
  readonly bottom: number;
}

export class CoresChart {
  readonly root = element("div", { class: "chart cores" });
  private readonly frame = new Frame();
  readonly stage = this.frame.root;
  private readonly tooltip = new Tooltip(this.frame, (x) => this.tipAt(x));
  private drawn: { picture: CoresPicture; x: (at: number) => number } | null = null;

  constructor() {
    this.root.append(this.frame.root);
  }

  draw(picture: CoresPicture, size: Size): void {
    const running = picture.bands.filter((band) => (band.cores.at(-1) ?? 0) > 0.005);
    this.frame.resize(
      size,
      `Cores by job over the last minute; now ${running.map((band) => nowText(band)).join(", ") || "idle"}`,
    );
    const bottom = size.height - BOTTOM;
    const axis = valueAxis([0, Math.max(1, picture.capacity)], "cores", bottom - TOP);
    axis.scale.domain([0, Math.max(1, picture.capacity)]).range([bottom, TOP]);
    const edges = { left: axis.width, right: size.width - labelRoom(running, size.width), bottom };
    const ticks = axis.ticks.filter((tick) => tick <= picture.capacity);
    drawValueAxis(this.frame, { ...axis, ticks }, edges.left, edges.right);
    const now = picture.times.at(-1) ?? 0;
    const x = scaleLinear()
      .domain([now - WINDOW_MS, now])
      .range([edges.left, edges.right]);
    drawTimes(this.frame, edges);
    const layers = stacked(picture.bands);
    this.drawn = { picture, x };
    drawAreas(this.frame, layers, picture.times, x, axis.scale);
    drawNames(this.frame, layers, axis, edges, size.width - edges.right - 12);
    drawPastNames(this.frame, layers, picture.times, x, axis, edges);
    this.tooltip.refresh();
  }

  private tipAt(at: number): Tip | null {
    if (!this.drawn) return null;
    const { picture, x } = this.drawn;
    const distances = picture.times.map((time) => Math.abs(x(time) - at));
    const nearest = distances.indexOf(Math.min(...distances));
    const time = picture.times[nearest];
    if (time === undefined) return null;
    const seconds = Math.round(((picture.times.at(-1) ?? time) - time) / 1000);
    const lines = picture.bands
      .map((band) => ({ label: visible(band.name), cores: band.cores[nearest] ?? 0, colour: band.colour }))
      .filter((line) => line.cores > 0.005)
      .map((line) => ({ label: line.label, value: showCores(line.cores), colour: line.colour }))
      .reverse();
    return { x: x(time), title: seconds ? `${seconds} s ago` : "now", lines };
  }
}

/** Return a job's name and cores now; the name is cut to a width in pixels, the cores never are. */
function nowText(band: Band, width = Infinity): string {
  const cores = showCores(band.cores.at(-1) ?? 0);
  return `${fitted(visible(band.name), width - textWidth(` ${cores}`))} ${cores}`;
}

function labelRoom(bands: readonly Band[], width: number): number {
  const longest = Math.max(40, ...bands.map((band) => textWidth(nowText(band))));
  return Math.min(longest + 14, MOST_LABEL, width * 0.4);
}

function stacked(bands: readonly Band[]): Layer[] {
  let floor: readonly number[] = [];
  return bands.map((band) => {
    const low = band.cores.map((_, at) => floor[at] ?? 0);
    const high = band.cores.map((cores, at) => (low[at] ?? 0) + cores);
    floor = high;
    return { band, low, high };
  });
}

function drawAreas(
  frame: Frame,
  layers: readonly Layer[],
  times: readonly number[],
  x: (at: number) => number,
  y: (cores: number) => number,
): void {
  join(frame.body, "path", "share", layers, (layer) => layer.band.id)
    .attr("class", (layer) => `share ${layer.band.colour}`)
    .attr("d", (layer) => {
      const shape = area<number>()
        .x((_, at) => x(times[at] ?? 0))
        .y0((_, at) => y(layer.low[at] ?? 0))
        .y1((_, at) => y(layer.high[at] ?? 0))
        .defined((_, at) => (times[at] ?? 0) >= (times.at(-1) ?? 0) - WINDOW_MS);
      return shape([...layer.high]);
    });
}

function drawTimes(frame: Frame, edges: Edges): void {
  const steps = edges.right - edges.left > 420 ? [60, 45, 30, 15, 0] : [60, 30, 0];
  const ticks = steps.map((seconds) => ({
    key: String(seconds),
    at: edges.right - ((edges.right - edges.left) * seconds * 1000) / WINDOW_MS,
    text: seconds ? `−${seconds} s` : "now",
  }));
  drawBottomTicks(frame, ticks, edges.bottom + 16);
}

/** Names of running jobs stand beside their areas; the thinnest are left out where there is no room. */
function drawNames(
  frame: Frame,
  layers: readonly Layer[],
  axis: ValueAxis,
  edges: Edges,
  room: number,
): void {
  const most = Math.max(1, Math.floor((edges.bottom - TOP + 10) / LABEL_HEIGHT));
  const cores = (layer: Layer): number => layer.band.cores.at(-1) ?? 0;
  const running = layers.filter((layer) => cores(layer) > 0.005);
  const thickest = new Set([...running].sort((a, b) => cores(b) - cores(a)).slice(0, most));
  const named = running.filter((layer) => thickest.has(layer)).reverse(); // from the top down
  const wanted = named.map((layer) => axis.scale(((layer.low.at(-1) ?? 0) + (layer.high.at(-1) ?? 0)) / 2));
  const places = spread(wanted, LABEL_HEIGHT, TOP, edges.bottom - 5);
  const labels = named.map((layer, at) => ({ layer, y: places[at] ?? 0, wanted: wanted[at] ?? 0 }));
  join(frame.over, "text", "share-name", labels, (label) => label.layer.band.id)
    .attr("x", edges.right + 10)
    .attr("y", (label) => (label.y + 4).toFixed(1))
    .text((label) => nowText(label.layer.band, room));
  join(frame.over, "path", "leader", labels, (label) => label.layer.band.id)
    .attr("class", (label) => `leader ${label.layer.band.colour}`)
    .attr(
      "d",
      (label) => `M${edges.right + 1},${label.wanted.toFixed(1)}L${edges.right + 7},${label.y.toFixed(1)}`,
    );
}

/** Names of jobs that ended stand on their areas, where those are large enough. */
function drawPastNames(
  frame: Frame,
  layers: readonly Layer[],
  times: readonly number[],
  x: (at: number) => number,
  axis: ValueAxis,
  edges: Edges,
): void {
  const names = layers.flatMap((layer) => {
    const place = (layer.band.cores.at(-1) ?? 0) > 0.005 ? null : roomiest(layer, times, x, axis, edges);
    return place ? [{ layer, ...place }] : [];
  });
  join(frame.over, "text", "past-name", names, (name) => name.layer.band.id)
    .attr("x", (name) => name.at.toFixed(1))
    .attr("y", (name) => (name.y + 4).toFixed(1))
    .text((name) => fitted(visible(name.layer.band.name), name.width - 8));
}

/** Return the middle of an ended job's area and its width, or null where a name would not fit. */
function roomiest(
  layer: Layer,
  times: readonly number[],
  x: (at: number) => number,
  axis: ValueAxis,
  edges: Edges,
): { at: number; y: number; width: number } | null {
  const thick = times.flatMap((time, at) => {
    const height = axis.scale(layer.low[at] ?? 0) - axis.scale(layer.high[at] ?? 0);
    return height >= INSIDE_LEAST.height && x(time) >= edges.left ? [at] : [];
  });
  const [first, last] = [thick[0], thick.at(-1)];
  if (first === undefined || last === undefined) return null;
  const [from, to] = [x(times[first] ?? 0), x(times[last] ?? 0)];
  const middle = thick[Math.floor(thick.length / 2)] ?? first;
  if (to - from < INSIDE_LEAST.width || thick.length < last - first + 1) return null;
  return {
    at: (from + to) / 2,
    y: axis.scale(((layer.low[middle] ?? 0) + (layer.high[middle] ?? 0)) / 2),
    width: to - from,
  };
}
