/** The acts of one panel: how far it runs, how much it matters, and what to do with its answer. */

import { marksOf, remember } from "../answer/marks";
import { rolesOf } from "../answer/roles";
import {
  button,
  element,
  labelledSelect,
  type Option,
  setAttribute,
  setDisabled,
  setHidden,
  setOptions,
  setText,
} from "../dom";
import type { PanelSize } from "../protocol";
import { showChosen } from "../text/plain";
import type { Desk } from "./desk";
import { askFilter } from "./filter_dialog";
import { Menu } from "./menu";
import type { PanelModel } from "./model";
import { offerPicture, pictureOf } from "./panel_picture";
import { pythonOf } from "./python";
import type { Selecting } from "./selecting";
import { SIZES } from "./settings_form";
import { can } from "./states";

const TARGETS: readonly number[] = [0.1, 0.05, 0.02, 0.01, 0.005, 0.001];
const PRIORITIES: readonly (readonly [weight: number, name: string])[] = [
  [0.5, "low"],
  [1, "normal"],
  [2, "high"],
  [4, "urgent"],
];
const TO_THE_END = "exact";

export class Controls {
  readonly root = element("div", { class: "controls" });
  private readonly enough: HTMLButtonElement;
  private readonly pause: HTMLButtonElement;
  private readonly target: HTMLSelectElement;
  private readonly priority: HTMLSelectElement;
  private readonly remember: HTMLButtonElement;
  private readonly view: HTMLButtonElement;
  private readonly again: HTMLButtonElement;
  private readonly edit: HTMLButtonElement;
  private readonly copy: HTMLButtonElement;
  private readonly size: HTMLSelectElement;
  private readonly remove: HTMLButtonElement;
  private readonly earlier: HTMLButtonElement;
  private readonly later: HTMLButtonElement;
  private readonly acts: readonly HTMLElement[];
  private readonly exports: readonly HTMLAnchorElement[];
  private readonly filter: HTMLButtonElement;
  private readonly pictures: readonly HTMLButtonElement[];

  constructor(
    private readonly panel: PanelModel,
    private readonly desk: Desk,
    private readonly selecting: Selecting,
    private readonly own: { readonly card: () => HTMLElement; readonly edit: () => void },
  ) {
    const { id } = panel.settings;
    this.enough = button("Good enough", () => desk.send({ type: "act", panel: id, act: "stop" }));
    this.pause = button("Pause", () => this.pauseOrResume());
    const [target, targetSelect] = labelledSelect("target", (value) => this.setTarget(value));
    const [priority, prioritySelect] = labelledSelect("priority", (value) => this.setPriority(value));
    this.target = targetSelect;
    this.priority = prioritySelect;
    this.remember = button("Remember and compare", () => this.rememberOrForget());
    this.view = button("View as table", () => this.changeView());
    this.again = button("Run again", () => desk.send({ type: "act", panel: id, act: "restart" }));
    this.edit = button("Edit panel", () => own.edit());
    this.copy = button("Duplicate panel", () => this.duplicate());
    const [size, sizeSelect] = labelledSelect("size", (value) =>
      desk.send({ type: "edit", panel: id, size: value as PanelSize }),
    );
    this.size = sizeSelect;
    this.remove = button("Remove panel", () => desk.send({ type: "remove", panel: id }));
    this.exports = ["csv", "parquet"].map((kind) => this.exportLink(kind));
    const python = button("Copy as Python", () => void this.copyPython());
    this.filter = button("Filter the page…", () => askFilter(panel, this.selecting));
    this.pictures = (["png", "svg"] as const).map((kind) =>
      button(`Export as ${kind.toUpperCase()}`, () => void this.exportPicture(kind)),
    );
    const outputs = [python, ...this.exports, ...this.pictures];
    this.earlier = button("Move earlier", () => this.move(-1));
    this.later = button("Move later", () => this.move(1));
    const edits = [this.edit, this.copy, size, this.earlier, this.later, this.remove];
    const items = [this.filter, this.remember, this.view, ...outputs, priority, this.again, ...edits];
    const menu = new Menu("More", `More for ${panel.settings.title}`, items);
    const handle = element("span", { class: "handle", "aria-hidden": "true", title: "Drag to move" }, "⋮⋮");
    this.root.append(handle, this.enough, this.pause, target, menu.root);
    this.acts = [handle, this.enough, this.pause, target, priority, this.again, ...edits];
  }

