/** Cores of a make-believe cluster of 16, moving between queries and training runs. */

const JOBS = [
  { id: "q1", name: "Revenue by ship mode and return flag", kind: "query", panel: "modes", from: 0, to: 90 },
  { id: "q2", name: "Monthly revenue", kind: "query", panel: "monthly", from: 0, to: 90 },
  { id: "q6", name: "Forecast revenue change (Q6)", kind: "query", panel: "forecast", from: 0, to: 33 },
  { id: "q5", name: "Revenue by nation (Q5)", kind: "query", panel: "nations", from: 4, to: 90 },
  { id: "churn", name: "train: churn", kind: "training", panel: null, from: 0, to: 200 },
  { id: "ranker", name: "train: ranker", kind: "training", panel: null, from: 8, to: 200 },
];
const CAPACITY = 16;

export function cluster(at, seconds) {
  const present = JOBS.filter((job) => job.from <= seconds && seconds < job.to);
  const wants = present.map(
    (job, place) => 2 + Math.sin(seconds / 11 + 2 * place) + (job.kind === "training" ? 1 : 0),
  );
  const sum = wants.reduce((total, want) => total + want, 0);
  const jobs = present.map((job, place) => {
    const share = (CAPACITY * (wants[place] ?? 0)) / sum;
    return { ...wire(job, seconds), share, used: share * 0.97 };
  });
  return { at, capacity: CAPACITY, jobs };
}

function wire({ id, name, kind, panel, from, to }, seconds) {
  const isTraining = kind === "training";
  const done = isTraining ? Math.floor(seconds - from) : Math.min(1, (seconds - from) / (to - from));
  const quality = (work) => (isTraining ? 0.3 + 2 / (1 + work / 6) : 0.02 / Math.sqrt(work + 0.001));
  const step = isTraining ? 1 : 0.01;
  const history = Array.from({ length: 50 }, (_, at) => (at + 1) * step)
    .filter((work) => work <= done)
    .map((work) => [work, quality(work) * (1 + 0.05 * Math.sin(40 * work))]);
  const ahead = Array.from({ length: 20 }, (_, at) => done + (at * ((isTraining ? 60 : 1) - done)) / 19);
  const predicted = ahead
    .filter((work) => work >= done && work > 0)
    .map((work) => [work, quality(work) * 0.97]);
  return {
    id,
    name,
    kind,
    panel,
    weight: 1,
    state: "running",
    quality: history.at(-1)?.[1] ?? null,
    work_done: done,
    history,
    predicted,
  };
}
