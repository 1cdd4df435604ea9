/** The page of all jobs: how each came along, and how it was predicted to. */

import { CurvesChart, qualityText } from "../charts/curves";
import { element, setAttribute, setHidden, setRichText, setText } from "../dom";
import type { Job } from "../protocol";
import { showAbout, showCores, showPercent, visible } from "../text/plain";
import type { PageModel } from "./model";

export class JobsView {
  readonly root = element("div", { class: "jobs" });
  private readonly idle = element("p", { class: "placeholder" }, "No job is running.");
  private readonly legend = curvesLegend();
  private readonly cards = new Map<string, JobCard>();

  constructor(private readonly redraw: () => void) {
    this.root.append(this.legend, this.idle);
  }

  draw(model: PageModel): void {
    const jobs = model.cores.latest?.jobs ?? [];
    setHidden(this.idle, jobs.length > 0);
    setHidden(this.legend, jobs.length === 0);
    const ids = new Set(jobs.map((job) => job.id));
    for (const [id, card] of this.cards) {
      if (ids.has(id)) continue;
      card.root.remove();
      this.cards.delete(id);
    }
    for (const job of jobs) this.cardOf(job).draw(job, model);
  }

  private cardOf(job: Job): JobCard {
    const card = this.cards.get(job.id) ?? new JobCard(`job-${this.cards.size}-${job.id}`, this.redraw);
    if (!this.cards.has(job.id)) {
      this.cards.set(job.id, card);
      this.root.append(card.root);
    }
    return card;
  }
}

class JobCard {
  readonly root: HTMLElement;
  private readonly title: HTMLElement;
  private readonly pill = element("span", { class: "pill" });
  private readonly facts = element("p", { class: "facts" });
  private readonly none = element("p", { class: "placeholder" });
  private readonly chart = new CurvesChart();
  private size = { width: 0, height: 0 };

  constructor(id: string, redraw: () => void) {
    this.title = element("h2", { id });
    const header = element("header", {}, this.title, this.pill);
    this.root = element("article", { class: "panel job", "aria-labelledby": id }, header, this.facts);
    this.root.append(element("div", { class: "stage" }, this.chart.root, this.none));
    new ResizeObserver((entries) => {
      const box = entries.at(-1)?.contentRect;
      if (box) this.size = { width: Math.floor(box.width), height: Math.floor(box.height) };
      redraw();
    }).observe(this.chart.stage);
  }

  draw(job: Job, model: PageModel): void {
    const isTraining = job.kind === "training";
    setText(this.title, visible(job.name));
    setText(this.pill, [job.kind, job.state].filter(Boolean).join(" · "));
    setAttribute(this.root, "data-tone", job.state === "paused" ? "held" : "active");
    setRichText(this.facts, factsOf(job, isTraining).join("\u2003"));
    const hasCurve = job.history.length > 0 || job.predicted.length > 0;
    setHidden(this.none, hasCurve);
    setText(this.none, isTraining ? "No loss yet." : NO_ESTIMATES);
    setHidden(this.chart.root, !hasCurve);
    if (!hasCurve || this.size.width === 0) return;
    const { history, predicted } = job;
    const picture = {
      name: visible(job.name),
      isShare: !isTraining,
      history,
      predicted,
      foretold: model.cores.foretold(job.id),
    };
    this.chart.draw(picture, this.size);
  }
}

const NO_ESTIMATES = "No intermediate results: this query returns one exact result.";

function factsOf(job: Job, isTraining: boolean): string[] {
  const work =
    job.work_done === null
      ? []
      : [isTraining ? `${job.work_done} steps` : `${showPercent(job.work_done)} of the rows`];
  return [
    `**${showCores(job.share)}** cores planned`,
    `**${showCores(job.used)}** used`,
    ...(job.quality === null ? [] : [`**${qualityText(job.quality, !isTraining)}**`]),
    ...work,
    ...gangFacts(job),
    ...partFacts(job),
    ...goalFacts(job),
    ...(job.weight === 1 ? [] : [`priority × ${job.weight}`]),
  ];
}

/** What is said of a model whose ranks live in workers. */
function gangFacts(job: Job): string[] {
  if (typeof job.slots !== "number") return [];
  const rows = typeof job.batch_rows === "number" ? [`**${job.batch_rows}** rows a step`] : [];
  const rescales = job.rescales ? [`rescaled ${job.rescales} ×`] : [];
  return [`**${job.slots}** ${job.slots === 1 ? "slot" : "slots"}`, ...rows, ...rescales];
}

/** What is said of a model that is cut into parts. */
export function partFacts(job: Job): string[] {
  const workers = job.workers ?? [];
  return workers.length === 0 ? [] : [`parts on ${workers.map(visible).join(", ")}`];
}

/** What is said of a run that is wanted by a time, or with an accuracy. */
export function goalFacts(job: Job): string[] {
  const due =
    typeof job.due !== "number"
      ? []
      : [job.due < 0 ? `**${showAbout(-job.due)}** late` : `due in **${showAbout(job.due)}**`];
  const urgency = (job.urgency ?? 1) === 1 ? [] : [`urgency ${job.urgency}`];
  const required =
    typeof job.accuracy_required === "number" ? ` of ${showPercent(job.accuracy_required)}` : "";
  const accuracy =
    typeof job.accuracy === "number" ? [`accuracy **${showPercent(job.accuracy)}**${required}`] : [];
  return [...due, ...urgency, ...accuracy];
}

function curvesLegend(): HTMLElement {
  const items = [
    ["actual", "actual"],
    ["predicted", "predicted now"],
    ["foretold", "predicted at first"],
  ] as const;
  return element(
    "ul",
    { class: "legend" },
    ...items.map(([name, text]) => element("li", {}, element("i", { class: `stroke-sample ${name}` }), text)),
  );
}
