/** A button that opens a short list of acts. Escape and a click elsewhere close it. */

import { element } from "../dom";

export class Menu {
  readonly root: HTMLDetailsElement;
  private readonly summary: HTMLElement;

  constructor(label: string, description: string, items: readonly HTMLElement[]) {
    this.summary = element("summary", { class: "button", "aria-label": description }, label);
    const list = element("div", { class: "menu-items" }, ...items);
    this.root = element("details", { class: "menu" }, this.summary, list);
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.addEventListener("focusout", (event) => this.left(event));
    list.addEventListener("click", (event) => {
      if (!(event.target as Element).closest("label")) this.close(); // a choice is made in steps
    });
    document.addEventListener("pointerdown", (event) => {
      if (!this.root.contains(event.target as Node)) this.root.open = false;
    });
  }

  private key(event: KeyboardEvent): void {
    if (event.key !== "Escape" || !this.root.open) return;
    event.stopPropagation();
    this.close();
  }

  private left(event: FocusEvent): void {
    if (event.relatedTarget && !this.root.contains(event.relatedTarget as Node)) this.root.open = false;
  }

  private close(): void {
    this.root.open = false;
    this.summary.focus();
  }
}
