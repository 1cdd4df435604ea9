/** An open page: one connection, the model it fills, and the parts that draw it. */

import type { Order } from "../answer/order";
import { download, element, setHidden } from "../dom";
import { type ClientMessage, type NewPanel, type Page, TEXT, type Update } from "../protocol";
import { visible } from "../text/plain";
import { Announcer } from "./announcer";
import { ClusterCard } from "./cluster";
import { Connection, type Listener, type Status } from "./connection";
import type { Desk } from "./desk";
import { askName, askPanel, askTitle } from "./dialogs";
import { FilterBar } from "./filters";
import { chosenOrder, Header } from "./header";
import { JobsView } from "./jobs";
import { PageModel } from "./model";
import { pageFile } from "./page_export";
import { Pacer } from "./pacer";
import { movable, PanelCard } from "./panel";
import { hashOf, type Shared, sharedIn } from "./share";
import { keep, recall } from "./storage";

const NEW_TEXT: NewPanel = {
  ...{
    title: "Note",
    sql: "A text for whoever reads this page: More, Edit panel.",
    chart: TEXT,
    size: "small",
  },
  ...{ target: null, priority: 1, x: null, y: null, series: null },
};

export class PageView implements Desk, Listener {
  order: Order = chosenOrder();
  /** What the address asked for and was not done yet. */
  private asked: Shared = sharedIn(location.hash);
  private readonly model = new PageModel();
  private readonly announcer = new Announcer();
  private readonly header: Header;
  private readonly grid = element("main", { class: "grid", tabindex: -1 });
  private readonly filters = new FilterBar(this);
  private readonly cluster: ClusterCard;
  private readonly jobs: JobsView | null;
  private readonly cards = new Map<string, PanelCard>();
  private readonly connection: Connection;
  private readonly pacer = new Pacer((now) => this.draw(now));
  private readonly dirty = new Set<string>();
  private isClusterDirty = false;
  private isPageDirty = false;
  private isFrozen = false;
  private isCutOff = false;
  private drawnSeq: number | null = null;
  /** A page that the reader asked for, and the pages that there were before. */
  private awaited: { readonly title: string; readonly known: ReadonlySet<string> } | null = null;

  constructor(root: HTMLElement, name: string, view: "page" | "jobs") {
    this.header = new Header(
      {
        order: (order) => this.reorder(order),
        freeze: (isFrozen) => this.freeze(isFrozen),
        add: () => askPanel(this.page, (panel) => this.send({ type: "add", panel })),
        save: () => this.send({ type: "save" }),
        discard: () => this.discard(),
        share: () => void this.share(),
        exportPage: () => this.exportPage(),
        addText: () => this.send({ type: "add", panel: NEW_TEXT }),
        newPage: () => askTitle((title) => this.makePage(title)),
        name: () => askName(recall("name") ?? "", (mine) => this.takeName(mine)),
      },
      view,
    );
    this.cluster = new ClusterCard(() => this.redrawCluster(), view === "jobs");
    this.jobs = view === "jobs" ? new JobsView(() => this.redrawCluster()) : null;
    this.grid.append(...(this.jobs ? [this.cluster.root, this.jobs.root] : [this.cluster.root]));
    setHidden(this.cluster.root, true);
    if (this.asked.order === "value") this.order = "value";
    root.replaceChildren(this.header.root, this.filters.root, this.grid, this.announcer.root);
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const query = view === "page" ? `?page=${encodeURIComponent(name)}` : "";
    this.connection = new Connection(`${scheme}://${location.host}/ws${query}`, this);
    this.connection.open();
  }

  get page(): Page | null {
    return this.model.page;
  }

  send(message: ClientMessage): void {
    if (!this.connection.send(message))
      this.say("Not connected: nothing was changed. Try again in a moment.");
  }

  say(text: string): void {
    this.announcer.show(visible(text));
  }

  redraw(panel: string): void {
    this.dirty.add(panel);
    this.pacer.ask();
  }

  status(status: Status): void {
    this.header.drawStatus(status);
    document.body.classList.toggle("is-cut-off", status.kind !== "live");
    this.speakOf(status);
    const name = recall("name");
    if (status.kind !== "live") return;
    this.model.reconnected();
    if (name) this.connection.send({ type: "name", name });
  }

  /** Say that the connection went or came back: once, not at every second of waiting. */
  private speakOf({ kind }: Status): void {
    if (kind === "waiting" && !this.isCutOff) this.announcer.speak(["Connection lost; trying again"]);
    if (kind === "live" && this.isCutOff) this.announcer.speak(["Connected again"]);
    if (kind !== "connecting") this.isCutOff = kind === "waiting";
  }

  refused(reason: string): void {
    this.say(reason || "The server refused this page.");
  }

  update(update: Update): void {
    const changes = this.model.apply(update);
    for (const id of changes.panels) this.dirty.add(id);
    this.isPageDirty ||= changes.page;
    this.isClusterDirty ||= changes.cluster || changes.log;
    this.announcer.speak(changes.spoken);
    if (this.model.notice) this.say(this.model.notice);
    this.followLink();
    this.drawnSeq = update.seq;
    this.pacer.ask();
  }

