/** The cluster's card: who has the cores, and why they moved. */

import { CoresChart } from "../charts/cores";
import { button, element, setAttribute, setHidden, setText } from "../dom";
import type { LogLine } from "../protocol";
import { showClock, visible } from "../text/plain";
import type { PageModel } from "./model";
import { keep, recall } from "./storage";

const LOG_LINES = 5;

export class ClusterCard {
  readonly root: HTMLElement;
  private readonly pill = element("span", { class: "pill" });
  private readonly chart = new CoresChart();
  private readonly log = element("ol", { class: "log", "aria-label": "What happened to the cores" });
  private readonly inside: HTMLElement;
  private readonly fold: HTMLButtonElement;
  private size = { width: 0, height: 0 };

  /** isOpen: whether it is always open. Else the reader opens it, and their browser remembers that. */
  constructor(
    private readonly redraw: () => void,
    isOpen: boolean,
  ) {
    const title = element("h2", { id: "cluster" }, "Cores by job");
    this.inside = element("div", {}, element("div", { class: "stage" }, this.chart.root), this.log);
    this.fold = button("Show", () => this.open(Boolean(this.inside.hidden)), {
      "aria-label": "Show the cores by job",
    });
    setHidden(this.fold, isOpen);
    this.open(isOpen || recall("cores") === "open", false);
    const header = element("header", {}, title, this.pill, this.fold);
    this.root = element("section", {
      class: "panel cluster",
      "data-size": "full",
      "aria-labelledby": "cluster",
    });
    this.root.append(header, this.inside);
    new ResizeObserver((entries) => this.resized(entries)).observe(this.chart.stage);
  }

  private open(isOpen: boolean, byReader = true): void {
    setHidden(this.inside, !isOpen);
    setText(this.fold, isOpen ? "Hide" : "Show");
    setAttribute(this.fold, "aria-expanded", String(isOpen));
    setAttribute(this.fold, "aria-label", `${isOpen ? "Hide" : "Show"} the cores by job`);
    if (byReader) keep("cores", isOpen ? "open" : "folded");
  }

  draw(model: PageModel): void {
    const { latest } = model.cores;
    setHidden(this.root, latest === null && model.log.length === 0);
    setText(
      this.pill,
      latest ? `${Number(latest.capacity.toFixed(1))} ${latest.capacity === 1 ? "core" : "cores"}` : "",
    );
    if (latest && this.size.width > 0) this.chart.draw(model.cores.picture(), this.size);
  }

  drawLog(log: readonly LogLine[]): void {
    setHidden(this.log, log.length === 0);
    const newest = log.slice(-LOG_LINES).reverse();
    this.log.replaceChildren(
      ...newest.map((line) =>
        element("li", {}, element("time", {}, showClock(line.at)), " ", visible(line.text)),
      ),
    );
  }

  private resized(entries: readonly ResizeObserverEntry[]): void {
    const box = entries.at(-1)?.contentRect;
    if (!box) return;
    this.size = { width: Math.floor(box.width), height: Math.floor(box.height) };
    this.redraw();
  }
}
