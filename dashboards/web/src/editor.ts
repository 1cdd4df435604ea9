/**
 * The SQL editor: CodeMirror, a file of its own that is loaded when somebody opens a query.
 *
 * It lives in a shadow tree: there CodeMirror's styles are constructed sheets, which a content policy without
 * inline styles lets through. Tab leaves it, as any field; completions are taken with Enter.
 */

import { PostgreSQL, sql as sqlLanguage } from "@codemirror/lang-sql";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import { EditorState, type Extension, Prec } from "@codemirror/state";
import { EditorView, keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { basicSetup } from "codemirror";
import { element } from "./dom";
import type { SqlFieldOptions } from "./sql_field";

export interface Mistake {
  readonly position: number;
  readonly message: string;
}

const THEME = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--field)", fontSize: "13px", borderRadius: "6px", border: "1px solid var(--line-strong)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", maxHeight: "320px", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--muted)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection)" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--text)", border: "1px solid var(--line-strong)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "inherit", opacity: "0.8" },
});

const COLOURS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--code-keyword)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.comment, tags.lineComment, tags.blockComment], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--code-number)" },
]);

export class SqlEditor {
  readonly root = element("div", { class: "editor" });
  private readonly view: EditorView;

  constructor(options: SqlFieldOptions) {
    const shadow = this.root.attachShadow({ mode: "open" });
    this.view = new EditorView({ doc: options.sql, extensions: extensions(options), parent: shadow, root: shadow });
  }

  get sql(): string {
    return this.view.state.doc.toString();
  }

  set sql(sql: string) {
    if (sql !== this.sql) this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: sql } });
  }

  focus(): void {
    this.view.focus();
  }

  mark(mistake: Mistake | null): void {
    const { doc } = this.view.state;
    const from = Math.min(mistake?.position ?? 0, doc.length);
    const to = from + Math.max(1, /^[\w$]+/.exec(doc.sliceString(from, from + 80))?.[0].length ?? 1);
    const found = mistake ? [{ from, to: Math.min(to, doc.length), severity: "error" as const, message: mistake.message }] : [];
    this.view.dispatch(setDiagnostics(this.view.state, found));
  }
}

function extensions(options: SqlFieldOptions): Extension[] {
  const schema = Object.fromEntries(
    options.tables.map((table) => [table.name, table.columns.map((column) => ({ label: column.name, detail: column.type }))]),
  );
  const run = (): boolean => {
    options.run();
    return true;
  };
  return [
    Prec.highest(keymap.of([{ key: "Mod-Enter", run }])),
    basicSetup,
    sqlLanguage({ dialect: PostgreSQL, schema, upperCaseKeywords: false }),
    Prec.high(syntaxHighlighting(COLOURS)),
    THEME,
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ "aria-label": options.label }),
    EditorState.readOnly.of(!options.isEditable),
  ];
}

export function openEditor(options: SqlFieldOptions): SqlEditor {
  return new SqlEditor(options);
}
