/** Groups as points between two measures, each with a cross of its two intervals. */

import { isDoubtfulSpan, type Span } from "../answer/cells";
import type { Mark } from "../answer/marks";
import { element } from "../dom";
import { textWidth } from "./axis_text";
import {
  type Chart,
  columnName,
  type Picture,
  placelessNotes,
  signNotes,
  type Size,
  valueText,
} from "./chart";
import {
  apart,
  drawBottomTicks,
  drawValueAxis,
  Frame,
  join,
  Legend,
  SeriesColours,
  type ValueAxis,
  ValueScale,
} from "./frame";
import { labelPlaces } from "./shapes";
import { type Domain, extentsOf } from "./steady";
import { type Tip, Tooltip } from "./tooltip";

const TOP = 20;
const BOTTOM = 36;
const NEAR = 40; // pixels
const MOST_LABELS = 40;

interface Point {
  readonly mark: Mark;
  readonly x: number;
  readonly y: number;
  readonly colour: string;
}

export class ScatterChart implements Chart {
  readonly root = element("div", { class: "chart scatter" });
  private readonly frame = new Frame();
  readonly stage = this.frame.root;
  private readonly legend = new Legend();
  private readonly colours = new SeriesColours();
  private readonly across = new ValueScale();
  private readonly up = new ValueScale();
  private readonly tooltip = new Tooltip(this.frame, (x, y) => this.tipAt(x, y));
  private drawn: { points: readonly Point[]; picture: Picture } | null = null;

  constructor() {
    this.root.append(this.legend.root, this.frame.root);
  }

  draw(picture: Picture, size: Size): readonly string[] {
    this.colours.see(picture);
    this.legend.draw(this.colours.texts);
    this.frame.resize(size, describe(picture));
    const [across, up] = this.axes(picture, size);
    const points = picture.marks.flatMap((mark): Point[] =>
      mark.x && mark.y
        ? [
            {
              mark,
              x: across.scale(mark.x.value),
              y: up.scale(mark.y.value),
              colour: this.colours.classOf(mark.series),
            },
          ]
        : [],
    );
    this.drawn = { points, picture };
    drawCrosses(this.frame, points, across, up);
    drawPoints(this.frame, points, picture, across, up);
    drawNames(this.frame, points, size);
    this.tooltip.refresh();
    return [...signNotes(picture).filter((note) => !note.startsWith("≈")), ...placelessNotes(picture)];
  }

  private axes(picture: Picture, size: Size): [ValueAxis, ValueAxis] {
    const bottom = size.height - BOTTOM;
    const extents = (pick: (mark: Mark) => Span | null): readonly Domain[] =>
      extentsOf(picture.marks.flatMap((mark) => pick(mark) ?? []));
    const { roles } = picture;
    const up = this.up.fit(
      extents((mark) => mark.y),
      columnName(picture, roles.y),
      bottom - TOP,
      picture,
    );
    up.scale.range([bottom, TOP]);
    drawValueAxis(this.frame, up, up.width, size.width);
    const length = size.width - up.width - 12;
    const across = this.across.fit(
      extents((mark) => mark.x),
      columnName(picture, roles.x),
      length / 2,
      picture,
    );
    across.scale.range([up.width + 8, size.width - 12]);
    const ticks = across.ticks.map((tick, at) => ({
      key: String(tick),
      at: across.scale(tick),
      text: across.texts[at] ?? "",
    }));
    drawBottomTicks(this.frame, apart(ticks, up.width, size.width), bottom + 16);
    join(this.frame.axis, "text", "bottom-title", [across.title], () => "title")
      .attr("x", size.width - 4)
      .attr("y", size.height - 4)
      .text((title) => title);
    return [across, up];
  }

  marksIn(from: number, to: number, y: number): readonly Mark[] {
    if (to > from)
      return (this.drawn?.points ?? []).filter((p) => from <= p.x && p.x <= to).map((p) => p.mark);
    const nearest = this.nearest(from, y);
    return nearest ? [nearest.mark] : [];
  }

