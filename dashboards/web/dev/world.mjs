/** A make-believe server: queries over 60 million rows whose answers sharpen as rows are read. */

import { cluster } from "./cluster.mjs";
import { KINDS, PAGES } from "./pages.mjs";
import { answerOf } from "./answers.mjs";

const ROWS = 60_000_000;
const LIVE = new Set(["refining", "target_met"]);

export class World {
  constructor(name) {
    this.page = PAGES[name] ? { name, ...PAGES[name] } : null;
    this.began = Date.now();
    this.last = this.began;
    this.panels = new Map((this.page?.panels ?? []).map((panel) => [panel.id, start(panel)]));
    this.isPageNew = true;
    this.notice = null;
    this.lastCluster = 0;
    this.log = [{ at: this.began, text: "first answers: every query gets the same share" }];
  }

  update() {
    const now = Date.now();
    const seconds = (now - this.last) / 1000;
    this.last = now;
    const panels = {};
    for (const [id, panel] of this.panels) {
      advance(panel, seconds);
      if (LIVE.has(panel.state) || panel.isNew) panels[id] = shown(panel);
      panel.isNew = false;
    }
    const update = { panels, viewers: 2, notice: this.notice, log: this.log };
    this.notice = null;
    this.log = [];
    if (this.isPageNew && this.page)
      update.page = wire(
        this.page,
        [...this.panels.values()].map((panel) => panel.settings),
      );
    this.isPageNew = false;
    if (now - this.lastCluster >= 500) {
      this.lastCluster = now;
      update.cluster = cluster(now, (now - this.began) / 1000);
    }
    return update;
  }

  take(message) {
    const panel = this.panels.get(message.panel);
    if (message.type === "act") act(panel, message.act);
    if (message.type === "set") set(panel, message);
    if (message.type === "edit") this.edit(panel, message);
    if (message.type === "save") this.notice = "Saved to live.toml";
    if (message.type === "remove") this.panels.delete(message.panel);
    if (message.type === "add")
      this.panels.set(`new-${this.panels.size}`, start({ ...message.panel, id: `new-${this.panels.size}` }));
    if (["add", "remove", "edit"].includes(message.type)) this.isPageNew = true;
  }

  edit(panel, { type, panel: id, ...settings }) {
    Object.assign(panel.settings, settings);
    if ("sql" in settings) act(panel, "restart");
    panel.changed = { who: "Anna", what: "edited", at: Date.now() };
  }
}

function start(settings) {
  const { state = "refining", fraction = 0.002, elapsed = 0, ...rest } = settings;
  return {
    settings: rest,
    state,
    fraction,
    elapsed,
    run: 1,
    isNew: true,
    changed: null,
    rate: settings.rate ?? 0.02,
  };
}

function advance(panel, seconds) {
  if (panel.waits > 0) {
    panel.waits -= seconds;
    return;
  }
  if (panel.state === "waiting" && panel.run > 1) panel.state = "refining";
  if (!LIVE.has(panel.state) || panel.settings.still) return;
  panel.fraction = Math.min(1, panel.fraction + panel.rate * seconds);
  panel.elapsed += seconds;
  const { target } = panel.settings;
  if (panel.fraction >= 1) Object.assign(panel, { state: "exact", isNew: true });
  else panel.state = target !== null && errorOf(panel) <= target ? "target_met" : "refining";
}

function errorOf(panel) {
  return panel.state === "exact" ? 0 : 0.018 * Math.sqrt((1 - panel.fraction) / panel.fraction);
}

function act(panel, name) {
  panel.isNew = true;
  if (name === "stop") panel.state = "stopped";
  if (name === "pause") panel.state = "paused";
  if (name === "resume") panel.state = "refining";
  if (name === "restart")
    Object.assign(panel, { state: "waiting", fraction: 0.002, elapsed: 0, run: panel.run + 1, waits: 2 });
}

function set(panel, { target, priority }) {
  if (target !== undefined) panel.settings.target = target;
  if (priority !== undefined) panel.settings.priority = priority;
  panel.isNew = true;
}

function shown(panel) {
  const { settings, state, fraction } = panel;
  const error = errorOf(panel);
  const { target } = settings;
  const met = target === null ? null : 1 / (1 + (target / 0.018) ** 2);
  const hasAnswer = fraction > 0 && state !== "waiting";
  return {
    state,
    reason: state === "waiting" ? "three queries with a higher priority run first" : null,
    run: panel.run,
    rows_read: Math.round(ROWS * (state === "waiting" ? 0 : fraction)),
    rows_total: ROWS,
    fraction: state === "waiting" ? 0 : fraction,
    elapsed_seconds: panel.elapsed,
    cores: LIVE.has(state) ? 2.9 : 0,
    error: hasAnswer ? error : null,
    target,
    priority: settings.priority,
    target_fraction: met,
    seconds_to_target: met === null ? null : Math.max(0, (met - fraction) / panel.rate),
    unseen_groups: settings.unseen ?? 0,
    warnings: settings.warnings ?? [],
    confidence: 0.95,
    interval: "pointwise",
    confidence_for: "cell",
    kept: true,
    mode: "mergeable",
    viewers: 1,
    changed_by: panel.changed,
    failure: settings.failure ?? null,
    ...(hasAnswer && !settings.bare
      ? { answer: answerOf(settings, state === "exact" ? 1 : fraction, panel.elapsed) }
      : {}),
  };
}

function wire(page, panels) {
  const tables = [
    {
      name: "lineitem",
      columns: [
        { name: "l_orderkey", type: "BIGINT" },
        { name: "l_extendedprice", type: "DECIMAL(15,2)" },
      ],
    },
    {
      name: "orders",
      columns: [
        { name: "o_orderkey", type: "BIGINT" },
        { name: "o_orderdate", type: "DATE" },
      ],
    },
  ];
  const pages = Object.entries(PAGES).map(([name, { title }]) => ({ name, title }));
  const fields = ["id", "title", "sql", "chart", "size", "target", "priority", "x", "y", "series"];
  const settings = panels.map((panel) =>
    Object.fromEntries(fields.map((field) => [field, panel[field] ?? null])),
  );
  return {
    name: page.name,
    title: page.title,
    data: "TPC-H, scale 10",
    editable: true,
    pages,
    tables,
    charts: KINDS.map(({ chart }) => ({ kind: chart, name: chart })),
    panels: settings,
  };
}
