/** The states of a panel in words, and what can be done in each. */

import type { Act, PanelState, PanelUpdate } from "../protocol";
import { showAbout, showChosen, showCores, showCount, showPercent, showSeconds } from "../text/plain";

const MOST_REMARKS = 3;
const NOT_KEPT = "its state is not kept: after a stop, or a restart of the server, it begins anew";

/** How a state looks; its words always say the same. */
export type Tone = "quiet" | "active" | "good" | "held" | "bad";

const TONES: Readonly<Record<PanelState, Tone>> = {
  waiting: "quiet",
  refining: "active",
  target_met: "good",
  paused: "held",
  stopped: "held",
  exact: "good",
  failed: "bad",
  empty: "good",
};

export function toneOf(state: PanelState): Tone {
  return TONES[state];
}

/** Return the state as it stands in the panel's corner, with its quality where there is one. */
export function stateText(update: PanelUpdate): string {
  const error = update.error === null || update.error <= 0 ? null : `±${showPercent(update.error)}`;
  switch (update.state) {
    case "waiting":
      return "waiting";
    case "refining":
      return update.mode === "exact" ? "running · exact only" : `refining · ${error ?? "± not known yet"}`;
    case "target_met":
      return `target reached${error ? ` · ${error}` : ""}`;
    case "paused":
      return error ? `paused at ${error}` : "paused";
    case "stopped":
      return error ? `stopped at ${error}` : "stopped";
    case "exact":
      return "exact";
    case "failed":
      return "failed";
    case "empty":
      return "exact · no rows";
  }
}

/** Return a change of state for a screen reader. */
export function spokenState(title: string, update: PanelUpdate): string {
  const reason = update.state === "failed" ? update.failure?.message : update.reason;
  return `${title}: ${stateText(update).replace("±", "plus or minus ")}${reason ? `. ${reason}` : ""}`;
}

/** Return what to show where there is no chart yet, or no row to draw. isAnswered: without a row, so far. */
export function placeholderText(update: PanelUpdate | null, isAnswered = false): string {
  if (update === null) return "Waiting for the server.";
  if (update.state === "empty") return "The query finished and no row matches.";
  if (isAnswered) return "No row matches of what was read so far.";
  if (update.state === "paused") return "Paused before the first estimate.";
  if (update.state === "stopped") return "Stopped before the first estimate.";
  if (update.state !== "waiting" && update.mode === "exact")
    return "No estimates: the answer comes when all rows are read.";
  if (update.state !== "waiting") return "The first estimate is on its way.";
  return `No rows read yet${update.reason ? `: ${update.reason}` : ""}.`;
}

/** Return the facts below the chart. What stands between ** is strong. */
export function factTexts(update: PanelUpdate): string[] {
  const facts: string[] = [];
  if (update.rows_total !== null) {
    facts.push(`**${showCount(update.rows_read ?? 0)}** of ${showCount(update.rows_total)} rows`);
  } else if (update.fraction > 0) {
    facts.push(`**${showPercent(update.fraction)}** of the rows`);
  }
  if (update.spent) facts.push(`**${update.spent}**`);
  const isRunning = update.state === "refining" || update.state === "target_met";
  if (update.elapsed_seconds > 0) facts.push(showSeconds(update.elapsed_seconds));
  if (update.state === "refining" && update.target !== null && update.seconds_to_target !== null) {
    facts.push(`${showChosen(update.target)} in about **${showAbout(update.seconds_to_target)}**`);
  }
  if (isRunning) facts.push(`**${showCores(update.cores)}** cores`);
  if (update.unseen_groups)
    facts.push(`${update.unseen_groups} ${update.unseen_groups === 1 ? "group" : "groups"} not seen yet`);
  else if (update.unseen_groups === null && isRunning) facts.push("there may be groups not seen yet");
  if (!update.kept && (isRunning || isHeld(update.state))) facts.push(NOT_KEPT);
  if (update.viewers > 1) facts.push(`${update.viewers}\u00a0viewers`);
  return facts;
}

/** Return what the server remarks about the run: why it stands as it does, and warnings. */
export function remarkTexts(update: PanelUpdate): string[] {
  const isSaidAbove = update.state === "waiting" || update.state === "empty" || update.state === "failed";
  const isExact = update.state === "exact" || update.state === "empty"; // why there was no estimate is moot
  const warnings = update.warnings.filter((text) => !(isExact && text.startsWith("run as a whole: ")));
  const remarks = [isSaidAbove ? null : update.reason, ...warnings].filter((text): text is string =>
    Boolean(text),
  );
  const more = remarks.length - MOST_REMARKS;
  return more > 0 ? [...remarks.slice(0, MOST_REMARKS), `and ${more} more`] : remarks;
}

/** Return whether the page's filters reach the panel, "" where there are none. */
export function filterText(update: PanelUpdate): string {
  const isFiltered = Boolean(update.filters?.length);
  if (update.unfiltered) return `${isFiltered ? "partly" : "not"} filtered: ${update.unfiltered}`;
  return isFiltered ? "filtered" : "";
}

export function can(act: Act, state: PanelState): boolean {
  switch (act) {
    case "stop":
      return state === "refining" || state === "target_met" || state === "paused";
    case "pause":
      return state === "refining" || state === "target_met";
    case "resume":
      return state === "paused" || state === "stopped";
    case "restart":
      return state !== "waiting";
  }
}

export function isHeld(state: PanelState): boolean {
  return state === "paused" || state === "stopped";
}
