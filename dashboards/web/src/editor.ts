/**
 * The SQL editor: CodeMirror, a file of its own that is loaded when somebody opens a query.
 *
 * It lives in a shadow tree: there CodeMirror's styles are constructed sheets, which a content policy without
 * inline styles lets through. Tab leaves it, as any field; completions are taken with Enter.
 */

import { autocompletion, type Completion, type CompletionSource } from "@codemirror/autocomplete";
import { SQLDialect, sql as sqlLanguage } from "@codemirror/lang-sql";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import { EditorState, type Extension, Prec } from "@codemirror/state";
import { EditorView, keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { basicSetup } from "codemirror";
import { element } from "./dom";
import type { Table } from "./protocol";

export interface EditorOptions {
  readonly label: string;
  readonly sql: string;
  readonly tables: readonly Table[];
  readonly isEditable: boolean;
  readonly run: () => void;
}

export interface Mistake {
  readonly position: number;
  readonly message: string;
}

/** What of SQL a query here may say: one SELECT. Shorter than any database's list, so that completion helps. */
const DIALECT = SQLDialect.define({
  keywords:
    "select distinct from where group by having order asc desc nulls first last limit offset with recursive as on using " +
    "join inner left right full outer cross union all except intersect and or not in exists between like ilike is null " +
    "case when then else end cast interval filter over partition rows range preceding following current row true false " +
    "extract any some qualify",
  types:
    "boolean tinyint smallint integer bigint hugeint float double decimal numeric varchar char text date time timestamp",
  builtin:
    "count sum avg min max stddev variance median quantile abs round floor ceil coalesce nullif greatest least length lower " +
    "upper substring trim date_trunc year month day hour",
  doubleDollarQuotedStrings: true,
});

const THEME = EditorView.theme({
  "&": {
    color: "var(--text)",
    backgroundColor: "var(--field)",
    fontSize: "13px",
    borderRadius: "6px",
    border: "1px solid var(--line-strong)",
  },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", maxHeight: "320px", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--muted)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--selection)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--card)",
    color: "var(--text)",
    border: "1px solid var(--line-strong)",
  },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": {
    backgroundColor: "var(--accent)",
    color: "var(--on-accent)",
  },
  ".cm-completionDetail": { color: "inherit", opacity: "0.8" },
});

const COLOURS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--code-keyword)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.comment, tags.lineComment, tags.blockComment], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--code-number)" },
]);

/** Typing over a selection: a browser left alone keeps its style in an attribute, which the content policy refuses. */
const TYPED_OVER = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { data } = event;
    const { from, to, empty } = view.state.selection.main;
    if (event.inputType !== "insertText" || !data || empty || view.composing || view.state.readOnly)
      return false;
    const typed = () =>
      view.state.update({
        ...view.state.replaceSelection(data),
        userEvent: "input.type",
        scrollIntoView: true,
      });
    const handlers = view.state.facet(EditorView.inputHandler);
    if (!handlers.some((handle) => handle(view, from, to, data, typed))) view.dispatch(typed());
    return true;
  },
});

export class SqlEditor {
  readonly root = element("div", { class: "editor" });
  private readonly view: EditorView;

  constructor(options: EditorOptions) {
    const shadow = this.root.attachShadow({ mode: "open" });
    this.view = new EditorView({
      doc: options.sql,
      extensions: extensions(options),
      parent: shadow,
      root: shadow,
    });
  }

  get sql(): string {
    return this.view.state.doc.toString();
  }

  set sql(sql: string) {
    if (sql !== this.sql)
      this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: sql } });
  }

  focus(): void {
    this.view.focus();
  }

  mark(mistake: Mistake | null): void {
    const { doc } = this.view.state;
    const from = Math.min(mistake?.position ?? 0, doc.length);
    const to = from + Math.max(1, /^[\w$]+/.exec(doc.sliceString(from, from + 80))?.[0].length ?? 1);
    const found = mistake
      ? [{ from, to: Math.min(to, doc.length), severity: "error" as const, message: mistake.message }]
      : [];
    this.view.dispatch(setDiagnostics(this.view.state, found));
  }
}

function extensions(options: EditorOptions): Extension[] {
  const schema = Object.fromEntries(
    options.tables.map((table) => [table.name, table.columns.map(columnCompletion)]),
  );
  const language = sqlLanguage({ dialect: DIALECT, schema });
  const run = (): boolean => {
    options.run();
    return true;
  };
  return [
    Prec.highest(keymap.of([{ key: "Mod-Enter", run }])),
    basicSetup,
    language,
    DIALECT.language.data.of({ autocomplete: columnsOf(options.tables) }),
    autocompletion({ icons: false }),
    Prec.high(syntaxHighlighting(COLOURS)),
    THEME,
    TYPED_OVER,
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ "aria-label": options.label }),
    EditorState.readOnly.of(!options.isEditable),
  ];
}

function columnCompletion(column: Table["columns"][number]): Completion {
  return { label: column.name, detail: column.type, type: "property", boost: 50 };
}

/** Complete a bare word with the columns of the tables that the query names; behind a dot, others do it. */
function columnsOf(tables: readonly Table[]): CompletionSource {
  return (context) => {
    const word = context.matchBefore(/[\w$]+/);
    if (!word || context.state.sliceDoc(word.from - 1, word.from) === ".") return null;
    const words = new Set(
      context.state.doc
        .toString()
        .toLowerCase()
        .split(/[^\w$]+/),
    );
    const named = tables.filter((table) => words.has(table.name.toLowerCase()));
    return {
      from: word.from,
      options: named.flatMap((table) => table.columns.map(columnCompletion)),
      validFor: /^[\w$]*$/,
    };
  };
}

export function openEditor(options: EditorOptions): SqlEditor {
  return new SqlEditor(options);
}
