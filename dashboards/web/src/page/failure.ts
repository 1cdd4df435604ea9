/** Why a panel failed: the message, the place in the SQL, and what may have been meant. */

import { button, element, setHidden, setText } from "../dom";
import type { Failure } from "../protocol";
import { visible } from "../text/plain";
import type { Desk } from "./desk";
import type { PanelModel } from "./model";
import type { Query } from "./query";
import { pointAt, replaceWord } from "./sql_position";

const MOST_CANDIDATES = 4;

export class FailureBox {
  readonly root = element("div", { class: "failure" });
  private readonly message = element("p", { class: "message" });
  private readonly place = element("pre", { tabindex: 0, "aria-label": "The place in the SQL" });
  private readonly candidates = element("p", { class: "candidates" });
  private shown: Failure | null = null;

  constructor(
    private readonly desk: Desk,
    private readonly panel: PanelModel,
    private readonly query: Query,
  ) {
    this.root.append(this.message, this.place, this.candidates);
  }

  draw(): void {
    const { update } = this.panel;
    const isFailed = update?.state === "failed";
    setHidden(this.root, !isFailed);
    if (!isFailed || (this.shown && this.shown === update.failure)) return;
    this.shown = update.failure;
    const failure = update.failure ?? {
      message: update.reason ?? "The query failed.",
      position: null,
      candidates: [],
    };
    setText(this.message, failure.message);
    this.drawPlace(failure);
    this.drawCandidates(failure);
  }

  private drawPlace(failure: Failure): void {
    setHidden(this.place, failure.position === null);
    if (failure.position === null) return;
    const pointer = pointAt(this.panel.settings.sql, failure.position);
    const lead = `line ${pointer.line}: `;
    setText(this.place, `${lead}${pointer.text}\n${" ".repeat(lead.length)}${pointer.caret}`);
  }

  private drawCandidates(failure: Failure): void {
    const names = failure.candidates.slice(0, MOST_CANDIDATES);
    setHidden(this.candidates, names.length === 0);
    this.candidates.replaceChildren(
      "Did you mean ",
      ...names.flatMap((name, at) => [at ? " or " : "", this.candidate(failure, name)]),
      "?",
    );
  }

  /** A name to read; where the place is known and the page may be edited, to put into the query. */
  private candidate(failure: Failure, name: string): HTMLElement {
    const { position } = failure;
    if (position === null || !this.desk.page?.editable) return element("code", {}, visible(name));
    const take = (): void => this.query.propose(replaceWord(this.panel.settings.sql, position, name));
    return button(visible(name), take, { class: "code", title: "Put it into the query" });
  }
}