  private nearest(x: number, y: number): Point | null {
    const distance = (point: Point): number => Math.hypot(point.x - x, point.y - y);
    const points = this.drawn?.points ?? [];
    const best = points.reduce<Point | null>(
      (least, each) => (least && distance(least) <= distance(each) ? least : each),
      null,
    );
    return best && distance(best) <= NEAR ? best : null;
  }

  private tipAt(x: number, y: number): Tip | null {
    const nearest = this.nearest(x, y);
    if (!this.drawn || !nearest) return null;
    const { picture } = this.drawn;
    const lines = [picture.roles.x, picture.roles.y].map((role) => ({
      label: columnName(picture, role),
      value: valueText(nearest.mark, role),
    }));
    return { x: nearest.x, title: nearest.mark.label, lines };
  }
}

function drawCrosses(frame: Frame, points: readonly Point[], across: ValueAxis, up: ValueAxis): void {
  const clamp = (scale: ValueAxis["scale"], value: number): number => {
    const [a, b] = scale.range();
    return Math.min(Math.max(a, b), Math.max(Math.min(a, b), scale(value)));
  };
  const arm = (span: Span | null, scale: ValueAxis["scale"]): [number, number] | null =>
    !span || span.knowledge === "exact" || span.knowledge === "unknown"
      ? null
      : [clamp(scale, span.low), clamp(scale, span.high)];
  join(frame.body, "path", "cross", points, (point) => point.mark.key)
    .attr("class", (point) => `cross ${point.colour}`)
    .attr("d", (point) => {
      const [h, v] = [arm(point.mark.x, across.scale), arm(point.mark.y, up.scale)];
      const flat = h ? `M${h[0].toFixed(1)},${point.y.toFixed(1)}H${h[1].toFixed(1)}` : "";
      return flat + (v ? `M${point.x.toFixed(1)},${v[0].toFixed(1)}V${v[1].toFixed(1)}` : "");
    });
}

function drawPoints(
  frame: Frame,
  points: readonly Point[],
  picture: Picture,
  across: ValueAxis,
  up: ValueAxis,
): void {
  const ghosts = points.flatMap((point) => {
    const spans = picture.remembered?.spans.get(point.mark.key);
    return spans?.x && spans.y
      ? [{ key: point.mark.key, x: across.scale(spans.x.value), y: up.scale(spans.y.value) }]
      : [];
  });
  join(frame.body, "circle", "ghost", ghosts, (ghost) => ghost.key)
    .attr("r", 5)
    .attr("cx", (ghost) => ghost.x.toFixed(1))
    .attr("cy", (ghost) => ghost.y.toFixed(1));
  join(frame.body, "circle", "dot", points, (point) => point.mark.key)
    .attr("class", (point) => `dot ${point.colour}${isDoubtful(point.mark) ? " doubtful" : ""}`)
    .attr("r", 4)
    .attr("cx", (point) => point.x.toFixed(1))
    .attr("cy", (point) => point.y.toFixed(1));
}

function isDoubtful(mark: Mark): boolean {
  return [mark.x, mark.y].some((span) => span !== null && isDoubtfulSpan(span));
}

/** Names beside the points, where they touch neither a point, nor each other, nor the edge. */
function drawNames(frame: Frame, points: readonly Point[], size: Size): void {
  const labels =
    points.length > MOST_LABELS
      ? []
      : points.map(({ mark, x, y }) => ({ x, y, width: textWidth(mark.label) }));
  const places = labelPlaces(labels, size.width);
  const named = points.flatMap((point, at) => {
    const place = places[at];
    return place ? [{ point, place }] : [];
  });
  join(frame.over, "text", "point-name", named, (each) => each.point.mark.key)
    .attr("x", (each) => each.place.left.toFixed(1))
    .attr("y", (each) => (each.place.bottom - 3).toFixed(1))
    .text((each) => each.point.mark.label);
}

function describe(picture: Picture): string {
  const [x, y] = [columnName(picture, picture.roles.x), columnName(picture, picture.roles.y)];
  return `Scatter of ${picture.marks.length} groups by ${x} and ${y}. The table has the numbers.`;
}
