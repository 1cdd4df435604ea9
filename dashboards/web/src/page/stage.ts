/** Where a panel's chart stands: the chart, or why there is none; dimmed or hatched where it is not live. */

import { missing, rolesOf } from "../answer/roles";
import type { Order } from "../answer/order";
import type { Chart, Size } from "../charts/chart";
import { newChart } from "../charts/index";
import { element, setClass, setHidden, setText } from "../dom";
import type { Answer, ChartKind, PanelState, PanelUpdate } from "../protocol";
import { Brush, fadeOthers } from "./brush";
import { isOutdated, type PanelModel } from "./model";
import { Arranger } from "./picture";
import type { Selecting } from "./selecting";
import { isHeld, placeholderText } from "./states";

const NEAR_PIXELS = 300; // beyond the window: what is about to be scrolled into it is drawn already
const OUT_OF_SIGHT_MS = 2_000; // so that what is printed or read aloud is never older
const NO_SIZE: Size = { width: 0, height: 0 };

export class Stage {
  readonly root = element("div", { class: "stage" });
  readonly notes = element("p", { class: "notes", hidden: true });
  private readonly placeholder = element("p", { class: "placeholder" });
  private readonly outdated = element(
    "p",
    { class: "outdated" },
    "before the change; the new answer is on its way",
  );
  private readonly arranger = new Arranger();
  private readonly sizes = new ResizeObserver((entries) => this.resized(entries));
  private chart: { readonly kind: ChartKind; readonly drawing: Chart } | null = null;
  private size = NO_SIZE;
  private drawn: readonly unknown[] = [];
  private drawnState: PanelState | null = null;
  private drawnMs = -Infinity;
  private isInSight = true;
  private readonly sight = new IntersectionObserver((entries) => this.seen(entries.at(-1)), {
    rootMargin: `${NEAR_PIXELS}px`,
  });

  /** redraw: asked for when the place for the chart has another size. selecting: null where nothing can be. */
  constructor(
    private readonly redraw: () => void,
    private readonly selecting: Selecting | null = null,
  ) {
    this.root.append(this.placeholder, this.outdated);
    this.sight.observe(this.root);
  }

  draw(panel: PanelModel, order: Order, now: number): void {
    const { update, answer } = panel;
    const shown = answer !== null && answer.rows.length > 0 && update !== null ? answer : null;
    const isFailed = update?.state === "failed";
    const isOld = shown !== null && isOutdated(panel);
    setHidden(this.placeholder, shown !== null || isFailed);
    setText(this.placeholder, placeholderText(update, answer !== null && panel.answerRun === update?.run));
    setHidden(this.root, shown === null && isFailed);
    setClass(this.root, "is-outdated", isOld);
    setHidden(this.outdated, !isOld || isFailed);
    setClass(this.root, "is-held", shown !== null && update !== null && isHeld(update.state));
    if (shown && update) this.drawChart(panel, shown, update, order, now);
    else this.dropChart();
  }

  close(): void {
    this.sizes.disconnect();
    this.sight.disconnect();
  }

  /** Nothing is computed where nothing of what is shown has changed; out of sight, it waits a while. */
  private drawChart(panel: PanelModel, answer: Answer, update: PanelUpdate, order: Order, now: number): void {
    const { settings, asTable, remembered, answerRun } = panel;
    const lacks = missing(settings.chart, rolesOf(answer, settings), answer);
    const drawing = this.chartOf(asTable || lacks !== null ? "table" : settings.chart);
    const filter = this.selecting?.filter ?? null;
    setClass(this.root, "can-select", (this.selecting?.column ?? null) !== null);
    const drawn = [answer, settings, remembered, drawing, this.size, order, update.state, answerRun, filter];
    if (this.size.width === 0 || drawn.every((part, at) => part === this.drawn[at])) return;
    const isUrgent =
      this.isInSight || update.state !== this.drawnState || now - this.drawnMs >= OUT_OF_SIGHT_MS;
    if (!isUrgent) return;
    this.drawn = drawn;
    this.drawnState = update.state;
    this.drawnMs = now;
    const notes = drawing.draw(this.arranger.picture(panel, answer, update, order, now), this.size);
    if (this.selecting) fadeOthers(drawing.root, this.selecting.isSelectedKey());
    const cut =
      answer.truncated && this.chart?.kind !== "table" ? [`${answer.truncated} more rows are not drawn`] : [];
    const instead = lacks ? [`a table and no ${settings.chart}: ${lacks}`] : [];
    const text = [...instead, ...notes, ...cut].join(" · ");
    setText(this.notes, text);
    setHidden(this.notes, text === "");
  }

  private chartOf(kind: ChartKind): Chart {
    if (this.chart?.kind === kind) return this.chart.drawing;
    this.dropChart();
    const drawing = newChart(kind);
    this.chart = { kind, drawing };
    const { selecting } = this;
    if (selecting && drawing.marksIn) new Brush(drawing, (taken) => selecting.take(taken));
    this.root.prepend(drawing.root);
    this.sizes.observe(drawing.stage);
    return drawing;
  }

  private dropChart(): void {
    setHidden(this.notes, true);
    if (!this.chart) return;
    this.sizes.disconnect();
    this.chart.drawing.root.remove();
    this.chart = null;
    this.size = NO_SIZE;
  }

  private seen(entry: IntersectionObserverEntry | undefined): void {
    if (!entry || entry.isIntersecting === this.isInSight) return;
    this.isInSight = entry.isIntersecting;
    if (this.isInSight) this.redraw();
  }

  private resized(entries: readonly ResizeObserverEntry[]): void {
    const box = entries.at(-1)?.contentRect;
    if (!box) return;
    const size = { width: Math.floor(box.width), height: Math.floor(box.height) };
    if (size.width === this.size.width && size.height === this.size.height) return;
    this.size = size;
    this.redraw();
  }
}
