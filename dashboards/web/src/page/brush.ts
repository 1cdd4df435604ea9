/** Selecting in a drawing: a click takes what stands there, a drag across takes all between. */

import { element, setHidden } from "../dom";
import type { Mark } from "../answer/marks";
import type { Chart } from "../charts/chart";

const STILL = 5; // pixels: a shorter drag is a click

/** What was taken. isAdded: beside what is selected already, as with Ctrl held. */
export interface Taken {
  readonly marks: readonly Mark[];
  readonly isDrag: boolean;
  readonly isAdded: boolean;
}

export class Brush {
  private readonly box = element("div", { class: "brush", hidden: true, "aria-hidden": "true" });
  private from: { x: number; y: number; pointer: number } | null = null;

  constructor(
    private readonly chart: Chart,
    private readonly take: (taken: Taken) => void,
  ) {
    const { stage } = chart;
    stage.append(this.box);
    stage.addEventListener("pointerdown", (event) => this.begin(event));
    stage.addEventListener("pointermove", (event) => this.drag(event));
    stage.addEventListener("pointerup", (event) => this.end(event));
    stage.addEventListener("pointercancel", () => this.drop());
  }

  private begin(event: PointerEvent): void {
    if (event.button !== 0 || !event.isPrimary) return;
    this.from = { ...this.placeOf(event), pointer: event.pointerId };
  }

  private drag(event: PointerEvent): void {
    if (event.pointerId !== this.from?.pointer) return;
    const { x } = this.placeOf(event);
    const isDrag = Math.abs(x - this.from.x) >= STILL;
    if (isDrag) this.chart.stage.setPointerCapture(event.pointerId);
    setHidden(this.box, !isDrag);
    this.box.style.left = `${Math.min(x, this.from.x)}px`;
    this.box.style.width = `${Math.abs(x - this.from.x)}px`;
  }

  private end(event: PointerEvent): void {
    if (event.pointerId !== this.from?.pointer) return;
    const { x, y } = this.placeOf(event);
    const isDrag = Math.abs(x - this.from.x) >= STILL;
    const [low, high] = isDrag ? [Math.min(x, this.from.x), Math.max(x, this.from.x)] : [x, x];
    this.drop();
    const marks = this.chart.marksIn?.(low, high, y) ?? [];
    const isAdded = event.ctrlKey || event.metaKey || event.shiftKey;
    if (marks.length > 0) this.take({ marks, isDrag, isAdded });
  }

  private drop(): void {
    this.from = null;
    setHidden(this.box, true);
  }

  private placeOf(event: PointerEvent): { x: number; y: number } {
    const box = this.chart.stage.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }
}

/** Fade the marks of a drawing that are not selected, and mark the rows that are. isSelected: null where nothing is. */
export function fadeOthers(root: HTMLElement, isSelected: ((key: string) => boolean) | null): void {
  for (const each of root.querySelectorAll<Element>("svg .body > *, svg .over > *, tr[data-key]")) {
    const key = keyOf(each);
    if (key === null) continue;
    const isRow = each instanceof HTMLElement; // faded text could not be read
    const isIn = isSelected?.(key) ?? null;
    each.classList.toggle(isRow ? "selected" : "unselected", isIn === isRow);
  }
}

/** Return the key of the mark that an element draws: d3 keeps its datum there. */
function keyOf(drawn: Element): string | null {
  const datum = (drawn as { __data__?: { mark?: Mark; bar?: { mark: Mark }; point?: { mark: Mark } } })
    .__data__;
  const mark = datum?.mark ?? datum?.bar?.mark ?? datum?.point?.mark;
  return mark?.key ?? drawn.getAttribute("data-key");
}
