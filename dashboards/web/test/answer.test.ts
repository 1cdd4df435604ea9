import assert from "node:assert/strict";
import { test } from "node:test";
import { cellOf, extentOf, mayTurn, position, spanOf } from "../src/answer/cells";
import { marksOf } from "../src/answer/marks";
import { byLabel, byValue, isRankedBy, Places, uncertainOrder } from "../src/answer/order";
import { type AskedRoles, missing, rolesOf } from "../src/answer/roles";
import type { Answer, ChartKind, ColumnKind, ColumnType, WireCell } from "../src/protocol";

function answer(columns: [string, ColumnKind, ColumnType][], rows: WireCell[][], ranked = false): Answer {
  return {
    columns: columns.map(([name, kind, type]) => ({ name, kind, type })),
    rows,
    ranked,
    truncated: null,
  };
}

const asked = (chart: ChartKind) => ({ chart, x: null, y: null, series: null });
const MODES = answer(
  [
    ["mode", "key", "text"],
    ["flag", "key", "text"],
    ["revenue", "estimate", "number"],
  ],
  [
    ["AIR", "A", [5, 4, 6, true]],
    ["AIR", "N", [9, 8, 10, true]],
    ["RAIL", "A", [7, 5, 9, true]],
  ],
);

test("roles are taken from kinds and types", () => {
  assert.deepEqual(rolesOf(MODES, asked("bars")), { x: 0, y: 2, series: 1, keys: [0, 1] });
  assert.deepEqual(rolesOf(MODES, asked("table")), { x: 0, y: 2, series: null, keys: [0, 1] });
  assert.equal(rolesOf(MODES, { ...asked("bars"), x: "flag" }).series, 0);
  assert.equal(rolesOf(MODES, { ...asked("bars"), x: "no such column" }).x, 0);
});

test("a chart that lacks a column says which", () => {
  const one = answer([["total", "estimate", "number"]], [[[5, 4, 6, true]]]);
  assert.equal(missing("number", rolesOf(one, asked("number")), one), null);
  assert.match(missing("bars", rolesOf(one, asked("bars")), one) ?? "", /no column to group by/);
  const names = answer([["name", "key", "text"]], [["a"]]);
  assert.match(missing("bars", rolesOf(names, asked("bars")), names) ?? "", /no column of numbers/);
});

test("a chart without a place for any mark says why", () => {
  const why = (chart: ChartKind, rows: WireCell[][], more: Partial<AskedRoles> = {}) => {
    const given = answer(
      [
        ["name", "key", "text"],
        ["a\u202e", "estimate", "number"],
        ["b", "estimate", "number"],
      ],
      rows,
    );
    return missing(chart, rolesOf(given, { ...asked(chart), ...more }), given);
  };
  const nothing: WireCell = [null, null, null, true];
  const nulls = [["x", nothing, [1, 1, 1, true]] as WireCell[], ["y", nothing, nothing] as WireCell[]];
  const apart = [
    ["x", nothing, [1, 1, 1, true]] as WireCell[],
    ["y", [1, 1, 1, true], nothing] as WireCell[],
  ];
  for (const chart of ["bars", "line", "scatter"] as const)
    assert.equal(why(chart, nulls, { y: "a\u202e" }), "every value of a\\u202e is NULL or no finite number");
  assert.equal(why("histogram", nulls, { x: "a\u202e", y: "b" }), why("bars", nulls));
  assert.equal(why("line", nulls, { x: "a\u202e", y: "b" }), why("bars", nulls));
  assert.equal(why("bars", nulls, { y: "b" }), null);
  assert.equal(why("scatter", apart), "no row has both b and a\\u202e");
  assert.equal(why("bars", apart, { y: "name" }), "name is text");
  for (const chart of ["number", "table"] as const) assert.equal(why(chart, nulls), null);
});

test("a scatter takes two measures", () => {
  const two = answer(
    [
      ["k", "key", "text"],
      ["a", "estimate", "number"],
      ["b", "estimate", "number"],
    ],
    [["x", [1, 0, 2, true], [3, 2, 4, true]]],
  );
  const { x, y } = rolesOf(two, asked("scatter"));
  assert.deepEqual([x, y], [1, 2]);
});

test("values that are written alike are groups and series of their own", () => {
  const values: WireCell[] = ["NULL", null, "", " ", "a", "a ", "'a '", "NaN"];
  const alike = answer(
    [
      ["x", "key", "text"],
      ["s", "key", "text"],
      ["n", "measure", "number"],
    ],
    values.flatMap((x) => values.map((s) => [x, s, 1])),
  );
  const marks = marksOf(alike, rolesOf(alike, asked("bars")));
  const count = (of: (mark: (typeof marks)[number]) => string): number => new Set(marks.map(of)).size;
  assert.equal(
    count((mark) => mark.key),
    values.length ** 2,
  );
  for (const of of ["group", "label", "series", "seriesName"] as const)
    assert.equal(
      count((mark) => mark[of]),
      values.length,
      of,
    );
  const names = marks.slice(0, values.length).map((mark) => mark.seriesName);
  assert.deepEqual(names, ["'NULL'", "NULL", "''", "' '", "a", "'a '", "''a ''", "NaN"]);
});

