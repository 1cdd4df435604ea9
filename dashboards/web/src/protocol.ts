/** What server and browser say to each other, as JSON text over one WebSocket a page. Types only. */

/** A JSON scalar. Dates and timestamps are ISO text; integers beyond 2^53 are text. */
export type Scalar = string | number | boolean | null;

/** A cell of an approximate column: the estimate, its interval, and whether somebody vouches for it. */
export type ApproximateCell = readonly [value: Scalar, low: Scalar, high: Scalar, certified: boolean];
export type WireCell = Scalar | ApproximateCell;

export type ColumnKind = "key" | "measure" | "estimate" | "bound" | "distinct" | "quantile" | "opaque";
export type ColumnType = "number" | "text" | "date" | "timestamp" | "bool";

export interface Column {
  readonly name: string;
  readonly kind: ColumnKind;
  readonly type: ColumnType;
}

export interface Answer {
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly WireCell[])[];
  /** The query has an ORDER BY. */
  readonly ranked: boolean;
  /** Rows of the answer that were left out of the message. */
  readonly truncated: number | null;
}

/** One of the kinds in `Page.charts`. */
export type ChartKind = string;
/** The kind of a panel that has a text in the place of its SQL, and runs nothing. */
export const TEXT: ChartKind = "text";
export type PanelSize = "small" | "wide" | "full";

/** What a page's file says of a panel. target: a relative half-width. x, y, series: names of columns. */
export interface PanelSettings {
  readonly id: string;
  readonly title: string;
  readonly sql: string;
  readonly chart: ChartKind;
  readonly size: PanelSize;
  readonly target: number | null;
  readonly priority: number;
  readonly x: string | null;
  readonly y: string | null;
  readonly series: string | null;
  /** Of the axis of values. Left out: linear. */
  readonly scale?: "linear" | "log";
  /** Values of the query's parameters: a list for `?`, an object for `$name`. Text is what the server refuses. */
  readonly params?: readonly unknown[] | Readonly<Record<string, unknown>> | string | null;
}

/** A chart that a panel may choose. name: what people call it. */
export interface ChartChoice {
  readonly kind: ChartKind;
  readonly name: string;
}

export interface Table {
  readonly name: string;
  readonly columns: readonly { readonly name: string; readonly type: string }[];
}

/** Which values of a column, or which part of its range, both ends included. */
export type Selection =
  { readonly values: readonly Scalar[] } | { readonly range: readonly [low: Scalar, high: Scalar] };

/** A filter of a page. panel, column: where it was selected; a period of the page has no panel, but a table. */
export interface Filter {
  readonly id: string;
  readonly panel: string;
  readonly column: string;
  readonly selection: Selection;
  readonly table?: string | null;
}

/** A column of dates or moments that panels read. first, last: days. has_hours: it has moments. */
export interface TimeColumn {
  readonly table: string;
  readonly column: string;
  readonly first: string;
  readonly last: string;
  readonly has_hours: boolean;
}

export interface Page {
  readonly name: string;
  readonly title: string;
  readonly panels: readonly PanelSettings[];
  /** Whether this user may change it, and what it shows. */
  readonly editable: boolean;
  /** What the page reads, in words. */
  readonly data: string;
  readonly pages: readonly { readonly name: string; readonly title: string }[];
  readonly tables: readonly Table[];
  readonly charts: readonly ChartChoice[];
  readonly filters?: readonly Filter[];
  readonly times?: readonly TimeColumn[];
  /** By which its panels over time show it. */
  readonly units?: readonly string[];
}

export type PanelState =
  "waiting" | "refining" | "target_met" | "paused" | "stopped" | "exact" | "failed" | "empty";

export interface Failure {
  readonly message: string;
  /** Where in the SQL, in characters from its start. */
  readonly position: number | null;
  readonly candidates: readonly string[];
}

