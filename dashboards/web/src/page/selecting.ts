/** What a panel's reader selects: sent as a filter of the page, and drawn. */

import {
  type Brushed,
  brushedColumn,
  isSelected,
  rangeOf,
  sameSelection,
  valuesOf,
} from "../answer/selection";
import { position } from "../answer/cells";
import { type Mark, marksOf } from "../answer/marks";
import { rolesOf } from "../answer/roles";
import type { Filter, Scalar, Selection } from "../protocol";
import type { Taken } from "./brush";
import type { Desk } from "./desk";
import type { PanelModel } from "./model";

export class Selecting {
  constructor(
    private readonly panel: PanelModel,
    private readonly desk: Desk,
  ) {}

  /** The column that can be selected in now, or null. */
  get column(): Brushed | null {
    const { answer, update, settings } = this.panel;
    return answer && update && this.desk.page?.editable !== false
      ? brushedColumn(answer, rolesOf(answer, settings), update)
      : null;
  }

  get filter(): Filter | null {
    const column = this.column;
    const mine = (each: Filter): boolean =>
      each.panel === this.panel.settings.id && each.column === column?.name;
    return this.desk.page?.filters?.find(mine) ?? null;
  }

  /** Every mark that the answer has, for those who choose from a list. */
  get marks(): readonly Mark[] {
    const { answer, settings } = this.panel;
    return answer ? marksOf(answer, rolesOf(answer, settings)) : [];
  }

  get values(): readonly Scalar[] {
    const { answer } = this.panel;
    const column = this.column;
    if (!answer || !column) return [];
    const values = valuesOf(answer, this.marks, column.at);
    const type = answer.columns[column.at]?.type ?? "text";
    return column.isLine ? values.sort((a, b) => position(a, type) - position(b, type)) : values;
  }

  isSelectedKey(): ((key: string) => boolean) | null {
    const { answer } = this.panel;
    const [column, filter] = [this.column, this.filter];
    if (!answer || !column || !filter) return null;
    const keys = new Set(
      this.marks
        .filter((mark) => isSelected(answer, mark.row, column.at, filter.selection))
        .map((mark) => mark.key),
    );
    return (key) => keys.has(key);
  }

  /** A drag over a line takes a range; a click one value, and the same again lets go of it. */
  take({ marks, isDrag, isAdded }: Taken): void {
    const { answer } = this.panel;
    const column = this.column;
    if (!answer || !column) return;
    const values = valuesOf(answer, marks, column.at);
    const range = isDrag && column.isLine ? rangeOf(answer, values, column.at) : null;
    this.select(range ?? { values: isAdded ? this.toggled(values) : values });
  }

  /** Send a selection; one that is there already, and one of nothing, ends the filter. */
  select(selection: Selection): void {
    const [column, filter] = [this.column, this.filter];
    const isNothing = "values" in selection && selection.values.length === 0;
    if (filter && (isNothing || sameSelection(filter.selection, selection)))
      this.desk.send({ type: "unfilter", filter: filter.id });
    else if (column && !isNothing)
      this.desk.send({ type: "filter", panel: this.panel.settings.id, column: column.name, ...selection });
  }

  private toggled(values: readonly Scalar[]): Scalar[] {
    const selection = this.filter?.selection;
    const before = selection && "values" in selection ? selection.values : [];
    const kept = before.filter((value) => !values.includes(value));
    return [...kept, ...values.filter((value) => !before.includes(value))];
  }
}
