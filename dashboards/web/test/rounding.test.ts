import assert from "node:assert/strict";
import { test } from "node:test";
import { cellOf } from "../src/answer/cells";
import type { ColumnType, WireCell } from "../src/protocol";
import { aligned, showColumn, showInterval } from "../src/text/rounding";

/** Return the cells as the table of a page writes them, with plain spaces. */
function texts(...cells: WireCell[]): string[] {
  return textsAs("number", ...cells);
}

function textsAs(type: ColumnType, ...cells: WireCell[]): string[] {
  return showColumn(cells.map(cellOf), type).map((shown) =>
    [shown.value, shown.margin, shown.doubtful ? "?" : ""]
      .filter(Boolean)
      .join(" ")
      .replaceAll("\u00a0", " "),
  );
}

test("the half-width has two digits, and the value ends at the same place", () => {
  assert.deepEqual(texts([120.04e6, 116.94e6, 123.14e6, true]), ["120.0 M ± 3.1 M"]);
  assert.deepEqual(texts([0.05004, 0.04982, 0.05026, true]), ["0.05004 ± 0.00022"]);
  assert.deepEqual(texts([-1234.5, -1300, -1169, true]), ["−1.234 k ± 0.066 k"]);
});

test("a half-width that rounds up to three digits is cut at the next place", () => {
  assert.deepEqual(texts([1000, 900.4, 1099.6, true]), ["1.00 k ± 0.10 k"]);
});

test("a value or a side that is far smaller than the half-width keeps its first digit", () => {
  assert.deepEqual(texts([300_000, -3.1e8, 3.106e8, true]), ["0.3 M ± 310 M"]);
  assert.deepEqual(texts([78, 56, 5578, true]), ["0.08 k +5.5/−0.02 k"]);
  assert.deepEqual(texts([-0.001, -0.501, 0.499, true]), ["−0.001 ± 0.50"]);
  assert.deepEqual(texts([1e-12, -5, 5, true]), ["0.0 ± 5.0"]);
});

test("the numbers of a column share one unit", () => {
  assert.deepEqual(texts([57.1e6, 54.5e6, 59.7e6, true], [900_000, 800_000, 1_000_000, true]), [
    "57.1 M ± 2.6 M",
    "0.90 M ± 0.10 M",
  ]);
});

test("an exact NULL is no value, and nothing else is unknown about it", () => {
  assert.deepEqual(texts([null, null, null, true], [null, null, null, false], null), [
    "NULL",
    "NULL ±? ?",
    "NULL",
  ]);
});

test("what is exact has all digits before the point and six at most beyond them, whatever its column", () => {
  assert.deepEqual(texts([123141078, 123141078, 123141078, true], "9007199254740993"), [
    "123,141,078",
    "9,007,199,254,740,993",
  ]);
  assert.deepEqual(texts(15.10795435218885, 1230113636.4105, 0.00012345678, "12345.6789", "205.10", -0.5), [
    "15.108",
    "1,230,113,636",
    "0.000123457",
    "12,345.68",
    "205.10",
    "−0.5",
  ]);
});

test("bounds are one-sided, with the far side rounded outwards", () => {
  assert.deepEqual(texts([104949.5, 104949.5, null, true]), ["≥ 104,949.5"]);
  assert.deepEqual(texts([3, null, 3, true]), ["≤ 3"]);
  assert.deepEqual(texts([5000, 5000, 7333, true]), ["≥ 5000 (≤ 7.4 k)"]);
});

test("sides that differ are both written; one that is missing is a bound", () => {
  assert.deepEqual(texts([10, 8, 16, true]), ["10.0 +6.0/−2.0"]);
  assert.deepEqual(texts([10, 8, null, true]), ["10.0 (≥ 8.0)"]);
  assert.deepEqual(texts([10, 11, 13, true]), ["10.0 in 11.0 … 13.0"]);
});

test("what nothing bounds keeps three digits and says so", () => {
  assert.deepEqual(texts([123456, null, null, false]), ["123 k ±? ?"]);
  assert.deepEqual(texts([null, null, null, false]), ["NULL ±? ?"]);
});

test("an interval nobody vouches for is marked", () => {
  assert.deepEqual(texts([10, 9, 11, false]), ["10.0 ± 1.0 ?"]);
});

test("very small and very large numbers keep their power of ten", () => {
  assert.deepEqual(texts([1.5e-7, 1.4e-7, 1.6e-7, true]), ["1.50e-7 ± 0.10e-7"]);
});

test("an interval is written as its two ends", () => {
  assert.equal(
    showInterval(cellOf([120e6, 116.9e6, 123.1e6, true])).replaceAll("\u00a0", " "),
    "116.9 M to 123.1 M",
  );
});

test("a moment has a half-width in a unit of time, and is written as finely as that", () => {
  assert.deepEqual(textsAs("date", ["1998-08-02", "1998-07-01", "1998-09-01", true]), [
    "1998-08-02 ± 31 days",
  ]);
  assert.deepEqual(
    textsAs("timestamp", ["2020-05-16T12:00:00.5", "2020-05-16T10:30:00", "2020-05-16T13:30:00", false]),
    ["2020-05-16 12:00 ± 1.5 h ?"],
  );
  assert.deepEqual(
    textsAs("timestamp", [
      "2020-05-16T12:00:00+00:00",
      "2020-05-16T11:59:40+00:00",
      "2020-05-16T12:00:10+00:00",
      true,
    ]),
    ["2020-05-16 12:00:00+00:00 +10/−20 s"],
  );
  assert.deepEqual(textsAs("text", ["09:00:00", "08:00:00", "10:00:00.25", true]), ["09:00 ± 1.0 h"]);
});

test("numbers and moments as text are written as such, and other texts as they are", () => {
  assert.deepEqual(textsAs("text", ["25.00412", "24.1", "25.9", true]), ["25.00 ± 0.90"]);
  assert.deepEqual(textsAs("text", ["2020-05-16 12:00:00", "2020-05-15", "2020-05-18", true]), [
    "2020-05-16 12:00 ± 1.5 days",
  ]);
  assert.deepEqual(textsAs("text", ["b", "a", "c", true]), ["b in a … c"]);
  assert.deepEqual(textsAs("text", ["12345", "12345", null, true]), ["≥ 12345"]);
});

test("exact numbers below each other have as many decimals as the largest of them shows", () => {
  assert.deepEqual(aligned(["67.1229", "67.136", "67.1"]), ["67.1229", "67.1360", "67.1000"]);
  assert.deepEqual(aligned(["11.3001", "−0.547111", "0"]), ["11.3001", "−0.5471", "0.0000"]);
  assert.deepEqual(aligned(["1,353.16", "1,359.5", "9.87654"]), ["1,353.16", "1,359.50", "9.88"]);
});

test("numbers without decimals, small ones and other texts stay as they are", () => {
  assert.deepEqual(aligned(["1,353", "12"]), ["1,353", "12"]);
  assert.deepEqual(aligned(["120,034.51", "0.00012345"]), ["120,034.51", "0.00012345"]);
  assert.deepEqual(aligned(["1.5", "NULL", "1.25e7", "inf"]), ["1.5", "NULL", "1.25e7", "inf"]);
});
