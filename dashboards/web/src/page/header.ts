/** The bar on top: where one is, whether it is live, and what holds for the whole page. */

import type { Order } from "../answer/order";
import { button, element, labelledSelect, setAttribute, setHidden, setOptions, setText } from "../dom";
import type { Page } from "../protocol";
import { visible } from "../text/plain";
import type { Status } from "./connection";
import { Menu } from "./menu";
import { chosenTheme, keep, recall, type Theme, THEMES, wearTheme } from "./storage";

export interface HeaderActs {
  order(order: Order): void;
  freeze(isFrozen: boolean): void;
  add(): void;
  save(): void;
  discard(): void;
  share(): void;
  exportPage(): void;
  name(): void;
  addText(): void;
  newPage(): void;
}

const JOBS_TITLE = "All jobs";
const ATTEMPTS_UNTIL_HINT = 4;

export class Header {
  readonly root: HTMLElement;
  private readonly about = element("p", { class: "about" });
  private readonly title = element("h1");
  private readonly data = element("span", { class: "data" });
  private readonly pages = element("nav", { "aria-label": "Pages" });
  private readonly status = element("span", { class: "status" });
  private readonly viewers = element("span", { class: "viewers" });
  private readonly freezing: HTMLButtonElement;
  private readonly tools = element("div", { class: "tools" });
  private readonly edits: readonly HTMLElement[];
  private readonly looking = element("p", { class: "hint", hidden: true }, "You may only look at this page.");
  private isFrozen = false;

  constructor(
    private readonly acts: HeaderActs,
    private readonly view: "page" | "jobs",
  ) {
    this.about.append(element("a", { class: "brand", href: "/" }, "ReLAQS"), this.title, this.data);
    this.freezing = button("Freeze view", () => this.freeze(!this.isFrozen), { "aria-pressed": "false" });
    const add = button("Add a panel", acts.add);
    const note = button("Add a text", acts.addText);
    const fresh = button("New page", acts.newPage);
    const save = button("Save page", acts.save);
    const discard = button("Discard changes", acts.discard);
    this.edits = [add, note, save, discard, fresh];
    const page = new Menu("Page", "Acts on the page", [
      this.looking,
      ...this.edits,
      button("Copy link", acts.share),
      button("Export page", acts.exportPage),
      button("Your name", acts.name),
    ]);
    // Until the server has spoken: the title that the page came with.
    setText(this.title, view === "jobs" ? JOBS_TITLE : document.title.replace(/ · ReLAQS$/, ""));
    this.tools.append(this.viewers, this.status);
    if (view === "page") this.tools.append(this.orderField(), this.freezing, page.root);
    this.tools.append(themeField());
    this.root = element("header", { class: "top" }, this.about, this.pages, this.tools);
    this.drawPages([], null);
  }

  draw(page: Page, viewers: number): void {
    const title = this.view === "jobs" ? JOBS_TITLE : visible(page.title);
    setText(this.title, title);
    setText(this.data, visible(page.data));
    document.title = `${title} · ReLAQS`;
    this.drawPages(page.pages, page.name);
    this.drawViewers(viewers);
    for (const each of this.edits) setHidden(each, !page.editable);
    setHidden(this.looking, page.editable);
  }

  drawViewers(viewers: number): void {
    setText(this.viewers, viewers > 1 ? `${viewers} viewers` : "");
  }

  drawStatus(status: Status): void {
    setAttribute(this.status, "data-kind", status.kind);
    setText(this.status, statusText(status));
  }

  /** Hold the picture still; the queries go on. */
  freeze(isFrozen: boolean): void {
    this.isFrozen = isFrozen;
    setText(this.freezing, isFrozen ? "Unfreeze view" : "Freeze view");
    setAttribute(this.freezing, "aria-pressed", String(isFrozen));
    this.acts.freeze(isFrozen);
  }

  private drawPages(pages: Page["pages"], here: string | null): void {
    const isJobs = this.view === "jobs";
    const links = pages.map((page) =>
      link(visible(page.title), `/page/${encodeURIComponent(page.name)}`, !isJobs && page.name === here),
    );
    this.pages.replaceChildren(
      ...(links.length > 0 ? links : [link("Dashboard", "/", false)]),
      link("Jobs", "/jobs", isJobs),
    );
  }

  private orderField(): HTMLElement {
    const [label, select] = labelledSelect("Order", (value) => {
      keep("order", value);
      this.acts.order(value as Order);
    });
    const options = [
      { value: "place", text: "keep in place" },
      { value: "value", text: "by value" },
    ];
    setOptions(select, options, chosenOrder());
    return label;
  }
}

export function chosenOrder(): Order {
  return recall("order") === "value" ? "value" : "place";
}

function themeField(): HTMLElement {
  const [label, select] = labelledSelect("Theme", (value) => wearTheme(value as Theme));
  setOptions(
    select,
    THEMES.map((theme) => ({ value: theme, text: theme })),
    chosenTheme(),
  );
  return label;
}

function link(text: string, href: string, isHere: boolean): HTMLAnchorElement {
  return element("a", { href, "aria-current": isHere ? "page" : null }, text);
}

function statusText(status: Status): string {
  switch (status.kind) {
    case "connecting":
      return "connecting";
    case "live":
      return "live";
    case "waiting":
      return [`reconnecting in ${status.seconds} s`, visible(status.reason), hint(status.attempts)]
        .filter(Boolean)
        .join("; ");
  }
}

function hint(attempts: number): string {
  return attempts >= ATTEMPTS_UNTIL_HINT ? "if the server was started anew, open the address it printed" : "";
}
