/** One panel: its state, its chart, its facts, its acts. Made once, then changed in place. */

import { element, setAttribute, setClass, setHidden, setRichText, setText } from "../dom";
import { type PanelUpdate, TEXT } from "../protocol";
import { showClock, visible } from "../text/plain";
import { Controls } from "./controls";
import type { Desk } from "./desk";
import { FailureBox } from "./failure";
import type { PanelModel } from "./model";
import { Progress } from "./progress";
import { Query } from "./query";
import { Selecting } from "./selecting";
import { Stage } from "./stage";
import { factTexts, filterText, remarkTexts, stateText, toneOf } from "./states";

/** Let a card be dragged by its head or its handle onto another one, before or behind which it then stands. */
export function movable(card: HTMLElement, move: (before: string | null) => void, desk: Desk): void {
  card.addEventListener("pointerdown", ({ target }) => {
    const isHeld = target instanceof Element && target.closest(".handle, .panel > header") !== null;
    setAttribute(card, "draggable", isHeld && desk.page?.editable ? "true" : null);
  });
  card.addEventListener("dragstart", (event) => {
    card.classList.add("is-dragged");
    event.dataTransfer?.setData("text/plain", "");
  });
  card.addEventListener("dragend", () => {
    document.querySelector(".panel.is-target")?.classList.remove("is-target");
    card.classList.remove("is-dragged");
    setAttribute(card, "draggable", null);
  });
  card.addEventListener("dragover", (event) => {
    const dragged = document.querySelector(".panel.is-dragged");
    if (!dragged || dragged === card) return;
    event.preventDefault();
    for (const each of document.querySelectorAll(".panel.is-target")) each.classList.remove("is-target");
    card.classList.add("is-target");
  });
  card.addEventListener("drop", (event) => {
    const dragged = document.querySelector<HTMLElement>(".panel.is-dragged");
    if (!dragged || dragged === card) return;
    event.preventDefault();
    dragged.dispatchEvent(new CustomEvent("relaqs-move", { detail: besides(card, dragged) }));
  });
  card.addEventListener("relaqs-move", (event) => move((event as CustomEvent<string | null>).detail));
}

/** Return the panel before which a dragged one is put: where it comes from above, it goes behind the card. */
function besides(card: HTMLElement, dragged: HTMLElement): string | null {
  const cards = [...document.querySelectorAll<HTMLElement>("article.panel[data-panel]")];
  const isFromAbove = cards.indexOf(dragged) < cards.indexOf(card);
  return (isFromAbove ? cards[cards.indexOf(card) + 1] : card)?.dataset["panel"] ?? null;
}

const LINE = "\u2028"; // stands for a line's end while control characters are spelled out

export class PanelCard {
  readonly root: HTMLElement;
  private readonly title: HTMLElement;
  private readonly pill = element("span", { class: "pill" });
  private readonly progress = new Progress();
  private readonly stage: Stage;
  private readonly filter = element("span", { class: "badge", hidden: true });
  private readonly facts = element("span", { class: "facts" });
  private readonly remarks = element("span", { class: "warnings" });
  private readonly status = element("p", { class: "standing" }, this.facts, this.remarks);
  private readonly failure: FailureBox;
  private readonly text: HTMLElement;
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
    this.controls = new Controls(panel, desk, selecting, {
      card: () => this.root,
      edit: () => this.query.open(),
    });
    this.failure = new FailureBox(desk, panel, this.query);
    const parts = [this.progress.root, this.failure.root, this.stage.root, this.stage.notes, this.status];
    this.text = element("p", { class: "text", hidden: true });
    this.root = element("article", { class: "panel", "data-panel": id, "aria-labelledby": `panel-${id}` });
    this.root.append(
      element("header", {}, this.title, this.filter, this.pill),
      this.text,
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
    this.drawText();
  }

  /** A panel of text has no answer, and nothing that speaks of one. */
  private drawText(): void {
    const isText = this.panel.settings.chart === TEXT;
    setClass(this.root, "is-text", isText);
    setHidden(this.text, !isText);
    setText(
      this.text,
      isText ? visible(this.panel.settings.sql.replaceAll("\n", LINE)).replaceAll(LINE, "\n") : "",
    );
  }

  close(): void {
    this.stage.close();
    this.root.remove();
  }

  private drawFacts(update: PanelUpdate | null): void {
    const remarks = (update ? remarkTexts(update) : []).map(visible).join(" · ");
    setText(this.remarks, remarks);
    setAttribute(this.status, "title", remarks || null);
    const filter = update ? visible(filterText(update)) : "";
    setText(this.filter, filter);
    setHidden(this.filter, filter === "");
    const change = update?.changed_by ?? null;
    const who = change ? [`${visible(change.who)}: ${visible(change.what)}, ${showClock(change.at)}`] : [];
    setRichText(this.facts, [...(update ? factTexts(update) : []), ...who].join("\u2003"));
  }
}
