/** Selecting from a list: for a keyboard, for small screens, and for those who do not see the drawing. */

import { selectionText } from "../answer/selection";
import { element, labelledSelect, setOptions } from "../dom";
import type { Scalar } from "../protocol";
import { showValue, visible } from "../text/plain";
import { openDialog } from "./dialogs";
import type { PanelModel } from "./model";
import type { Selecting } from "./selecting";

const MOST_BOXES = 200;

/** Ask which values the page is to be filtered by, and send them. */
export function askFilter(panel: PanelModel, selecting: Selecting): void {
  const column = selecting.column;
  if (!column) return;
  const name = visible(column.name);
  const ask = column.isLine ? askRange : askValues;
  const [part, done] = ask(panel, selecting, column.name);
  const hint = element("p", { class: "hint" }, "Other panels that read this column are asked again.");
  const dialog = openDialog(`Filter the page by ${name}`, [hint, part], "Filter", () => {
    done();
    dialog.close();
  });
  part.querySelector<HTMLElement>("input, select")?.focus();
}

type Asked = [part: HTMLElement, done: () => void];

function askValues(panel: PanelModel, selecting: Selecting, column: string): Asked {
  const chosen = selecting.filter?.selection;
  const isChosen = (value: Scalar): boolean =>
    chosen !== undefined && "values" in chosen && chosen.values.includes(value);
  const boxes = selecting.values.slice(0, MOST_BOXES).map((value) => {
    const box = element("input", { type: "checkbox" });
    box.checked = isChosen(value);
    return { value, box, label: element("label", {}, box, textOf(panel, column, value)) };
  });
  const part = element("fieldset", { class: "choices" });
  part.append(element("legend", {}, visible(column)), ...boxes.map((each) => each.label));
  return [
    part,
    () => selecting.select({ values: boxes.filter((each) => each.box.checked).map((each) => each.value) }),
  ];
}

function askRange(panel: PanelModel, selecting: Selecting, column: string): Asked {
  const values = selecting.values.filter((value) => value !== null);
  const options = values.map((value, at) => ({ value: String(at), text: textOf(panel, column, value) }));
  const [from, fromSelect] = labelledSelect("from", () => undefined);
  const [to, toSelect] = labelledSelect("to", () => undefined);
  setOptions(fromSelect, options, "0");
  setOptions(toSelect, options, String(values.length - 1));
  const part = element("div", { class: "settings" }, from, to);
  const end = (select: HTMLSelectElement): Scalar => values[Number(select.value)] ?? null;
  return [
    part,
    () => {
      const ends = [Number(fromSelect.value), Number(toSelect.value)];
      const isTurned = (ends[0] ?? 0) > (ends[1] ?? 0);
      selecting.select({
        range: isTurned ? [end(toSelect), end(fromSelect)] : [end(fromSelect), end(toSelect)],
      });
    },
  ];
}

function textOf(panel: PanelModel, column: string, value: Scalar): string {
  return value === null ? showValue(null) : selectionText({ values: [value] }, panel.answer, column);
}
