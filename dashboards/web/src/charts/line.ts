/** Lines with a band from low to high, over numbers, time or groups in a row. */

import { scalePoint } from "d3-scale";
import { area, line } from "d3-shape";
import { isDoubtfulSpan, type Span } from "../answer/cells";
import type { Mark } from "../answer/marks";
import { element } from "../dom";
import { isContinuous } from "./axis_text";
import { continuousBottom } from "./bottom";
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
  type Tick,
  type ValueAxis,
  ValueScale,
} from "./frame";
import { beyondNotes, extentsOf, hull } from "./steady";
import { type Tip, Tooltip } from "./tooltip";

const TOP = 20;
const BOTTOM = 22;

interface Point {
  readonly mark: Mark;
  readonly x: number;
  readonly span: Span;
}

interface Course {
  readonly name: string;
  readonly points: readonly Point[];
}

/** Where marks stand along the bottom, and its ticks. */
interface Placed {
  readonly xOf: (mark: Mark) => number;
  readonly ticks: readonly Tick[];
}

export class LineChart implements Chart {
  readonly root = element("div", { class: "chart line" });
  private readonly frame = new Frame();
  readonly stage = this.frame.root;
  private readonly legend = new Legend();
  private readonly colours = new SeriesColours();
  private readonly values = new ValueScale();
  private readonly tooltip = new Tooltip(this.frame, (x) => this.tipAt(x));
  private drawn: { courses: readonly Course[]; picture: Picture } | null = null;

  constructor() {
    this.root.append(this.legend.root, this.frame.root);
  }

  draw(picture: Picture, size: Size): readonly string[] {
    this.colours.see(picture);
    this.legend.draw(this.colours.texts);
    this.frame.resize(size, describe(picture));
    const spans = picture.marks.flatMap((mark) => (mark.y ? [mark.y] : []));
    const name = columnName(picture, picture.roles.y);
    const axis = this.values.fit(extentsOf(spans), name, size.height - TOP - BOTTOM, picture);
    axis.scale.range([size.height - BOTTOM, TOP]);
    drawValueAxis(this.frame, axis, axis.width, size.width);
    const bottom = bottomOf(picture, axis.width + 4, size.width - 6);
    drawBottomTicks(this.frame, apart(bottom.ticks, axis.width, size.width), size.height - 5);
    const courses = coursesOf(picture.marks, bottom.xOf).sort(
      (a, b) => Number(this.colours.isRest(b.name)) - Number(this.colours.isRest(a.name)), // drawn beneath
    );
    this.drawn = { courses, picture };
    this.drawCourses(courses, axis, picture.partial);
    drawGhosts(this.frame, courses, picture, axis);
    this.tooltip.refresh();
    return [...signNotes(picture), ...placelessNotes(picture), ...beyondNotes(spans, axis.scale.domain())];
  }

  private drawCourses(courses: readonly Course[], axis: ValueAxis, partial: ReadonlySet<string>): void {
    const y = axis.scale;
    const [bottom = 0, top = 0] = y.range();
    const inside = (value: number): number => Math.min(bottom, Math.max(top, y(value)));
    const band = area<Point>()
      .x((p) => p.x)
      .y0((p) => inside(p.span.low))
      .y1((p) => inside(p.span.high));
    const stroke = line<Point>()
      .x((p) => p.x)
      .y((p) => y(p.span.value));
    const bounded = (p: Point): boolean => p.span.knowledge !== "unknown";
    join(this.frame.body, "path", "band", courses, (course) => course.name)
      .attr("class", (course) => `band ${this.colours.classOf(course.name)}`)
      .attr("d", (course) => band.defined(bounded)(course.points as Point[]));
    join(this.frame.body, "path", "stroke", courses, (course) => course.name)
      .attr("class", (course) => `stroke ${this.colours.classOf(course.name)}`)
      .attr("d", (course) => stroke(course.points.filter((point) => !partial.has(point.mark.key))));
    const ends = courses.flatMap((course) => endsOf(course, partial));
    join(this.frame.body, "path", "unfinished", ends, (end) => `${end.name} ${end.points[0]?.mark.key}`)
      .attr("class", (end) => `unfinished ${this.colours.classOf(end.name)}`)
      .attr("d", (end) => stroke([...end.points]));
    this.drawDots(courses, y);
  }

