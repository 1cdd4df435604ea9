/** What stands under the pointer, in words. Keyboard users have the same numbers in the table view. */

import { element, setHidden } from "../dom";
import type { Frame } from "./frame";

export interface TipLine {
  readonly label: string;
  readonly value: string;
  readonly colour?: string;
}

/** x: in pixels of the drawing; the tip stands beside it. */
export interface Tip {
  readonly x: number;
  readonly title: string;
  readonly lines: readonly TipLine[];
}

const MOST_LINES = 9;
const GAP = 12; // pixels

export class Tooltip {
  private readonly box = element("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  private pointer: { x: number; y: number } | null = null;
  private shown = "";

  /** tipAt: what to say at a place of the drawing, or null. */
  constructor(
    private readonly frame: Frame,
    private readonly tipAt: (x: number, y: number) => Tip | null,
  ) {
    frame.root.append(this.box);
    frame.root.addEventListener("pointermove", (event) => this.move(event));
    frame.root.addEventListener("pointerleave", () => this.leave());
  }

  /** Say it anew after the drawing has changed under a resting pointer. */
  refresh(): void {
    if (this.pointer) this.show(this.tipAt(this.pointer.x, this.pointer.y));
  }

  private move(event: PointerEvent): void {
    const box = this.frame.svg.getBoundingClientRect();
    this.pointer = { x: event.clientX - box.left, y: event.clientY - box.top };
    this.refresh();
  }

  private leave(): void {
    this.pointer = null;
    this.show(null);
  }

  private show(tip: Tip | null): void {
    setHidden(this.box, tip === null);
    if (tip === null) return;
    const text = JSON.stringify(tip);
    if (text === this.shown) return;
    this.shown = text;
    this.box.replaceChildren(element("strong", {}, tip.title), ...tip.lines.slice(0, MOST_LINES).map(lineOf));
    const width = this.frame.svg.width.baseVal.value;
    const isRight = tip.x > width / 2;
    this.box.style.left = isRight ? "auto" : `${tip.x + GAP}px`;
    this.box.style.right = isRight ? `${width - tip.x + GAP}px` : "auto";
  }
}

function lineOf(line: TipLine): HTMLElement {
  const swatch = line.colour ? element("i", { class: `swatch ${line.colour}` }) : null;
  return element("div", {}, swatch, element("span", {}, line.label), element("b", {}, line.value));
}
