import assert from "node:assert/strict";
import { test } from "node:test";
import { delaySeconds } from "../src/page/connection";
import { CoresHistory } from "../src/page/cores_history";
import { goalFacts, partFacts } from "../src/page/jobs";
import { isOutdated, keepHistory, PageModel } from "../src/page/model";
import { intervalName } from "../src/page/picture";
import { pythonOf } from "../src/page/python";
import { changedSettings, paramsOf } from "../src/page/settings_form";
import { pointAt, replaceWord } from "../src/page/sql_position";
import { can, factTexts, placeholderText, remarkTexts, stateText } from "../src/page/states";
import type { Answer, Job, Page, PanelSettings, PanelState, PanelUpdate } from "../src/protocol";

const SETTINGS: PanelSettings = {
  id: "p1",
  title: "Revenue",
  sql: "SELECT 1",
  chart: "number",
  size: "small",
  target: 0.01,
  priority: 1,
  x: null,
  y: null,
  series: null,
};
const PAGE: Page = {
  name: "a",
  title: "A",
  panels: [SETTINGS],
  editable: true,
  data: "",
  pages: [],
  tables: [],
  charts: [],
};
const ANSWER: Answer = {
  columns: [{ name: "n", kind: "estimate", type: "number" }],
  rows: [[[10, 9, 11, true]]],
  ranked: false,
  truncated: null,
};

function panel(state: PanelState, more: Partial<PanelUpdate> = {}): PanelUpdate {
  return {
    state,
    reason: null,
    run: 1,
    rows_read: 6_000_000,
    rows_total: 60_000_000,
    fraction: 0.1,
    elapsed_seconds: 2,
    cores: 1.5,
    error: 0.034,
    target: 0.01,
    priority: 1,
    target_fraction: 0.5,
    seconds_to_target: 33,
    unseen_groups: 0,
    warnings: [],
    confidence: 0.95,
    interval: "pointwise",
    confidence_for: "cell",
    mode: "mergeable",
    kept: true,
    viewers: 1,
    changed_by: null,
    failure: null,
    ...more,
  };
}

const plain = (texts: string[]): string => texts.join(", ").replaceAll("\u00a0", " ").replaceAll("**", "");

test("an interval says what it holds for", () => {
  const named = (more: Partial<PanelUpdate>): string => plain([intervalName(panel("refining", more))]);
  assert.equal(named({}), "95 % interval");
  assert.equal(named({ confidence_for: "table" }), "95 % table interval");
  assert.equal(named({ interval: "anytime", confidence_for: "table" }), "95 % anytime table interval");
});

test("an update without an answer keeps the one before", () => {
  const model = new PageModel();
  model.apply({ type: "update", seq: 1, page: PAGE, panels: { p1: panel("refining", { answer: ANSWER }) } });
  model.apply({ type: "update", seq: 2, panels: { p1: panel("paused") } });
  const kept = model.panels.get("p1")!;
  assert.equal(kept.answer, ANSWER);
  assert.equal(isOutdated(kept), false);
});

test("an old chart stays, dimmed, until the new run has its first answer", () => {
  const model = new PageModel();
  model.apply({ type: "update", seq: 1, page: PAGE, panels: { p1: panel("refining", { answer: ANSWER }) } });
  model.apply({ type: "update", seq: 2, panels: { p1: panel("waiting", { run: 2 }) } });
  const kept = model.panels.get("p1")!;
  assert.equal(isOutdated(kept), true);
  model.apply({
    type: "update",
    seq: 3,
    panels: { p1: panel("refining", { run: 2, answer: ANSWER, elapsed_seconds: 0.1 }) },
  });
  assert.equal(isOutdated(kept), false);
  assert.equal(kept.history.length, 1);
});

test("the last good chart of a run that failed is dimmed", () => {
  const model = new PageModel();
  model.apply({ type: "update", seq: 1, page: PAGE, panels: { p1: panel("refining", { answer: ANSWER }) } });
  model.apply({ type: "update", seq: 2, panels: { p1: panel("failed") } });
  assert.equal(isOutdated(model.panels.get("p1")!), true);
});

test("changes of state are spoken, new numbers are not", () => {
  const model = new PageModel();
  model.apply({ type: "update", seq: 1, page: PAGE, panels: { p1: panel("refining", { answer: ANSWER }) } });
  assert.deepEqual(
    model.apply({ type: "update", seq: 2, panels: { p1: panel("refining", { error: 0.02 }) } }).spoken,
    [],
  );
  const [spoken] = model.apply({
    type: "update",
    seq: 3,
    panels: { p1: panel("target_met", { error: 0.0099 }) },
  }).spoken;
  assert.match(spoken ?? "", /^Revenue: target reached · plus or minus 0\.99/);
});

