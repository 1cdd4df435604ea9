/** What an open page knows: the server's updates folded into one state. Pure; clocks are passed in. */

import { cellOf, spanOf } from "../answer/cells";
import type { Remembered } from "../answer/marks";
import { rolesOf } from "../answer/roles";
import type { HistoryPoint } from "../charts/chart";
import type { Answer, LogLine, Page, PanelSettings, PanelUpdate, Update } from "../protocol";
import { CoresHistory } from "./cores_history";
import { spokenState } from "./states";

const LOG_LINES = 50;

/** One panel. answer: the last one that came; answerRun: the run it is of. */
export interface PanelModel {
  settings: PanelSettings;
  update: PanelUpdate | null;
  answer: Answer | null;
  answerRun: number | null;
  history: readonly HistoryPoint[];
  remembered: Remembered | null;
  asTable: boolean;
}

/** What one update changed. spoken: changes of state in words, for those who do not see them. */
export interface Changes {
  page: boolean;
  cluster: boolean;
  log: boolean;
  panels: Set<string>;
  spoken: string[];
}

export class PageModel {
  page: Page | null = null;
  readonly panels = new Map<string, PanelModel>();
  readonly cores = new CoresHistory();
  log: readonly LogLine[] = [];
  viewers = 1;
  notice: string | null = null;
  /** While the view is frozen: what panels will show when it is not. */
  private held: Map<string, PanelUpdate> | null = null;

  apply(update: Update): Changes {
    const changes: Changes = { page: false, cluster: false, log: false, panels: new Set(), spoken: [] };
    if (update.page) {
      this.takePage(update.page);
      changes.page = true;
    }
    for (const [id, panel] of Object.entries(update.panels ?? {})) {
      const spoken = this.takePanel(id, panel);
      changes.panels.add(id);
      if (spoken) changes.spoken.push(spoken);
    }
    if (update.cluster) {
      this.cores.add(update.cluster);
      changes.cluster = true;
    }
    if (update.log && update.log.length > 0) {
      this.log = [...this.log, ...update.log].slice(-LOG_LINES);
      changes.log = true;
    }
    if (update.viewers !== undefined) this.viewers = update.viewers;
    this.notice = update.notice ?? null;
    return changes;
  }

  /** Hold panels as they are; what comes meanwhile is kept, the newest of each. */
  freeze(): void {
    this.held ??= new Map();
  }

  /** Let panels show what came meanwhile, and return which. */
  unfreeze(): Iterable<string> {
    const held = this.held ?? new Map<string, PanelUpdate>();
    this.held = null;
    for (const [id, update] of held) this.takePanel(id, update);
    return held.keys();
  }

  /** Forget what a server that was gone will tell again; what was drawn stays. */
  reconnected(): void {
    this.log = [];
  }

  private takePage(page: Page): void {
    this.page = page;
    const ids = new Set(page.panels.map((panel) => panel.id));
    for (const id of this.panels.keys()) if (!ids.has(id)) this.panels.delete(id);
    for (const settings of page.panels) this.takeSettings(settings);
  }

  private takeSettings(settings: PanelSettings): void {
    const panel = this.panels.get(settings.id);
    if (panel) panel.settings = settings;
    else this.panels.set(settings.id, newPanel(settings));
  }

  private takePanel(id: string, update: PanelUpdate): string | null {
    const panel = this.panels.get(id);
    if (!panel) return null;
    if (this.held) {
      this.held.set(id, merged(this.held.get(id), update));
      return null;
    }
    const before = panel.update;
    takeUpdate(panel, update);
    return before?.state === update.state && before.run === update.run
      ? null
      : spokenState(panel.settings.title, update);
  }
}

/** Return the later update, with the earlier one's answer where the run is the same and no newer one came. */
function merged(earlier: PanelUpdate | undefined, later: PanelUpdate): PanelUpdate {
  const isKept = earlier?.answer && !later.answer && earlier.run === later.run;
  return isKept ? { ...later, answer: earlier.answer } : later;
}

export function newPanel(settings: PanelSettings): PanelModel {
  return {
    settings,
    update: null,
    answer: null,
    answerRun: null,
    history: [],
    remembered: null,
    asTable: false,
  };
}

/** Take what a panel's run says; its answer stays where no new one came. */
export function takeUpdate(panel: PanelModel, update: PanelUpdate): void {
  panel.update = update;
  if (update.answer) takeAnswer(panel, update, update.answer);
}

function takeAnswer(panel: PanelModel, update: PanelUpdate, answer: Answer): void {
  if (panel.answerRun !== update.run) {
    panel.history = [];
    panel.answerRun = update.run;
  }
  panel.answer = answer;
  const { y } = rolesOf(answer, panel.settings);
  const cell = y === null ? undefined : answer.rows[0]?.[y];
  const span = cell === undefined || answer.rows.length !== 1 ? null : spanOf(cellOf(cell));
  if (span) panel.history = keepHistory(panel.history, pointOf(span, update.elapsed_seconds));
}

function pointOf(span: { value: number; low: number; high: number }, elapsedSeconds: number): HistoryPoint {
  const { value, low, high } = span;
  return {
    elapsedSeconds,
    value,
    low: Number.isFinite(low) ? low : value,
    high: Number.isFinite(high) ? high : value,
  };
}

/** Whether the chart shows something older than the panel's state: an earlier run, or one that failed. */
export function isOutdated(panel: PanelModel): boolean {
  const update = panel.update;
  return (
    update !== null && panel.answer !== null && (panel.answerRun !== update.run || update.state === "failed")
  );
}

const MOST_POINTS = 240;

/** Return the history with a point more. When full, every second point goes: the whole way stays in sight. */
export function keepHistory(history: readonly HistoryPoint[], point: HistoryPoint): HistoryPoint[] {
  const earlier = history.filter((each) => each.elapsedSeconds < point.elapsedSeconds);
  const kept = earlier.length < MOST_POINTS ? earlier : earlier.filter((_, at) => at % 2 === 0);
  return [...kept, point];
}
