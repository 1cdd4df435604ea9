/** Who had how many cores, over the last minute. */

import { type Band, type CoresPicture, WINDOW_MS } from "../charts/cores";
import { SERIES_COLOURS } from "../charts/frame";
import type { ClusterUpdate, Job, WorkQuality } from "../protocol";

const GREYS = 3;

interface Known {
  readonly name: string;
  readonly isTraining: boolean;
  readonly colour: string;
  /** The first prediction that was made. */
  foretold: readonly WorkQuality[];
}

interface Sample {
  readonly at: number;
  readonly cores: ReadonlyMap<string, number>;
}

export class CoresHistory {
  latest: ClusterUpdate | null = null;
  private samples: Sample[] = [];
  private readonly known = new Map<string, Known>();
  private count = { query: 0, training: 0 };

  add(update: ClusterUpdate): void {
    this.latest = update;
    for (const job of update.jobs) this.see(job);
    const last = this.samples.at(-1);
    if (last && update.at <= last.at) return;
    this.samples.push({ at: update.at, cores: new Map(update.jobs.map((job) => [job.id, job.share])) });
    // One sample before the window's edge stays, so that the areas reach the edge.
    while ((this.samples[1]?.at ?? Infinity) < update.at - WINDOW_MS) this.samples.shift();
    this.forget();
  }

  colourOf(job: string): string {
    return this.known.get(job)?.colour ?? "s0";
  }

  foretold(job: string): readonly WorkQuality[] {
    return this.known.get(job)?.foretold ?? [];
  }

  /** Return the last minute; queries lie below, training runs above, each in the order they came. */
  picture(): CoresPicture {
    const times = this.samples.map((sample) => sample.at);
    const bands = [...this.known].map(([id, known]): Band => ({
      id,
      name: known.name,
      isTraining: known.isTraining,
      colour: known.colour,
      cores: this.samples.map((sample) => sample.cores.get(id) ?? 0),
    }));
    const ordered = [...bands.filter((band) => !band.isTraining), ...bands.filter((band) => band.isTraining)];
    return { times, bands: ordered, capacity: this.latest?.capacity ?? 0 };
  }

  private see(job: Job): void {
    const known = this.known.get(job.id);
    if (known) {
      if (known.foretold.length < 2) known.foretold = job.predicted;
      return;
    }
    const isTraining = job.kind === "training";
    const number = isTraining ? this.count.training++ : this.count.query++;
    const colour = isTraining ? `g${number % GREYS}` : `s${number % SERIES_COLOURS}`;
    this.known.set(job.id, { name: job.name, isTraining, colour, foretold: job.predicted });
  }

  /** Drop jobs that no sample of the window holds. */
  private forget(): void {
    const present = new Set(this.samples.flatMap((sample) => [...sample.cores.keys()]));
    for (const id of this.known.keys()) if (!present.has(id)) this.known.delete(id);
  }
}
