/** A page as one file that needs no server: its pictures as they are, and the data behind them. */

import { cellOf } from "../answer/cells";
import { element } from "../dom";
import type { Answer, Column, WireCell } from "../protocol";
import { showValue, visible } from "../text/plain";
import type { PageModel, PanelModel } from "./model";
import { pictureOf } from "./panel_picture";
import { textOf } from "./filters";
import { factTexts, filterText, remarkTexts, stateText } from "./states";

const STYLE = `
body { margin: 24px; font: 14px system-ui, sans-serif; max-width: 1100px }
h2 { margin: 32px 0 4px; font-size: 16px }
p { margin: 4px 0 }
svg { max-width: 100%; height: auto }
table { border-collapse: collapse; margin: 8px 0 }
td, th { padding: 2px 10px; text-align: left; border-bottom: 1px solid #c9d0d8 }
pre { white-space: pre-wrap }
`;

/** Return the page as a document of its own. card: where a panel is drawn, by its id. */
export function pageFile(model: PageModel, card: (id: string) => HTMLElement | null, now: Date): Blob {
  const title = visible(model.page?.title ?? "");
  const made = document.implementation.createHTMLDocument(title);
  made.documentElement.lang = "en";
  made.head.append(element("meta", { charset: "utf-8" }));
  const filters = (model.page?.filters ?? []).map((each) =>
    textOf(each, model.panels.get(each.panel) ?? null),
  );
  made.body.append(
    element("h1", {}, title),
    element("p", {}, `${visible(model.page?.data ?? "")} · as it was at ${now.toISOString()} · ReLAQS`),
    ...(filters.length > 0 ? [element("p", {}, `Filtered by ${filters.join("; ")}`)] : []),
    ...[...model.panels.values()].map((panel) => section(panel, card(panel.settings.id))),
  );
  // The style goes in as text: this page's content policy would refuse it as an element.
  const written = new XMLSerializer()
    .serializeToString(made.documentElement)
    .replace("</head>", `<style>${STYLE}</style></head>`);
  return new Blob([`<!doctype html>\n${written}`], { type: "text/html" });
}

function section(panel: PanelModel, card: HTMLElement | null): HTMLElement {
  const { settings, update, answer } = panel;
  const picture = card ? pictureOf(panel, card) : null;
  const stands = update
    ? [stateText(update), ...factTexts(update).map((text) => text.replaceAll("**", ""))]
    : [];
  const remarks = update ? [filterText(update), ...remarkTexts(update)].filter(Boolean).map(visible) : [];
  const confidence = update ? `${Number((100 * update.confidence).toPrecision(4))} %` : "";
  return element(
    "section",
    {},
    element("h2", {}, visible(settings.title)),
    element("p", {}, stands.join(" · ") || "no answer yet"),
    ...(remarks.length > 0 ? [element("p", {}, remarks.join(" · "))] : []),
    ...(picture ? [picture] : []),
    ...(answer ? [details("Data", tableOf(answer, confidence), picture === null)] : []),
    details(
      "SQL",
      element("pre", {}, visible(settings.sql.replaceAll("\r", "")).replaceAll("\\u000a", "\n")),
      false,
    ),
  );
}

function details(name: string, inside: HTMLElement, isOpen: boolean): HTMLElement {
  return element("details", { open: isOpen }, element("summary", {}, name), inside);
}

function tableOf(answer: Answer, confidence: string): HTMLTableElement {
  const heads = answer.columns.flatMap((column) => headsOf(column, confidence));
  const head = element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name)));
  const rows = answer.rows.map((row) =>
    element(
      "tr",
      {},
      ...row.flatMap((cell, at) => cellsOf(cell, answer.columns[at])).map((text) => element("td", {}, text)),
    ),
  );
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

function headsOf(column: Column, confidence: string): string[] {
  const name = visible(column.name);
  return isExact(column) ? [name] : [name, `${name}, ${confidence} from`, `to`, `certified`];
}

function cellsOf(wire: WireCell, column: Column | undefined): string[] {
  const { value, low, high, certified } = cellOf(wire);
  const text = (each: typeof value): string => showValue(each, column?.type, Infinity);
  if (!column || isExact(column)) return [text(value)];
  return [
    text(value),
    low === null ? "" : text(low),
    high === null ? "" : text(high),
    certified ? "yes" : "no",
  ];
}

function isExact(column: Column): boolean {
  return column.kind === "key" || column.kind === "opaque";
}
