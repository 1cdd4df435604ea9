import assert from "node:assert/strict";
import { test } from "node:test";
import {
  showAbout,
  showChosen,
  showCount,
  showPercent,
  showKeys,
  showSeconds,
  showValue,
  visible,
} from "../src/text/plain";

const plain = (text: string): string => text.replaceAll("\u00a0", " ");

test("a percentage below the whole never reads as 100 %", () => {
  assert.equal(plain(showPercent(0.99999)), "99.999 %");
  assert.equal(plain(showPercent(1)), "100 %");
  assert.equal(plain(showPercent(0.0345)), "3.5 %");
  assert.equal(plain(showPercent(0.00012)), "0.012 %");
  assert.equal(plain(showPercent(0)), "0 %");
});

test("a target is written as it was chosen", () => {
  assert.deepEqual(
    [0.01, 0.005, 0.1].map((target) => plain(showChosen(target))),
    ["±1 %", "±0.5 %", "±10 %"],
  );
});

test("counts have three digits", () => {
  assert.deepEqual(
    [0, 9_999, 604_000, 15_440_000, 999_999].map((n) => plain(showCount(n))),
    ["0", "9,999", "604 k", "15.4 M", "1.00 M"],
  );
});

test("times have the digits they deserve", () => {
  assert.deepEqual(
    [0, 9.96, 125, 3720].map((s) => plain(showSeconds(s))),
    ["0.0 s", "10.0 s", "2 min 05 s", "1 h 02 min"],
  );
  assert.deepEqual(
    [0.2, 7.4, 33, 285, 7300].map((s) => plain(showAbout(s))),
    ["1 s", "7 s", "35 s", "5 min", "2 h"],
  );
});

test("small whole numbers may be years and stay without separators", () => {
  assert.equal(showValue(1995, "number"), "1995");
  assert.equal(showValue("-12345678901234567890.25", "number"), "−12,345,678,901,234,567,890.25");
  assert.equal(showValue(null, "number"), "NULL");
  assert.equal(showValue("1995-03-01T00:00:00", "timestamp"), "1995-03-01");
});

test("a column of midnights with a zone is one of days, as long as these stay apart", () => {
  const show = (...moments: (string | null)[]): string[] => showKeys(moments, "timestamp");
  assert.deepEqual(show("2024-10-26T00:00:00+02:00", null, "2024-10-28T00:00:00+01:00"), [
    ...["2024-10-26", "NULL", "2024-10-28"],
  ]);
  const twice = ["2024-11-03T00:00:00-04:00", "2024-11-03T00:00:00-05:00"];
  assert.deepEqual(show(...twice), ["2024-11-03 00:00:00-04:00", "2024-11-03 00:00:00-05:00"]);
  const hours = ["2024-10-26T00:00:00+02:00", "2024-10-26T01:00:00+02:00"];
  assert.deepEqual(show(...hours), ["2024-10-26 00:00:00+02:00", "2024-10-26 01:00:00+02:00"]);
});

test("characters that could rearrange the page are spelled out", () => {
  assert.equal(visible("a\u202eb\u0000"), "a\\u202eb\\u0000");
});
