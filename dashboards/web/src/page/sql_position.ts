/** Where in a query something went wrong. */

const MOST_BEFORE = 60; // characters of a long line that are shown on either side
const PLAIN = /^[A-Za-z_][\w$]*(?:\.[A-Za-z_][\w$]*)*$/; // a name, or one behind that of its table
// DuckDB's words that are no names without quotes: duckdb_keywords().
const RESERVED = new Set(
  (
    "all analyse analyze and any array as asc asymmetric both case cast check collate column " +
    "constraint create default deferrable desc describe distinct do else end except false fetch " +
    "for foreign from group having in initially intersect into lambda lateral leading limit not " +
    "null offset on only or order pivot pivot_longer pivot_wider placing primary qualify " +
    "references returning select show some summarize symmetric table then to trailing true " +
    "union unique unpivot using variadic when where window with"
  ).split(" "),
);

export interface Pointer {
  readonly line: number;
  readonly text: string;
  /** As many spaces as there are characters before the place, then a caret. */
  readonly caret: string;
}

/** Return the line of the query that holds a position, and a caret to stand below it. */
export function pointAt(sql: string, position: number): Pointer {
  const at = Math.max(0, Math.min(position, sql.length));
  const before = sql.slice(0, at).split("\n");
  const column = before.at(-1)?.length ?? 0;
  const whole = sql.split("\n")[before.length - 1] ?? "";
  const from = Math.max(0, column - MOST_BEFORE);
  const text = whole.slice(from, column + MOST_BEFORE).replace(/\t/g, " ");
  const lead = from > 0 ? "…" : "";
  return { line: before.length, text: lead + text, caret: `${" ".repeat(lead.length + column - from)}^` };
}

/** Return the query with the word at a position replaced. A name that needs quotes, or had them, has them. */
export function replaceWord(sql: string, position: number, name: string): string {
  const inQuotes = `"${name.replace(/"/g, '""')}"`;
  const quoted = /^"(?:[^"]|"")*"/.exec(sql.slice(position))?.[0];
  if (quoted !== undefined) return sql.slice(0, position) + inQuotes + sql.slice(position + quoted.length);
  const word = PLAIN.test(name) && !RESERVED.has(name.toLowerCase()) ? name : inQuotes;
  const before = /[\w$]*$/.exec(sql.slice(0, position))?.[0].length ?? 0;
  const after = /^[\w$]*/.exec(sql.slice(position))?.[0].length ?? 0;
  return sql.slice(0, position - before) + word + sql.slice(position + after);
}
