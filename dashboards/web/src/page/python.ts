/** A panel as a Python program that gives the same answer. */

import type { PanelSettings } from "../protocol";

/** Return a program to paste; what the dashboard reads is not known to the page, so its folder is a guess to edit. */
export function pythonOf(settings: Pick<PanelSettings, "sql" | "target" | "priority" | "params">): string {
  const options = [
    ...(settings.params ? [`params=${literal(settings.params)}`] : []),
    ...(settings.target === null ? [] : [`target=${settings.target}`]),
    ...(settings.priority === 1 ? [] : [`priority=${settings.priority}`]),
  ];
  const call = [quoted(settings.sql.trim()), ...options].join(", ");
  return [
    "import relaqs",
    "",
    'with relaqs.connect("warehouse") as db:  # the folder the dashboard was given as --data',
    `    answer = db.online_sql(${call}).result()`,
    "print(answer)",
    "",
  ].join("\n");
}

/** Return a value of JSON as Python writes it. */
function literal(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`);
  return `{${entries.join(", ")}}`;
}

/** Return the text as a Python literal that reads well, whatever is in it. */
function quoted(sql: string): string {
  const escaped = sql
    .replace(/\\/g, "\\\\")
    .replace(/"""/g, '\\"\\"\\"')
    .replace(/"$/, '\\"')
    .replace(/\r/g, "\\r");
  return `"""${escaped}"""`;
}