test("a panel that left the page is forgotten, and updates of unknown panels are dropped", () => {
  const model = new PageModel();
  model.apply({
    type: "update",
    seq: 1,
    page: PAGE,
    panels: { p1: panel("refining"), other: panel("refining") },
  });
  model.apply({ type: "update", seq: 2, page: { ...PAGE, panels: [] } });
  assert.equal(model.panels.size, 0);
});

test("every state says itself in words", () => {
  const said = (
    ["waiting", "refining", "target_met", "paused", "stopped", "exact", "failed", "empty"] as const
  ).map((state) => plain([stateText(panel(state))]));
  assert.deepEqual(said, [
    "waiting",
    "refining · ±3.4 %",
    "target reached · ±3.4 %",
    "paused at ±3.4 %",
    "stopped at ±3.4 %",
    "exact",
    "failed",
    "exact · no rows",
  ]);
  assert.equal(plain([stateText(panel("refining", { error: null }))]), "refining · ± not known yet");
});

test("the facts say what was read, how long it takes, and what is missing", () => {
  assert.match(
    plain(factTexts(panel("refining", { spent: "412 calls · $0.82 of $3.00 spent" }))),
    /\$0\.82 of/,
  );
  const facts = plain(factTexts(panel("refining", { unseen_groups: 2, viewers: 3 })));
  assert.equal(
    facts,
    "6.00 M of 60.0 M rows, 2.0 s, ±1 % in about 35 s, 1.5 cores, 2 groups not seen yet, 3 viewers",
  );
});

test("what begins anew after a stop or a restart says so, while there is something to lose", () => {
  for (const state of ["refining", "paused", "stopped"] as const)
    assert.match(plain(factTexts(panel(state, { kept: false }))), /its state is not kept: after a stop/);
  for (const facts of [panel("refining"), panel("exact", { kept: false })].map(factTexts))
    assert.doesNotMatch(plain(facts), /not kept/);
});

test("an answer without a row is not one that is still to come", () => {
  for (const state of ["refining", "paused", "stopped"] as const)
    assert.match(placeholderText(panel(state), true), /No row matches of what was read so far/);
});

test("a waiting panel says why", () => {
  assert.match(placeholderText(panel("waiting", { reason: "two others run first" })), /two others run first/);
});

test("remarks beyond three are counted", () => {
  assert.deepEqual(remarkTexts(panel("refining", { warnings: ["a", "b", "c", "d", "e"] })), [
    "a",
    "b",
    "c",
    "and 2 more",
  ]);
});

test("only what changes something can be done", () => {
  assert.deepEqual(
    [can("stop", "paused"), can("pause", "paused"), can("resume", "stopped"), can("stop", "exact")],
    [true, false, true, false],
  );
});

test("waiting to reconnect doubles, has an end, and is never the same for all", () => {
  assert.deepEqual(
    [0, 1, 2, 9].map((n) => delaySeconds(n, () => 0)),
    [0.5, 1, 2, 15],
  );
  assert.equal(
    delaySeconds(1, () => 1),
    0.75,
  );
});

test("a number's way is kept whole in a bounded number of points", () => {
  let history: ReturnType<typeof keepHistory> = [];
  for (let at = 0; at < 5_000; at += 1)
    history = keepHistory(history, { elapsedSeconds: at, value: at, low: at, high: at });
  assert.ok(history.length <= 241);
  assert.equal(history[0]?.elapsedSeconds, 0);
  assert.equal(history.at(-1)?.elapsedSeconds, 4_999);
});

function job(id: string, share: number, kind = "query"): Job {
  return {
    id,
    name: id,
    kind,
    share,
    used: share,
    quality: null,
    work_done: null,
    predicted: [],
    history: [],
    panel: null,
    weight: 1,
    state: "running",
  };
}

test("a run in parts says where they are, and what its user wants of it", () => {
  const run = { ...job("a", 1, "training"), workers: ["tcp://a:1", "tcp://b:1"] };
  assert.deepEqual(partFacts(run), ["parts on tcp://a:1, tcp://b:1"]);
  const hurried = { ...run, due: 120, urgency: 9, accuracy: 0.8, accuracy_required: 0.9 };
  const told = goalFacts(hurried).map((each) => each.replace(/\s/g, " "));
  assert.deepEqual(told, ["due in **2 min**", "urgency 9", "accuracy **80 %** of 90 %"]);
  assert.deepEqual(
    goalFacts({ ...run, due: -5 }).map((each) => each.replace(/\s/g, " ")),
    ["**5 s** late"],
  );
  assert.deepEqual([...partFacts(job("b", 1)), ...goalFacts(job("b", 1))], []);
});