test("rows that have the same key are groups of their own", () => {
  const rows = answer(
    [
      ["x", "key", "text"],
      ["n", "measure", "number"],
    ],
    [
      ["a", 1],
      ["a", 2],
    ],
  );
  const marks = marksOf(rows, rolesOf(rows, asked("bars")));
  assert.equal(new Set(marks.map((mark) => mark.group)).size, 2);
});

test("the group of NULL is last, and a text NULL is a name", () => {
  const rows = answer(
    [
      ["city", "key", "text"],
      ["n", "measure", "number"],
    ],
    [
      [null, 1],
      ["Zürich", 2],
      ["NULL", 3],
    ],
  );
  const marks = byLabel(marksOf(rows, rolesOf(rows, asked("bars"))));
  assert.deepEqual(
    marks.map((mark) => mark.y?.value),
    [3, 2, 1],
  );
});

test("groups of the same names are the same mark in every update", () => {
  const marks = marksOf(MODES, rolesOf(MODES, asked("bars")));
  assert.deepEqual(
    marks.map((mark) => [mark.label, mark.seriesName, mark.y?.value]),
    [
      ["AIR", "A", 5],
      ["AIR", "N", 9],
      ["RAIL", "A", 7],
    ],
  );
  assert.equal(new Set(marks.map((mark) => mark.key)).size, 3);
});

const RANKED = (values: [string, number, number][]): Answer =>
  answer(
    [
      ["nation", "key", "text"],
      ["revenue", "estimate", "number"],
    ],
    values.map(([name, value, half]) => [name, [value, value - half, value + half, true]]),
    true,
  );

test("groups keep their places while their values cross", () => {
  const places = new Places();
  const names = (rows: Answer): string[] =>
    places.keep(marksOf(rows, rolesOf(rows, asked("table")))).map((mark) => mark.label);
  assert.deepEqual(
    names(
      RANKED([
        ["A", 5, 1],
        ["B", 4, 1],
      ]),
    ),
    ["A", "B"],
  );
  assert.deepEqual(
    names(
      RANKED([
        ["B", 6, 1],
        ["C", 5, 1],
        ["A", 4, 1],
      ]),
    ),
    ["A", "B", "C"],
  );
});

test("neighbours are uncertain where their intervals overlap", () => {
  const rows = RANKED([
    ["A", 9, 1],
    ["B", 7.5, 1],
    ["C", 3, 1],
  ]);
  const marks = byValue(marksOf(rows, rolesOf(rows, asked("table"))));
  assert.deepEqual([...uncertainOrder(marks)], ['["A"]']);
});

test("exact neighbours are certain, also when equal", () => {
  const exact = spanOf(cellOf([5, 5, 5, true]));
  assert.ok(exact);
  assert.equal(mayTurn(exact, exact), false);
});

test("an answer ordered by something else is not ranked by its values", () => {
  assert.equal(
    isRankedBy(
      RANKED([
        ["A", 9, 1],
        ["B", 7, 1],
      ]),
      1,
    ),
    true,
  );
  assert.equal(
    isRankedBy(
      RANKED([
        ["A", 9, 1],
        ["B", 7, 1],
        ["C", 8, 1],
      ]),
      1,
    ),
    false,
  );
});

test("dates are days everywhere, timestamps without a zone are UTC", () => {
  assert.equal(position("1995-01-01", "date"), Date.UTC(1995, 0, 1));
  assert.equal(position("1995-01-01 06:30:00", "timestamp"), Date.UTC(1995, 0, 1, 6, 30));
  assert.equal(position("1995-01-01T06:30:00+02:00", "timestamp"), Date.UTC(1995, 0, 1, 4, 30));
});

test("an axis makes no room for what nobody vouches for", () => {
  const span = (cell: WireCell) => spanOf(cellOf(cell))!;
  assert.deepEqual(extentOf(span([10, -500, 900, false])), [0, 20]);
  assert.deepEqual(extentOf(span([10, 4, 16, true])), [4, 16]);
  assert.deepEqual(extentOf(span([10, 10, null, true])), [10, 10]);
});

test("rows that look the same are all shown", () => {
  const rows = answer(
    [
      ["a", "opaque", "text"],
      ["b", "opaque", "number"],
    ],
    [
      ["x", 1],
      ["x", 1],
      ["y", 2],
    ],
  );
  for (const chart of ["table", "bars"] as const) {
    const keys = marksOf(rows, rolesOf(rows, asked(chart))).map((mark) => mark.key);
    assert.equal(new Set(keys).size, 3);
  }
});
