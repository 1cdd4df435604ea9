/** How much was read, and where the target should be met: two things on one line. */

import { element, setAttribute, setHidden } from "../dom";
import type { PanelUpdate } from "../protocol";
import { showChosen, showPercent } from "../text/plain";

export class Progress {
  readonly root = element("div", {
    class: "progress",
    role: "progressbar",
    "aria-label": "rows read",
    "aria-valuemin": 0,
    "aria-valuemax": 100,
  });
  private readonly fill = element("div", { class: "fill" });
  private readonly notch = element("div", { class: "notch" });

  constructor() {
    this.root.append(this.fill, this.notch);
  }

  draw(update: PanelUpdate | null): void {
    const fraction = update?.fraction ?? 0;
    setAttribute(this.root, "aria-valuenow", Math.floor(100 * fraction));
    setAttribute(this.root, "aria-valuetext", `${showPercent(fraction)} of the rows read`);
    this.fill.style.transform = `scaleX(${fraction.toFixed(4)})`;
    const at = update?.state === "refining" ? update.target_fraction : null;
    setHidden(this.notch, at === null || update?.target === null);
    if (at === null || !update || update.target === null) return;
    this.notch.style.left = `${(100 * Math.min(1, at)).toFixed(2)}%`;
    setAttribute(
      this.notch,
      "title",
      `${showChosen(update.target)} should be met at ${showPercent(at)} of the rows`,
    );
  }
}
