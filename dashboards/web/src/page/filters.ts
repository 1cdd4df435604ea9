/** The filters of a page as chips: each says what it is, and a press takes it away. */

import { selectionText } from "../answer/selection";
import { button, element, setHidden } from "../dom";
import type { Filter } from "../protocol";
import { visible } from "../text/plain";
import type { Desk } from "./desk";
import type { PanelModel } from "./model";

export class FilterBar {
  readonly root = element("section", { class: "filters", "aria-label": "Filters", hidden: true });
  private shown = "";

  constructor(private readonly desk: Desk) {}

  /** Draw the chips, and return what changed in words, for those who do not see them. */
  draw(filters: readonly Filter[], panels: ReadonlyMap<string, PanelModel>): string[] {
    const texts = filters.map((filter) => textOf(filter, panels.get(filter.panel) ?? null));
    const shown = JSON.stringify([filters.map((filter) => filter.id), texts]);
    if (shown === this.shown) return [];
    this.shown = shown;
    const focused = [...this.root.children].findIndex((chip) => chip === document.activeElement);
    const chips = filters.map((filter, at) => this.chip(filter.id, texts[at] ?? ""));
    const all = chips.length > 1 ? [this.all()] : [];
    this.root.replaceChildren(element("span", { class: "name" }, "Filtered by"), ...chips, ...all);
    setHidden(this.root, filters.length === 0);
    if (focused >= 0) this.focusNear(focused, chips);
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
