/** The way of one number, in a bounded number of points. */

import type { HistoryPoint } from "../charts/chart";

const MOST_POINTS = 240;

/** Return the history with a point more. When full, every second point goes: the whole way stays in sight. */
export function keepHistory(history: readonly HistoryPoint[], point: HistoryPoint): HistoryPoint[] {
  const earlier = history.filter((each) => each.elapsedSeconds < point.elapsedSeconds);
  const kept = earlier.length < MOST_POINTS ? earlier : earlier.filter((_, at) => at % 2 === 0);
  return [...kept, point];
}
