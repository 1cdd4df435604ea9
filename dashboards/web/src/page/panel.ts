/** One panel: its state, its chart, its facts, its acts. Made once, then changed in place. */

import { element, setAttribute, setHidden, setRichText, setText } from "../dom";
import type { PanelUpdate } from "../protocol";
import { showClock, visible } from "../text/plain";
import { Controls } from "./controls";
import type { Desk } from "./desk";
import { FailureBox } from "./failure";
import type { PanelModel } from "./model";
import { Progress } from "./progress";
import { Query } from "./query";
import { Selecting } from "./selecting";
import { Stage } from "./stage";
import { factTexts, filterTexts, remarkTexts, stateText, toneOf } from "./states";

export class PanelCard {
  readonly root: HTMLElement;
  private readonly title: HTMLElement;
  private readonly pill = element("span", { class: "pill" });
  private readonly progress = new Progress();
  private readonly stage: Stage;
  private readonly remarks = element("p", { class: "warnings" });
  private readonly facts = element("p", { class: "facts" });
  private readonly failure: FailureBox;
  private readonly controls: Controls;
  private readonly query: Query;

  constructor(
    readonly panel: PanelModel,
    private readonly desk: Desk,
  ) {
    const { id } = panel.settings;
    this.title = element("h2", { id: `panel-${id}` });
    const selecting = new Selecting(panel, desk);
    this.stage = new Stage(() => desk.redraw(id), selecting);
    this.query = new Query(panel, desk);
    this.controls = new Controls(panel, desk, selecting, () => this.root);
    this.failure = new FailureBox(desk, panel, this.query);
    const parts = [
      this.progress.root,
      this.failure.root,
      this.stage.root,
      this.stage.notes,
      this.remarks,
      this.facts,
    ];
    this.root = element("article", { class: "panel", "aria-labelledby": `panel-${id}` });
    this.root.append(
      element("header", {}, this.title, this.pill),
      ...parts,
      this.controls.root,
      this.query.root,
    );
  }

  /** Draw what has changed since the last time. */
  draw(now: number): void {
    const { settings, update } = this.panel;
    const state = update?.state ?? "waiting";
    setText(this.title, visible(settings.title));
    setAttribute(this.root, "data-size", settings.size);
    setAttribute(this.root, "data-state", state);
    setAttribute(this.root, "data-tone", toneOf(state));
    setText(this.pill, update ? stateText(update) : "waiting");
    this.progress.draw(update);
    this.failure.draw();
    this.stage.draw(this.panel, this.desk.order, now);
    this.drawFacts(update);
    this.controls.draw();
    this.query.draw();
  }

  close(): void {
    this.stage.close();
    this.root.remove();
  }

  private drawFacts(update: PanelUpdate | null): void {
    const remarks = update ? [...filterTexts(update), ...remarkTexts(update)] : [];
    setText(this.remarks, remarks.map(visible).join(" · "));
    setHidden(this.remarks, remarks.length === 0);
    const change = update?.changed_by ?? null;
    const who = change ? [`${visible(change.who)}: ${visible(change.what)}, ${showClock(change.at)}`] : [];
    setRichText(this.facts, [...(update ? factTexts(update) : []), ...who].join("\u2003"));
  }
}