  /** Draw what changed, then tell the server: it sends nothing more before that. */
  private draw(now: number): void {
    if (this.isPageDirty) this.drawPage();
    for (const id of this.dirty) this.cards.get(id)?.draw(now);
    this.dirty.clear();
    if (this.isClusterDirty && !this.isFrozen) this.drawCluster();
    this.header.drawViewers(this.model.viewers);
    this.announcer.speak(this.filters.draw(this.page, this.model.panels));
    this.keepAddress();
    if (this.drawnSeq !== null) this.connection.send({ type: "ack", seq: this.drawnSeq });
    this.drawnSeq = null;
  }

  /** Lay out the cards of the page's panels, keeping those that are there. */
  private drawPage(): void {
    this.isPageDirty = false;
    if (!this.page) return;
    this.header.draw(this.page, this.model.viewers);
    this.goToNewPage();
    for (const [id, card] of this.cards) {
      if (this.model.panels.has(id)) continue;
      card.close();
      this.cards.delete(id);
    }
    this.page.panels.forEach(({ id }, at) => {
      const card = this.cardOf(id);
      if (card && this.grid.children[at] !== card.root)
        this.grid.insertBefore(card.root, this.grid.children[at] ?? null);
      this.dirty.add(id);
    });
  }

  private cardOf(id: string): PanelCard | null {
    const panel = this.model.panels.get(id);
    if (!panel) return null;
    const known = this.cards.get(id);
    if (known?.panel === panel) return known;
    known?.close();
    const card = new PanelCard(panel, this);
    movable(card.root, (before) => this.send({ type: "move", panel: id, before }), this);
    this.cards.set(id, card);
    return card;
  }

  private drawCluster(): void {
    this.isClusterDirty = false;
    this.cluster.draw(this.model);
    this.cluster.drawLog(this.model.log);
    this.jobs?.draw(this.model);
  }

  private redrawCluster(): void {
    this.isClusterDirty = true;
    this.pacer.ask();
  }

  private reorder(order: Order): void {
    this.order = order;
    for (const id of this.cards.keys()) this.dirty.add(id);
    this.pacer.ask();
  }

  private freeze(isFrozen: boolean): void {
    this.isFrozen = isFrozen;
    if (isFrozen) this.model.freeze();
    else for (const id of this.model.unfreeze()) this.dirty.add(id);
    document.body.classList.toggle("is-frozen", isFrozen);
    this.say(isFrozen ? "The view is frozen; the queries go on." : "The view is live again.");
    this.pacer.ask();
  }

  private discard(): void {
    const question = "Back to the page as it was saved? What anybody changed since then is lost.";
    if (confirm(question)) this.send({ type: "discard" });
  }

  /** Do what the address asks for, each part as soon as the panel it is of has an answer. */
  private followLink(): void {
    if (!this.page) return;
    for (const id of this.asked.tables) {
      const panel = this.model.panels.get(id);
      if (panel) panel.asTable = true;
    }
    const waiting = this.asked.filters.filter((each) => !this.followFilter(each));
    this.asked = { ...this.asked, filters: waiting, tables: [] };
  }

  /** Send a filter that the address has, and return whether there is nothing more to wait for. */
  private followFilter({ panel, column, selection, table }: Shared["filters"][number]): boolean {
    if (table && "range" in selection) {
      if (!this.page?.times?.some((time) => time.table === table)) return this.allAnswered();
      const range = selection.range.map(String) as [string, string];
      this.connection.send({ type: "period", table, column, range });
      return true;
    }
    const found = this.model.panels.get(panel);
    if (found && !found.answer && found.update?.state !== "failed") return false;
    if (found?.update?.brushes?.includes(column))
      this.connection.send({ type: "filter", panel, column, ...selection });
    else this.say(`The link's filter by ${column} fits no panel of this page any more.`);
    return true;
  }

  private allAnswered(): boolean {
    return [...this.model.panels.values()].every(
      ({ answer, update, settings }) => answer || update?.state === "failed" || settings.chart === TEXT,
    );
  }

  /** Keep the address so that it says what the page shows; what it asked for stays until it is done. */
  private keepAddress(): void {
    if (!this.page || this.jobs || this.asked.filters.length > 0) return;
    const hash = this.hash();
    if (hash !== location.hash) history.replaceState(null, "", `${location.pathname}${hash}`);
  }

  private hash(): string {
    const tables = [...this.model.panels.values()].filter((panel) => panel.asTable);
    const filters = this.page?.filters ?? [];
    return hashOf({ filters, order: this.order, tables: tables.map((panel) => panel.settings.id) });
  }

  private async share(): Promise<void> {
    const link = `${location.origin}${location.pathname}${this.hash()}`;
    try {
      await navigator.clipboard.writeText(link);
      this.say("Copied: the link has the filters and the view, and nobody's token.");
    } catch {
      this.say(`The browser does not let this page write to the clipboard. The address above is the link.`);
    }
  }

  private exportPage(): void {
    const card = (id: string): HTMLElement | null => this.cards.get(id)?.root ?? null;
    download(pageFile(this.model, card, new Date()), `${this.page?.name ?? "page"}.html`);
  }

  /** Make a page, and go there as soon as the server has it. */
  private makePage(title: string): void {
    this.awaited = { title, known: new Set(this.page?.pages.map((page) => page.name)) };
    this.send({ type: "new", title });
  }

  private goToNewPage(): void {
    const { awaited } = this;
    const made = this.page?.pages.find(
      (page) => page.title === awaited?.title && !awaited.known.has(page.name),
    );
    if (made) location.assign(`/page/${encodeURIComponent(made.name)}`);
  }

  private takeName(name: string): void {
    keep("name", name);
    this.send({ type: "name", name });
  }
}
