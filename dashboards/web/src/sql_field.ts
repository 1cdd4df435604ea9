/** A field for SQL: a plain text area at once, a highlighting editor as soon as that has been loaded. */

import { element } from "./dom";
import type { EditorOptions, SqlEditor } from "./editor";

export class SqlField {
  readonly root = element("div", { class: "sql-field" });
  private readonly area: HTMLTextAreaElement;
  private editor: SqlEditor | null = null;
  private mistake: { position: number; message: string } | null = null;

  constructor(private readonly options: EditorOptions) {
    this.area = element("textarea", {
      rows: Math.min(16, options.sql.split("\n").length + 1),
      spellcheck: "false",
      readonly: !options.isEditable,
      "aria-label": options.label,
    });
    this.area.value = options.sql;
    this.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) options.run();
    });
    this.root.append(this.area);
    void this.load();
  }

  get sql(): string {
    return this.editor ? this.editor.sql : this.area.value;
  }

  set sql(sql: string) {
    if (this.editor) this.editor.sql = sql;
    else this.area.value = sql;
  }

  focus(): void {
    if (this.editor) this.editor.focus();
    else this.area.focus();
  }

  /** Mark where the query went wrong; null: nowhere. */
  mark(position: number | null, message: string): void {
    this.mistake = position === null ? null : { position, message };
    this.editor?.mark(this.mistake);
  }

  private async load(): Promise<void> {
    const { openEditor } = await import("./editor.js");
    const hadFocus = document.activeElement === this.area;
    this.editor = openEditor({ ...this.options, sql: this.area.value });
    this.root.replaceChildren(this.editor.root);
    this.editor.mark(this.mistake);
    if (hadFocus) this.editor.focus();
  }
}