test("the cores' history is a minute long; jobs that ended leave with it", () => {
  const history = new CoresHistory();
  history.add({ at: 0, capacity: 4, jobs: [job("old", 4)] });
  for (let at = 1_000; at <= 62_000; at += 1_000)
    history.add({ at, capacity: 4, jobs: [job("train", 1, "training"), job("new", 3)] });
  const picture = history.picture();
  assert.deepEqual(
    picture.bands.map((band) => band.name),
    ["new", "train"],
  );
  assert.ok((picture.times[0] ?? 0) <= 2_000 && picture.times.length <= 63);
});

test("a mistake is pointed at in its line", () => {
  const sql = "SELECT a\nFROM lineitms\nWHERE b";
  assert.deepEqual(pointAt(sql, sql.indexOf("lineitms")), {
    line: 2,
    text: "FROM lineitms",
    caret: "     ^",
  });
  const long = `SELECT ${"x + ".repeat(60)}wrong`;
  const pointer = pointAt(long, long.indexOf("wrong"));
  assert.equal(pointer.text.slice(pointer.caret.length - 1), "wrong");
});

test("a suggestion replaces the whole word", () => {
  assert.equal(replaceWord("FROM lineitms l", 5, "lineitem"), "FROM lineitem l");
  assert.equal(replaceWord("FROM lineitms", 8, "lineitem"), "FROM lineitem");
  assert.equal(replaceWord("SELECT latency", 7, "latency ms"), 'SELECT "latency ms"');
  assert.equal(replaceWord('SELECT "latncy ms" + 1', 7, "latency ms"), 'SELECT "latency ms" + 1');
  assert.equal(replaceWord("SELECT a", 7, 'the "a"'), 'SELECT "the ""a"""');
  assert.equal(replaceWord('SELECT sum("2O23")', 11, "2023"), 'SELECT sum("2023")');
  assert.equal(replaceWord('SELECT "a,b"', 7, "a.b"), 'SELECT "a.b"');
  assert.equal(replaceWord("SELECT groop", 7, "group"), 'SELECT "group"');
});

test("a panel becomes a program, whatever its SQL holds", () => {
  const program = pythonOf({ sql: "SELECT 'a\\b' AS \"c\"", target: 0.01, priority: 2 });
  assert.match(program, /online_sql\("""SELECT 'a\\\\b' AS "c\\"""", target=0\.01, priority=2\)/);
});

test("a program has the values of parameters", () => {
  const settings = { sql: "SELECT $a", target: null, priority: 1, params: { a: [true, "x", 2.5] } };
  assert.match(pythonOf(settings), /params=\{"a": \[True, "x", 2\.5\]\}\)/);
});

test("an edit names what changed and nothing else", () => {
  const { id, target, priority, ...looks } = SETTINGS;
  assert.deepEqual(changedSettings(SETTINGS, { ...looks, sql: "SELECT 2", x: "a" }), {
    sql: "SELECT 2",
    x: "a",
  });
});

test("values of parameters are an edit where they differ", () => {
  const { id, target, priority, ...looks } = SETTINGS;
  const before = { ...SETTINGS, params: { zone: 3 } };
  assert.deepEqual(changedSettings(before, { ...looks, params: paramsOf('{ "zone": 3 }') }), {});
  assert.deepEqual(changedSettings(before, { ...looks, params: paramsOf("[4]") }), { params: [4] });
  assert.deepEqual(changedSettings(before, { ...looks, params: paramsOf(" ") }), { params: null });
  assert.equal(paramsOf("[4"), "[4");
});

test("a frozen view stays as it is, and then shows the newest", () => {
  const model = new PageModel();
  model.apply({ type: "update", seq: 1, page: PAGE, panels: { p1: panel("refining", { answer: ANSWER }) } });
  model.freeze();
  const newer = { ...ANSWER, ranked: true };
  model.apply({ type: "update", seq: 2, panels: { p1: panel("refining", { answer: newer, error: 0.02 }) } });
  model.apply({ type: "update", seq: 3, panels: { p1: panel("target_met", { error: 0.01 }) } });
  const kept = model.panels.get("p1")!;
  assert.deepEqual([kept.update?.state, kept.answer], ["refining", ANSWER]);
  assert.deepEqual([...model.unfreeze()], ["p1"]);
  assert.deepEqual([kept.update?.state, kept.answer], ["target_met", newer]);
});