  /** Hollow dots where nobody vouches for the interval; full ones where a line would be a point. */
  private drawDots(courses: readonly Course[], y: (value: number) => number): void {
    const dots = courses.flatMap((course) =>
      course.points
        .filter((point) => isDoubtfulSpan(point.span) || course.points.length === 1)
        .map((point) => ({ ...point, colour: this.colours.classOf(course.name) })),
    );
    join(this.frame.body, "circle", "dot", dots, (dot) => dot.mark.key)
      .attr("class", (dot) => `dot ${dot.colour}${isDoubtfulSpan(dot.span) ? " doubtful" : ""}`)
      .attr("r", 3)
      .attr("cx", (dot) => dot.x.toFixed(1))
      .attr("cy", (dot) => y(dot.span.value).toFixed(1));
  }

  marksIn(from: number, to: number): readonly Mark[] {
    const points = this.drawn?.courses.flatMap((course) => course.points) ?? [];
    if (to > from)
      return points.filter((point) => from <= point.x && point.x <= to).map((point) => point.mark);
    const near = Math.min(...points.map((point) => Math.abs(point.x - from)));
    return points.filter((point) => Math.abs(point.x - from) === near).map((point) => point.mark);
  }

  private tipAt(x: number): Tip | null {
    if (!this.drawn) return null;
    const { courses, picture } = this.drawn;
    const all = courses.flatMap((course) => course.points.map((point) => ({ course, point })));
    const nearest = all.reduce<(typeof all)[number] | null>(
      (best, each) => (best && Math.abs(best.point.x - x) <= Math.abs(each.point.x - x) ? best : each),
      null,
    );
    if (!nearest) return null;
    const column = all.filter((each) => each.point.x === nearest.point.x);
    return {
      x: nearest.point.x,
      title: nearest.point.mark.label,
      lines: column.map(({ course, point }) => ({
        label: point.mark.seriesName || columnName(picture, picture.roles.y),
        value: valueText(point.mark, picture.roles.y),
        colour: this.colours.classOf(course.name),
      })),
    };
  }
}

/** Return the steps of a course from or to a period that the table fills in part. */
function endsOf({ name, points }: Course, partial: ReadonlySet<string>): Course[] {
  const isPartial = (point: Point | undefined): boolean => point !== undefined && partial.has(point.mark.key);
  return points.flatMap((point, at) => {
    const next = points[at + 1];
    return next && (isPartial(point) || isPartial(next)) ? [{ name, points: [point, next] }] : [];
  });
}

function coursesOf(marks: readonly Mark[], xOf: (mark: Mark) => number): Course[] {
  const courses = new Map<string, Point[]>();
  for (const mark of marks) {
    const x = xOf(mark);
    if (!mark.y || !Number.isFinite(x)) continue;
    const points = courses.get(mark.series) ?? [];
    points.push({ mark, x, span: mark.y });
    courses.set(mark.series, points);
  }
  return [...courses].map(([name, points]) => ({ name, points: points.sort((a, b) => a.x - b.x) }));
}

function bottomOf(picture: Picture, left: number, right: number): Placed {
  const type = picture.roles.x === null ? undefined : picture.answer.columns[picture.roles.x]?.type;
  if (!isContinuous(type)) return groupBottom(picture.marks, left, right);
  const domain = hull(
    picture.marks.flatMap((mark): [number, number][] => (mark.x ? [[mark.x.value, mark.x.value]] : [])),
  );
  const bottom = continuousBottom(type, domain, left, right);
  return { xOf: (mark) => (mark.x ? bottom.at(mark.x.value) : NaN), ticks: bottom.ticks };
}

function groupBottom(marks: readonly Mark[], left: number, right: number): Placed {
  const groups = new Map(marks.map((mark) => [mark.group, mark.label]));
  const scale = scalePoint<string>()
    .domain([...groups.keys()])
    .range([left, right])
    .padding(0.3);
  return {
    xOf: (mark) => scale(mark.group) ?? NaN,
    ticks: [...groups].map(([key, text]) => ({ key, at: scale(key) ?? 0, text })),
  };
}

function drawGhosts(frame: Frame, courses: readonly Course[], picture: Picture, axis: ValueAxis): void {
  const remembered = picture.remembered;
  const known = courses.map((course) => ({
    name: course.name,
    points: course.points.flatMap((point): [number, number][] => {
      const value = remembered?.spans.get(point.mark.key)?.y?.value;
      return value === undefined ? [] : [[point.x, axis.scale(value)]];
    }),
  }));
  const ghosts = known.filter((course) => course.points.length > 0);
  join(frame.over, "path", "ghost", ghosts, (course) => course.name).attr("d", (course) =>
    line()(course.points),
  );
}

function describe(picture: Picture): string {
  const over = columnName(picture, picture.roles.x);
  return `Line chart of ${columnName(picture, picture.roles.y)} over ${over}. The table has the numbers.`;
}
