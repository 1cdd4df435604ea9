/** The time that a page shows, and its filters as chips: each says what it is, and a press takes it away. */

import { selectionText } from "../answer/selection";
import { button, element, labelledSelect, setAttribute, setHidden, setOptions } from "../dom";
import type { Filter, Page, TimeColumn } from "../protocol";
import { visible } from "../text/plain";
import { grainsOf, PERIODS, periodOf, type Range, rangeOfPeriod } from "../text/moments";
import type { Desk } from "./desk";
import type { PanelModel } from "./model";

export class FilterBar {
  readonly root = element("section", { class: "filters", "aria-label": "Filters", hidden: true });
  private readonly chips = element("div", { class: "chips" });
  private readonly time: TimeBar;
  private shown: string | null = null;

  constructor(private readonly desk: Desk) {
    this.time = new TimeBar(desk);
    this.root.append(this.time.root, this.chips);
  }

  /** Draw the time and the chips, and return what changed in words, for those who do not see them. */
  draw(page: Page | null, panels: ReadonlyMap<string, PanelModel>): string[] {
    const filters = page?.filters ?? [];
    this.time.draw(page);
    setHidden(this.root, filters.length === 0 && Boolean(this.time.root.hidden));
    const texts = filters.map((filter) => textOf(filter, panels.get(filter.panel) ?? null));
    const shown = JSON.stringify([page?.editable, filters.map((filter) => filter.id), texts]);
    if (shown === this.shown) return [];
    const isFirst = this.shown === null;
    this.shown = shown;
    const focused = [...this.chips.children].findIndex((chip) => chip === document.activeElement);
    const mayChange = page?.editable ?? false;
    const chips = filters.map((filter, at) =>
      mayChange
        ? this.chip(filter.id, texts[at] ?? "")
        : element("span", { class: "chip fixed" }, texts[at] ?? ""),
    );
    const all = mayChange && chips.length > 1 ? [this.all()] : [];
    this.chips.replaceChildren(element("span", { class: "name" }, "Filtered by"), ...chips, ...all);
    setHidden(this.chips, filters.length === 0);
    if (focused >= 0) this.focusNear(focused, chips);
    if (isFirst && filters.length === 0) return [];
    return [filters.length > 0 ? `The page is filtered by ${texts.join("; ")}` : "The page is not filtered"];
  }

  /** The chip that had the focus may be gone: the next one takes it, or else the page. */
  private focusNear(at: number, chips: readonly HTMLElement[]): void {
    const next = chips[Math.min(at - 1, chips.length - 1)] ?? document.querySelector<HTMLElement>("main");
    next?.focus();
  }

  private chip(id: string, text: string): HTMLButtonElement {
    const chip = button("", () => this.desk.send({ type: "unfilter", filter: id }), {
      class: "chip",
      "aria-label": `Remove the filter ${text}`,
    });
    chip.append(element("span", {}, text), element("span", { "aria-hidden": "true" }, " ×"));
    return chip;
  }

  private all(): HTMLButtonElement {
    return button("Remove all filters", () => this.desk.send({ type: "unfilter", filter: null }));
  }
}

export function textOf(filter: Filter, panel: PanelModel | null): string {
  return `${visible(filter.column)}: ${selectionText(filter.selection, panel?.answer ?? null, filter.column)}`;
}

/** Which part of the time the page shows, and by which unit its panels over time show it. */
class TimeBar {
  readonly root = element("div", {
    class: "time",
    role: "group",
    "aria-label": "The time that the page shows",
    hidden: true,
  });
  private readonly columns: HTMLSelectElement;
  private readonly columnField: HTMLElement;
  private readonly periods: HTMLSelectElement;
  private readonly grains: HTMLSelectElement;
  private readonly grainField: HTMLElement;
  private readonly first = element("input", { type: "date", "aria-label": "First day" });
  private readonly last = element("input", { type: "date", "aria-label": "Last day" });
  private readonly days = element("span", { class: "days", hidden: true }, this.first, "to", this.last);
  private times: readonly TimeColumn[] = [];
  private isOwn = false;
  private hadRange = false;

  constructor(private readonly desk: Desk) {
    const [columnField, columns] = labelledSelect("of", () => this.choose(this.periods.value));
    const [period, periods] = labelledSelect("time", (value) => this.choose(value));
    const [grain, grains] = labelledSelect("by", (unit) => {
      if (unit) desk.send({ type: "grain", unit });
    });
    setAttribute(columns, "aria-label", "Column of time");
    setAttribute(periods, "aria-label", "Time");
    setAttribute(grains, "aria-label", "Unit of time");
    this.columns = columns;
    this.columnField = columnField;
    this.periods = periods;
    this.grains = grains;
    this.grainField = grain;
    for (const each of [this.first, this.last]) each.addEventListener("change", () => this.takeDays());
    this.root.append(period, this.days, columnField, grain);
  }

  draw(page: Page | null): void {
    this.times = page?.times ?? [];
    setHidden(this.root, !page?.editable || this.times.length === 0);
    if (this.root.hidden) return;
    const filter = page?.filters?.find((each) => each.table);
    const shown = this.times.findIndex(
      (each) => each.table === filter?.table && each.column === filter.column,
    );
    const names = this.times.map((each, at) => ({ value: String(at), text: this.nameOf(each) }));
    setOptions(this.columns, names, shown >= 0 ? String(shown) : this.columns.value || "0");
    setHidden(this.columnField, names.length < 2);
    const time = this.time;
    if (!time) return;
    const range = filter && "range" in filter.selection ? (filter.selection.range as Range) : null;
    if (this.hadRange && !range) this.isOwn = false;
    this.hadRange = range !== null;
    const isOwn = this.isOwn || (range !== null && periodOf(time, range) === "own");
    setOptions(this.periods, PERIODS, isOwn ? "own" : range ? periodOf(time, range) : "all");
    setHidden(this.days, !isOwn);
    if (document.activeElement !== this.first && document.activeElement !== this.last) {
      [this.first.value, this.last.value] = range ?? [time.first, time.last];
    }
    this.drawGrain(range ?? [time.first, time.last], time.has_hours, page?.units ?? []);
  }

  private drawGrain(range: Range, hasHours: boolean, units: readonly string[]): void {
    const [unit] = units;
    setHidden(this.grainField, unit === undefined);
    if (unit === undefined) return;
    const offered = new Set([...grainsOf(range, hasHours), ...units]);
    const mixed = units.length > 1 ? [{ value: "", text: "several units" }] : [];
    const options = [...offered].map((each) => ({ value: each, text: each }));
    setOptions(this.grains, [...mixed, ...options], units.length > 1 ? "" : unit);
  }

  private get time(): TimeColumn | undefined {
    return this.times[Number(this.columns.value)];
  }

  private nameOf({ table, column }: TimeColumn): string {
    const isOne = this.times.every((each) => each.table === table);
    return visible(isOne ? column : `${table}.${column}`);
  }

  private choose(period: string): void {
    this.isOwn = period === "own";
    setHidden(this.days, !this.isOwn);
    if (this.isOwn) this.first.focus();
    else if (this.time) this.send(this.time, rangeOfPeriod(this.time, period));
  }

  private takeDays(): void {
    const [first, last] = [this.first.value, this.last.value];
    if (this.time && first && last && first <= last) this.send(this.time, [first, last]);
  }

  private send({ table, column }: TimeColumn, range: Range | null): void {
    this.desk.send({ type: "period", table, column, range });
  }
}
