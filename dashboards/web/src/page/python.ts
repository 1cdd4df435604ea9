/** A panel as a Python program that gives the same answer. */

import type { PanelSettings } from "../protocol";

/** Return a program to paste; what the dashboard reads is not known to the page, so its folder is a guess to edit. */
export function pythonOf(settings: Pick<PanelSettings, "sql" | "target" | "priority">): string {
  const options = [
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

/** Return the text as a Python literal that reads well, whatever is in it. */
function quoted(sql: string): string {
  const escaped = sql
    .replace(/\\/g, "\\\\")
    .replace(/"""/g, '\\"\\"\\"')
    .replace(/"$/, '\\"')
    .replace(/\r/g, "\\r");
  return `"""${escaped}"""`;
}
