/** Says changes to those who do not see them, politely and not all at once; and shows short words to all. */

import { element, setHidden, setText } from "../dom";

const SHOWN_MS = 6_000;
const QUIET_MS = 1_500;

export class Announcer {
  readonly root = element("div", { class: "announcer" });
  private readonly live = element("div", { class: "for-ears", "aria-live": "polite" });
  private readonly toast = element("p", { class: "toast", role: "status", hidden: true });
  private waiting: string[] = [];
  private isQuiet = false;
  private hideTimer = 0;

  constructor() {
    this.root.append(this.live, this.toast);
  }

  /** Speak changes of state; those that come close together are said together. */
  speak(texts: readonly string[]): void {
    this.waiting.push(...texts);
    if (this.isQuiet || this.waiting.length === 0) return;
    this.isQuiet = true;
    setTimeout(() => this.flush(), QUIET_MS);
  }

  /** Show for a while, and speak. */
  show(text: string): void {
    setText(this.toast, text);
    setHidden(this.toast, false);
    clearTimeout(this.hideTimer);
    this.hideTimer = window.setTimeout(() => setHidden(this.toast, true), SHOWN_MS);
  }

  private flush(): void {
    this.isQuiet = false;
    setText(this.live, this.waiting.slice(-8).join(". "));
    this.waiting = [];
  }
}
