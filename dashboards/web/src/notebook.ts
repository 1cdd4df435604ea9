/** A panel in a notebook: the door an anywidget opens. It draws what the widget's model says, as it comes. */

import { element, setAttribute, setRichText, setText } from "./dom";
import { newPanel, type PanelModel, takeUpdate } from "./page/model";
import { Pacer } from "./page/pacer";
import { Progress } from "./page/progress";
import { Stage } from "./page/stage";
import { factTexts, remarkTexts, stateText, toneOf } from "./page/states";
import type { PanelSettings, PanelUpdate } from "./protocol";
import style from "./style/notebook.css";
import { visible } from "./text/plain";

/** What of an anywidget's model is used. panel: as in an update of the dashboard; settings: as in its page. */
interface WidgetModel {
  get(name: "panel"): PanelUpdate | null;
  get(name: "settings"): PanelSettings;
  on(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
}

const EVENTS = ["change:panel", "change:settings"] as const;

function render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
  const panel = newPanel(model.get("settings"));
  const output = new NotebookPanel(panel, el);
  const take = (): void => {
    const update = model.get("panel");
    panel.settings = model.get("settings");
    if (update) takeUpdate(panel, update);
    output.ask();
  };
  for (const event of EVENTS) model.on(event, take);
  take();
  return () => {
    for (const event of EVENTS) model.off(event, take);
    output.close();
  };
}

export default { render };

class NotebookPanel {
  private readonly title = element("strong");
  private readonly pill = element("span", { class: "pill" });
  private readonly progress = new Progress();
  private readonly failure = element("p", { class: "failure" });
  private readonly remarks = element("p", { class: "warnings" });
  private readonly facts = element("p", { class: "facts" });
  private readonly output: HTMLElement;
  private readonly pacer = new Pacer((now) => this.draw(now));
  private readonly stage = new Stage(() => this.pacer.ask());

  constructor(
    private readonly panel: PanelModel,
    host: HTMLElement,
  ) {
    const head = element("header", {}, this.title, this.pill);
    const parts = [
      this.progress.root,
      this.failure,
      this.stage.root,
      this.stage.notes,
      this.remarks,
      this.facts,
    ];
    this.output = element("div", { class: "panel output" }, head, ...parts);
    const place = element("div");
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(style);
    const shadow = place.attachShadow({ mode: "open" });
    shadow.adoptedStyleSheets = [sheet];
    shadow.append(this.output);
    place.style.colorScheme = notebookScheme();
    host.append(place);
  }

  ask(): void {
    this.pacer.ask();
  }

  close(): void {
    this.stage.close();
  }

  private draw(now: number): void {
    const { settings, update } = this.panel;
    setText(this.title, visible(settings.title));
    setAttribute(this.output, "data-tone", toneOf(update?.state ?? "waiting"));
    setText(this.pill, update ? stateText(update) : "waiting");
    this.progress.draw(update);
    setText(this.failure, update?.failure?.message ?? "");
    this.failure.hidden = update?.state !== "failed";
    this.stage.draw(this.panel, "place", now);
    setText(this.remarks, update ? remarkTexts(update).map(visible).join(" · ") : "");
    setRichText(this.facts, update ? factTexts(update).join("\u2003") : "");
  }
}

/** Notebooks choose light or dark by themselves, whatever the system prefers. */
function notebookScheme(): string {
  const { body } = document;
  if (body.dataset["jpThemeLight"] === "false" || body.classList.contains("vscode-dark")) return "dark";
  if (body.dataset["jpThemeLight"] === "true" || body.classList.contains("vscode-light")) return "light";
  return "light dark";
}
