import assert from "node:assert/strict";
import { test } from "node:test";
import { marksOf } from "../src/answer/marks";
import { rolesOf } from "../src/answer/roles";
import {
  brushedColumn,
  isSelected,
  rangeOf,
  sameSelection,
  selectionText,
  valuesOf,
} from "../src/answer/selection";
import { hashOf, NOTHING, sharedIn } from "../src/page/share";
import type { Answer } from "../src/protocol";
import { grainsOf, periodOf, rangeOfPeriod } from "../src/text/moments";

const ANSWER: Answer = {
  columns: [
    { name: "day", kind: "key", type: "date" },
    { name: "zone", kind: "key", type: "text" },
    { name: "n", kind: "estimate", type: "number" },
  ],
  rows: [
    ["2013-01-02", "a", [5, 4, 6, true]],
    ["2013-01-01", "b", [5, 4, 6, true]],
    ["2013-01-01", null, [5, 4, 6, true]],
  ],
  ranked: false,
  truncated: null,
};
const ROLES = rolesOf(ANSWER, { chart: "line", x: "day", y: "n", series: "zone" });

test("what the chart stands on is selected, if it can be", () => {
  assert.deepEqual(brushedColumn(ANSWER, ROLES, { brushes: ["zone", "day"] }), {
    name: "day",
    at: 0,
    isLine: true,
  });
  assert.equal(brushedColumn(ANSWER, ROLES, { brushes: ["zone"] })?.name, "zone");
  assert.equal(brushedColumn(ANSWER, ROLES, { brushes: [] }), null);
  assert.equal(brushedColumn(ANSWER, ROLES, {}), null);
});

test("marks become values, each once, and a range from the least to the greatest", () => {
  const marks = marksOf(ANSWER, ROLES);
  const days = valuesOf(ANSWER, marks, 0);
  assert.deepEqual(days, ["2013-01-02", "2013-01-01"]);
  assert.deepEqual(rangeOf(ANSWER, days, 0), { range: ["2013-01-01", "2013-01-02"] });
  assert.equal(rangeOf(ANSWER, [null], 0), null);
});

test("a row is in a selection, or not", () => {
  assert.equal(isSelected(ANSWER, 0, 0, { range: ["2013-01-02", "2013-01-09"] }), true);
  assert.equal(isSelected(ANSWER, 1, 0, { range: ["2013-01-02", "2013-01-09"] }), false);
  assert.equal(isSelected(ANSWER, 2, 1, { values: [null] }), true);
  assert.equal(isSelected(ANSWER, 1, 1, { values: ["a", null] }), false);
  assert.equal(sameSelection({ values: ["a"] }, { values: ["a"] }), true);
});

test("a selection is said in a few words", () => {
  assert.equal(
    selectionText({ values: ["a", null, "c", "d", "e"] }, ANSWER, "zone"),
    "a, NULL, c and 2 more",
  );
  assert.equal(
    selectionText({ range: ["2013-01-01", "2013-01-02"] }, ANSWER, "day"),
    "2013-01-01 to 2013-01-02",
  );
  assert.equal(selectionText({ values: ["\u202eabc"] }, ANSWER, "zone"), "\\u202eabc");
});

test("a link says what a page shows, and is read back as it was", () => {
  const filters = [
    { id: "f1", panel: "p1", column: "zone #1", selection: { values: ["a'b", null] } },
    { id: "f2", panel: "p2", column: "day", selection: { range: ["2013-01-01", "2013-01-02"] as const } },
  ];
  const read = sharedIn(hashOf({ filters, order: "value", tables: ["p1"] }));
  assert.deepEqual(read, {
    filters: filters.map(({ panel, column, selection }) => ({ panel, column, selection })),
    order: "value",
    tables: ["p1"],
  });
  assert.equal(hashOf(NOTHING), "");
});

test("a link has the time that the page shows", () => {
  const filters = [
    { panel: "", column: "at", table: "trips", selection: { range: ["2024-01-01", "2024-01-31"] } },
  ] as const;
  assert.deepEqual(sharedIn(hashOf({ filters, order: "place", tables: [] })).filters, filters);
});

test("the last days are those of the data, and each is known again", () => {
  const ends = { first: "2023-02-11", last: "2024-03-01" };
  assert.deepEqual(rangeOfPeriod(ends, "7"), ["2024-02-24", "2024-03-01"]);
  assert.equal(rangeOfPeriod(ends, "all"), null);
  assert.equal(periodOf(ends, ["2024-02-24", "2024-03-01"]), "7");
  assert.equal(periodOf(ends, ["2024-02-23", "2024-03-01"]), "own");
});

test("units are offered by which there are neither too many periods nor none", () => {
  assert.deepEqual(grainsOf(["2024-01-01", "2024-12-31"], true), ["day", "week", "month", "quarter", "year"]);
  assert.deepEqual(grainsOf(["2024-01-01", "2024-01-07"], true), ["hour", "day", "week"]);
  assert.deepEqual(grainsOf(["2024-01-01", "2024-01-01"], false), ["day"]);
});

test("an address that says nothing sensible says nothing", () => {
  for (const hash of ["", "#", "#x", "#%7B", "#%E0%A4%A", "#null", '#{"filters":[1,null,{"panel":2}]}'])
    assert.deepEqual(sharedIn(hash), NOTHING);
});
