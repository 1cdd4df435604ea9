/** A panel's query: to read, and on a page that may be edited, to change and run. */

import { button, element, setHidden } from "../dom";
import type { Answer, Failure, PanelEdit, PanelSettings } from "../protocol";
import { SqlField } from "../sql_field";
import type { Desk } from "./desk";
import type { PanelModel } from "./model";
import { changedSettings, SettingsForm } from "./settings_form";

export class Query {
  readonly root = element("details", { class: "query" }, element("summary", {}, "SQL"));
  private readonly form = new SettingsForm();
  private field: SqlField | null = null;
  private filledFor: PanelSettings | null = null;
  private offered: Answer | null = null;
  private marked: Failure | null = null;

  constructor(
    private readonly panel: PanelModel,
    private readonly desk: Desk,
  ) {
    this.root.addEventListener("toggle", () => this.root.open && this.build());
  }

  /** Take over what somebody else changed, unless it is being edited here. */
  draw(): void {
    const { settings, update } = this.panel;
    this.mark(update?.failure ?? null);
    if (this.field && this.filledFor !== settings && !this.isBeingEdited()) this.revert();
    else if (this.field && this.offered !== this.panel.answer) this.offer();
  }

  /** Open what may be edited, and put the keyboard there. */
  open(): void {
    this.root.open = true;
    this.build();
    this.form.focus();
  }

  /** Open the query with other text in it, for the reader to run. */
  propose(sql: string): void {
    this.root.open = true;
    this.build();
    if (!this.field) return;
    this.field.sql = sql;
    this.field.focus();
  }

  /** Point at a mistake once: while the query is changed, its place is no longer true. */
  private mark(failure: Failure | null): void {
    if (!this.field || failure === this.marked) return;
    this.marked = failure;
    this.field.mark(failure?.position ?? null, failure?.message ?? "");
  }

  /** Whether there is something here that nobody has run yet. */
  private isBeingEdited(): boolean {
    const edit = this.edit();
    if (edit === null || this.filledFor === null) return false;
    const isRun = Object.keys(changedSettings(this.panel.settings, edit)).length === 0;
    return !isRun && Object.keys(changedSettings(this.filledFor, edit)).length > 0;
  }

  private edit(): PanelEdit | null {
    return this.field && { ...this.form.looks, sql: this.field.sql };
  }

  private build(): void {
    if (this.field) return;
    const { settings } = this.panel;
    const isEditable = this.desk.page?.editable ?? false;
    this.field = new SqlField({
      label: `SQL of ${settings.title}`,
      sql: settings.sql,
      tables: this.desk.page?.tables ?? [],
      isEditable,
      run: () => this.run(),
    });
    const acts = element("div", { class: "controls" });
    acts.append(
      button("Run", () => this.run(), { class: "primary", title: "Ctrl+Enter" }),
      button("Revert", () => this.revert()),
      element("span", { class: "hint" }, "Ctrl+Enter runs it; the old run is cancelled"),
    );
    setHidden(acts, !isEditable);
    setHidden(this.form.root, !isEditable);
    this.root.append(this.field.root, this.form.root, acts);
    this.revert();
    this.draw();
  }

  private run(): void {
    const edit = this.edit();
    if (edit === null || !this.desk.page?.editable) return;
    const changes = changedSettings(this.panel.settings, edit);
    const { id } = this.panel.settings;
    if (Object.keys(changes).length === 0) this.desk.send({ type: "act", panel: id, act: "restart" });
    else this.desk.send({ type: "edit", panel: id, ...changes });
  }

  private revert(): void {
    const { settings, answer } = this.panel;
    this.filledFor = settings;
    if (this.field) this.field.sql = settings.sql;
    this.offered = answer;
    this.form.fill(settings, namesOf(answer), this.desk.page?.charts ?? []);
  }

  /** Offer the columns of the newest answer: another query has others. */
  private offer(): void {
    this.offered = this.panel.answer;
    this.form.offer(namesOf(this.offered));
  }
}

function namesOf(answer: Answer | null): string[] {
  return answer?.columns.map((column) => column.name) ?? [];
}