/** How a panel's run stands. error, target: relative half-widths. fraction, target_fraction: of the rows. */
export interface PanelUpdate {
  readonly state: PanelState;
  readonly reason: string | null;
  readonly run: number;
  readonly rows_read: number | null;
  readonly rows_total: number | null;
  readonly fraction: number;
  readonly elapsed_seconds: number;
  readonly cores: number;
  readonly error: number | null;
  readonly target: number | null;
  readonly priority: number;
  readonly target_fraction: number | null;
  readonly seconds_to_target: number | null;
  readonly unseen_groups: number | null;
  readonly warnings: readonly string[];
  readonly confidence: number;
  readonly interval: "pointwise" | "anytime";
  readonly confidence_for: "cell" | "table";
  readonly mode: "mergeable" | "refined" | "exact";
  /** Whether it goes on where it was, after a stop and after the server was started again. */
  readonly kept: boolean;
  readonly viewers: number;
  readonly changed_by: { readonly who: string; readonly what: string; readonly at: number } | null;
  readonly failure: Failure | null;
  /** Columns of the answer whose values can be selected, to filter other panels. */
  readonly brushes?: readonly string[];
  /** The ids of the filters that the answer is filtered by. */
  readonly filters?: readonly string[];
  /** Why a filter of the page does not reach this panel. */
  readonly unfiltered?: string | null;
  /** By columns of the answer that are periods: the beginnings of those that the table fills in part. */
  readonly partial?: Readonly<Record<string, readonly string[]>>;
  /** What costly functions were asked for the answer. */
  readonly spent?: string | null;
  /** Left out where it has not changed. */
  readonly answer?: Answer | null;
}

export type WorkQuality = readonly [work: number, quality: number];

export interface Job {
  readonly id: string;
  readonly name: string;
  readonly kind: string;
  /** Cores planned for it, and cores it used over the last second. */
  readonly share: number;
  readonly used: number;
  /** Relative error of a query, loss of a training run: less is better. */
  readonly quality: number | null;
  readonly work_done: number | null;
  readonly predicted: readonly WorkQuality[];
  readonly history: readonly WorkQuality[];
  readonly panel: string | null;
  readonly weight: number;
  readonly state: string;
  /** Of a model whose ranks live in workers; null for other jobs. */
  readonly slots?: number | null;
  readonly batch_rows?: number | null;
  readonly rescales?: number | null;
  /** The addresses of workers that have parts of its model. */
  readonly workers?: readonly string[];
  /** Seconds until its deadline; null without one. How much that counts, from 1 to 10. */
  readonly due?: number | null;
  readonly urgency?: number;
  /** Of a classifier in training: what it has, and what it must have. */
  readonly accuracy?: number | null;
  readonly accuracy_required?: number | null;
}

export interface ClusterUpdate {
  readonly at: number;
  readonly capacity: number;
  readonly jobs: readonly Job[];
}

export interface LogLine {
  readonly at: number;
  readonly text: string;
}

/** The only message a server sends. Everything but seq is left out where nothing is new. */
export interface Update {
  readonly type: "update";
  readonly seq: number;
  readonly page?: Page | null;
  readonly panels?: Readonly<Record<string, PanelUpdate>>;
  readonly cluster?: ClusterUpdate | null;
  readonly log?: readonly LogLine[];
  readonly viewers?: number;
  readonly notice?: string | null;
}

export type Act = "stop" | "pause" | "resume" | "restart";
/** What an edit may change; id, target and priority have messages of their own. */
export type PanelEdit = Omit<PanelSettings, "id" | "target" | "priority">;
/** Without a chart it gets the one that fits its answer. */
export type NewPanel = Omit<PanelSettings, "id" | "chart"> & Partial<Pick<PanelSettings, "chart">>;

export type ClientMessage =
  | { type: "ack"; seq: number }
  | { type: "act"; panel: string; act: Act }
  | { type: "set"; panel: string; target: number | null }
  | { type: "set"; panel: string; priority: number }
  | ({ type: "edit"; panel: string } & Partial<PanelEdit>)
  | ({ type: "filter"; panel: string; column: string } & Selection)
  | { type: "unfilter"; filter: string | null }
  | { type: "period"; table: string; column: string; range: readonly [first: string, last: string] | null }
  | { type: "grain"; unit: string }
  | { type: "move"; panel: string; before: string | null }
  | { type: "add"; panel: NewPanel }
  | { type: "remove"; panel: string }
  | { type: "save" }
  | { type: "discard" }
  | { type: "name"; name: string }
  | { type: "new"; title: string };