  draw(): void {
    const { update, settings } = this.panel;
    const state = update?.state ?? "waiting";
    setDisabled(this.enough, !can("stop", state));
    setText(this.pause, can("resume", state) ? "Resume" : "Pause");
    setDisabled(this.pause, !can("pause", state) && !can("resume", state));
    setOptions(
      this.target,
      targetOptions(update?.target ?? settings.target),
      targetValue(update?.target ?? settings.target),
    );
    setOptions(
      this.priority,
      priorityOptions(update?.priority ?? settings.priority),
      String(update?.priority ?? settings.priority),
    );
    setText(this.remember, this.panel.remembered ? "Forget the remembered answer" : "Remember and compare");
    setDisabled(this.remember, this.panel.answer === null);
    setText(this.view, this.panel.asTable ? "View as chart" : "View as table");
    setHidden(this.view, settings.chart === "table");
    setDisabled(this.again, !can("restart", state));
    for (const each of this.acts) setHidden(each, !this.desk.page?.editable);
    const panels = this.desk.page?.panels ?? [];
    setDisabled(this.earlier, panels[0]?.id === settings.id);
    setDisabled(this.later, panels.at(-1)?.id === settings.id);
    setOptions(
      this.size,
      SIZES.map((each) => ({ value: each, text: each })),
      settings.size,
    );
    for (const link of this.exports) setHidden(link, this.panel.answer === null);
    setHidden(this.filter, this.selecting.column === null || !this.desk.page?.editable);
    for (const each of this.pictures) setHidden(each, this.panel.answer === null);
  }

  private pauseOrResume(): void {
    const act = can("pause", this.panel.update?.state ?? "waiting") ? "pause" : "resume";
    this.desk.send({ type: "act", panel: this.panel.settings.id, act });
  }

  private setTarget(value: string): void {
    const target = value === TO_THE_END ? null : Number(value);
    this.desk.send({ type: "set", panel: this.panel.settings.id, target });
  }

  private setPriority(value: string): void {
    this.desk.send({ type: "set", panel: this.panel.settings.id, priority: Number(value) });
  }

  private move(by: -1 | 1): void {
    const ids = this.desk.page?.panels.map((panel) => panel.id) ?? [];
    const at = ids.indexOf(this.panel.settings.id);
    const before = ids[by < 0 ? at - 1 : at + 2] ?? null;
    this.desk.send({ type: "move", panel: this.panel.settings.id, before });
  }

  private duplicate(): void {
    const { id: _, ...panel } = this.panel.settings;
    this.desk.send({ type: "add", panel: { ...panel, title: `${panel.title} (copy)`.slice(0, 200) } });
  }

  private rememberOrForget(): void {
    const { answer, settings } = this.panel;
    if (this.panel.remembered) this.panel.remembered = null;
    else if (answer) {
      const roles = rolesOf(answer, settings);
      this.panel.remembered = remember(marksOf(answer, roles), roles, Date.now());
      this.desk.say("Remembered: later answers are drawn over this one.");
    }
    this.desk.redraw(settings.id);
  }

  private changeView(): void {
    this.panel.asTable = !this.panel.asTable;
    this.desk.redraw(this.panel.settings.id);
  }

  private async exportPicture(kind: "png" | "svg"): Promise<void> {
    const picture = pictureOf(this.panel, this.own.card());
    if (picture === null) this.desk.say("This chart is a table; export it as CSV.");
    else await offerPicture(picture, fileName(this.panel.settings.title), kind);
  }

  private async copyPython(): Promise<void> {
    try {
      await navigator.clipboard.writeText(pythonOf(this.panel.settings));
      this.desk.say(
        this.panel.update?.filters?.length
          ? "Copied as Python, without the page's filters."
          : "Copied as Python.",
      );
    } catch {
      this.desk.say("The browser does not let this page write to the clipboard.");
    }
  }

  private exportLink(kind: string): HTMLAnchorElement {
    const link = element("a", { download: true }, `Export as ${kind === "csv" ? "CSV" : "Parquet"}`);
    const page = encodeURIComponent(this.desk.page?.name ?? "");
    setAttribute(link, "href", `/export/${page}/${encodeURIComponent(this.panel.settings.id)}.${kind}`);
    return link;
  }
}

/** Return a title as the name of a file. */
function fileName(title: string): string {
  return title.replaceAll(/[^\p{L}\p{N} .()_-]+/gu, "_").slice(0, 60) || "panel";
}

function targetOptions(chosen: number | null): Option[] {
  const targets =
    chosen === null || TARGETS.includes(chosen) ? TARGETS : [...TARGETS, chosen].sort((a, b) => b - a);
  const shares = targets.map((target) => ({ value: String(target), text: showChosen(target) }));
  return [...shares, { value: TO_THE_END, text: "exact" }];
}

function targetValue(target: number | null): string {
  return target === null ? TO_THE_END : String(target);
}

function priorityOptions(chosen: number): Option[] {
  const known = PRIORITIES.map(([weight, name]) => ({ value: String(weight), text: name }));
  return known.some((option) => option.value === String(chosen))
    ? known
    : [...known, { value: String(chosen), text: `× ${chosen}` }];
}
