/** Dialogs, and two questions that a page asks in them: what to add, and who you are. */

import { button, element } from "../dom";
import type { NewPanel, Page } from "../protocol";
import { SqlField } from "../sql_field";
import { SettingsForm } from "./settings_form";

const LONGEST_NAME = 40;

/** Ask for a new panel, and hand it over. */
export function askPanel(page: Page | null, add: (panel: NewPanel) => void): void {
  const tables = page?.tables ?? [];
  const first = tables[0]?.name ?? "table";
  const form = new SettingsForm();
  form.fill(
    { title: "New panel", chart: "", size: "small", x: null, y: null, series: null },
    [],
    page?.charts ?? [],
  );
  const done = (): void => {
    const { chart, ...looks } = form.looks;
    add({ ...looks, ...(chart ? { chart } : {}), sql: field.sql, target: null, priority: 1 });
    dialog.close();
  };
  const field = new SqlField({
    label: "SQL of the new panel",
    sql: `SELECT count(*) AS rows\nFROM ${first}`,
    tables,
    isEditable: true,
    run: done,
  });
  const dialog = openDialog("Add a panel", [form.root, field.root], "Add", done);
  form.focus();
}

export function askName(name: string, take: (name: string) => void): void {
  const input = element("input", { type: "text", maxlength: LONGEST_NAME, autocomplete: "nickname" });
  input.value = name;
  const label = element(
    "label",
    { class: "field" },
    element("span", {}, "Others see it beside what you change"),
    input,
  );
  const done = (): void => {
    take(input.value.trim());
    dialog.close();
  };
  const dialog = openDialog("Your name", [label], "Use this name", done);
  input.focus();
}

export function askTitle(take: (title: string) => void): void {
  const input = element("input", { type: "text", maxlength: 200, autocomplete: "off" });
  const label = element("label", { class: "field" }, element("span", {}, "title"), input);
  const done = (): void => {
    if (!input.value.trim()) return;
    take(input.value.trim());
    dialog.close();
  };
  const dialog = openDialog("New page", [label], "Make it", done);
  input.focus();
}

export function openDialog(
  title: string,
  parts: readonly HTMLElement[],
  act: string,
  done: () => void,
): HTMLDialogElement {
  const heading = element("h2", { id: "dialog-title" }, title);
  const dialog = element("dialog", { "aria-labelledby": "dialog-title" });
  const accept = element("button", { type: "submit", class: "primary" }, act);
  const acts = element(
    "div",
    { class: "controls" },
    accept,
    button("Cancel", () => dialog.close()),
  );
  const form = element("form", { method: "dialog" }, heading, ...parts, acts);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    done();
  });
  dialog.append(form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
