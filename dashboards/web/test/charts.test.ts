import assert from "node:assert/strict";
import { test } from "node:test";
import { cellOf, spanOf } from "../src/answer/cells";
import type { Mark } from "../src/answer/marks";
import { SeriesColours } from "../src/charts/frame";
import { axisUnit, fitted, textWidth, tickTexts, timeText } from "../src/charts/axis_text";
import { binWidth } from "../src/charts/histogram";
import { settledPart } from "../src/charts/number";
import { fittedApart } from "../src/charts/axis_text";
import { barShape, labelPlaces, spread } from "../src/charts/shapes";
import { hull, SteadyDomain } from "../src/charts/steady";
import type { WireCell } from "../src/protocol";

const shape = (cell: WireCell) => barShape(spanOf(cellOf(cell))!);

test("a bar is solid as far as is sure", () => {
  assert.deepEqual(shape([5, 4, 6, true]), { solid: [0, 4], faded: [4, 6], open: null });
  assert.deepEqual(shape([-5, -6, -4, true]), { solid: [0, -4], faded: [-6, -4], open: null });
  assert.deepEqual(shape([1, -1, 3, true]), { solid: [0, 0], faded: [-1, 3], open: null });
  assert.deepEqual(shape([5, 5, 5, true]), { solid: [0, 5], faded: null, open: null });
});

test("a bound is open to the side it bounds from", () => {
  assert.deepEqual(shape([5, 5, null, true]), { solid: [0, 5], faded: null, open: "up" });
  assert.deepEqual(shape([5, 5, 8, true]), { solid: [0, 5], faded: [5, 8], open: "up" });
  assert.deepEqual(shape([5, null, 5, true]), { solid: [0, 0], faded: [0, 5], open: "down" });
  assert.deepEqual(shape([5, null, null, false]), { solid: [0, 0], faded: [0, 5], open: null });
});

test("an axis grows at once", () => {
  const axis = new SteadyDomain();
  assert.deepEqual(axis.fit([0, 10], 0), [0, 10]);
  assert.deepEqual(axis.fit([-1, 12], 1), [-1, 12]);
});

test("an axis shrinks only when it was far too long for a while", () => {
  const axis = new SteadyDomain();
  axis.fit([0, 10], 0);
  assert.deepEqual(axis.fit([0, 8], 10_000), [0, 10]);
  assert.deepEqual(axis.fit([0, 3], 11_000), [0, 10]);
  assert.deepEqual(axis.fit([0, 3], 13_999), [0, 10]);
  assert.deepEqual(axis.fit([0, 3], 14_000), [0, 3]);
});

test("a short dip does not shrink an axis", () => {
  const axis = new SteadyDomain();
  axis.fit([0, 10], 0);
  axis.fit([0, 3], 1_000);
  axis.fit([0, 9], 3_000);
  assert.deepEqual(axis.fit([0, 3], 4_500), [0, 10]);
});

test("a hull is never a point", () => {
  assert.deepEqual(hull([]), [0, 1]);
  assert.deepEqual(
    hull([
      [3, 5],
      [-1, 4],
    ]),
    [-1, 5],
  );
  assert.deepEqual(hull([[100, 100]]), [95, 105]);
});

test("ticks are written in one unit, which the title names", () => {
  assert.deepEqual(axisUnit(0, 4.2e9), { exponent: 9, word: "billions" });
  assert.deepEqual(axisUnit(0, 9_000), { exponent: 0, word: "" });
  assert.deepEqual(tickTexts([0, 5e8, 1e9], 9), ["0.0", "0.5", "1.0"]);
  assert.deepEqual(tickTexts([-2000, 0, 2000], 0), ["−2,000", "0", "2,000"]);
});

test("moments are written at the coarseness they fall on", () => {
  const texts = ["1994-01-01T00:00Z", "1994-03-01T00:00Z", "1994-03-05T00:00Z", "1994-03-05T12:30Z"].map(
    (at) => timeText(new Date(at)),
  );
  assert.deepEqual(texts, ["1994", "Mar", "5 Mar", "12:30"]);
});

test("a text is cut to its width, never to nothing", () => {
  assert.equal(fitted("short", 100), "short");
  const cut = fitted("a very long name of a group", 60);
  assert.ok(cut.endsWith("…") && textWidth(cut) <= 60);
  assert.equal(fitted("abc", 1), "a…");
});

test("labels that would touch move apart and stay inside", () => {
  assert.deepEqual(spread([10, 50], 15, 0, 100), [10, 50]);
  assert.deepEqual(spread([10, 12], 15, 0, 100), [10, 25]);
  assert.deepEqual(spread([95, 99], 15, 0, 100), [85, 100]);
});

test("names beside points touch neither points nor each other", () => {
  const places = labelPlaces(
    [
      { x: 50, y: 50, width: 40 },
      { x: 60, y: 52, width: 40 },
      { x: 195, y: 50, width: 40 },
    ],
    200,
  );
  const [a, b, c] = places;
  assert.ok(a && b && c);
  assert.ok(c.right <= 200);
  assert.ok(a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top);
});

test("a class without rows is a gap, not a wider neighbour", () => {
  assert.equal(binWidth([0, 10, 40]), 10);
  assert.equal(binWidth([5]), 1);
});

test("a number's first, far wider intervals do not hide the rest of its way", () => {
  const at = (elapsedSeconds: number, half: number) => ({
    elapsedSeconds,
    value: 10,
    low: 10 - half,
    high: 10 + half,
  });
  assert.deepEqual(
    settledPart([at(0, 90), at(1, 4), at(2, 3), at(3, 2)]).map((p) => p.elapsedSeconds),
    [1, 2, 3],
  );
  assert.equal(settledPart([at(0, 90), at(1, 0), at(2, 0), at(3, 0)]).length, 3);
});

test("a series keeps its colour in later runs, and leaves the legend when the query is another", () => {
  const colours = new SeriesColours();
  const see = (run: number, ...series: string[]) =>
    colours.see({ run, marks: series.map((s) => ({ series: s, seriesName: s }) as Mark) });
  assert.deepEqual(see(1, "b", "a"), ["a", "b"]);
  assert.deepEqual(see(1, "c"), ["a", "b", "c"]);
  assert.deepEqual(see(2, "c", "b"), ["b", "c"]);
  assert.deepEqual(see(3, "x", "y"), ["x", "y"]);
  assert.equal(colours.classOf("y"), "s1");
  assert.deepEqual(colours.texts, ["x", "y"]);
});

test("texts that become equal once they are cut show what tells them apart", () => {
  const apart = (...texts: string[]): string[] => fittedApart(texts, () => 80);
  assert.deepEqual(apart("short", "a long text that is alone"), ["short", "a long text…"]);
  const days = ["2024-10-26 00:00:00+02:00", "2024-10-26 00:00:00+01:00", "2024-10-27 00:00:00+01:00"];
  assert.deepEqual(apart(...days), ["2024-…02:00", "2024-…01:00", "2024-10-27 …"]);
  const deep = ["x".repeat(40) + "b" + "y".repeat(40), "x".repeat(40) + "c" + "y".repeat(40), "x".repeat(40)];
  assert.equal(new Set(apart(...deep)).size, 3);
  const many = ["0", "1"].flatMap((a) => ["0", "1"].map((b) => `${"x".repeat(20)}${a}${"y".repeat(20)}${b}`));
  assert.equal(new Set(apart(...many)).size, 4);
});
