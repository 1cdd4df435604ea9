/** What a panel's chart is to show of its answer. */

import { position } from "../answer/cells";
import { type Mark, marksOf } from "../answer/marks";
import { byLabel, byValue, isRankedBy, type Order, Places, uncertainOrder } from "../answer/order";
import { type Roles, rolesOf } from "../answer/roles";
import type { Picture } from "../charts/chart";
import type { Answer, PanelUpdate } from "../protocol";
import type { PanelModel } from "./model";

/** "95 % interval"; "95 % anytime table interval" where all hold together, however often one looks. */
export function intervalName(
  update: Pick<PanelUpdate, "confidence" | "interval" | "confidence_for">,
): string {
  const percent = Number((100 * update.confidence).toPrecision(4));
  const anytime = update.interval === "anytime" ? "anytime " : "";
  return `${percent}\u00a0% ${anytime}${update.confidence_for === "table" ? "table " : ""}interval`;
}

/** Return the keys of the marks whose period the table fills in part. */
function partialMarks(
  marks: readonly Mark[],
  roles: Roles,
  answer: Answer,
  update: PanelUpdate,
): ReadonlySet<string> {
  const column = roles.x === null ? undefined : answer.columns[roles.x];
  const begins = (column && update.partial?.[column.name]) ?? [];
  const places = new Set(begins.map((begin) => position(begin, "timestamp")));
  return new Set(marks.filter((mark) => mark.x && places.has(mark.x.value)).map((mark) => mark.key));
}

/** Arranges one panel's answers, update after update. */
export class Arranger {
  private readonly places = new Places();
  private run: number | null = null;

  /** Groups keep their places until the answer is exact; then its order is known: the query's own, or by name. */
  picture(panel: PanelModel, answer: Answer, update: PanelUpdate, order: Order, now: number): Picture {
    if (panel.answerRun !== this.run) this.places.forget();
    this.run = panel.answerRun;
    const roles = rolesOf(answer, panel.settings);
    const marks = marksOf(answer, roles);
    const isExact = (update.state === "exact" || update.state === "empty") && panel.answerRun === update.run;
    const ordered = answer.ranked ? marks : byLabel(marks);
    const kept = isExact ? ordered : this.places.keep(ordered);
    const arranged = order === "value" ? byValue(marks) : kept;
    const hasOrder = !isExact && (order === "value" || isRankedBy(answer, roles.y));
    return {
      answer,
      roles,
      marks: arranged,
      uncertain: hasOrder ? uncertainOrder(arranged) : new Set(),
      isExact,
      partial: partialMarks(marks, roles, answer, update),
      isLog: panel.settings.scale === "log",
      intervalName: intervalName(update),
      remembered: panel.remembered,
      history: panel.history,
      run: panel.answerRun ?? 0,
      now,
    };
  }
}
