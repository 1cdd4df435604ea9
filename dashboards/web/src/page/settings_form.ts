/** The fields that say how a panel is drawn: for editing one, and for adding one. */

import { element, labelledSelect, type Option, setOptions } from "../dom";
import type { ChartChoice, PanelEdit, PanelSettings, PanelSize } from "../protocol";
import { visible } from "../text/plain";

export const SIZES: readonly PanelSize[] = ["small", "wide", "full"];
const SCALES = ["linear", "log"] as const;
const AUTOMATIC: Option = { value: "", text: "automatic" };

type Looks = Omit<PanelEdit, "sql">;

export class SettingsForm {
  readonly root = element("div", { class: "settings" });
  private readonly title = element("input", {
    type: "text",
    maxlength: 200,
    autocomplete: "off",
    spellcheck: "false",
  });
  private readonly params = element("input", {
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: '[1, 2] or {"name": 1}',
  });
  private readonly selects: Readonly<
    Record<"chart" | "size" | "scale" | "x" | "y" | "series", HTMLSelectElement>
  >;

  constructor() {
    const fields = (["chart", "size", "x", "y", "series", "scale"] as const).map((name) =>
      labelledSelect(name, () => undefined),
    );
    const [chart, size, x, y, series, scale] = fields.map(([, select]) => select) as [
      HTMLSelectElement,
      HTMLSelectElement,
      HTMLSelectElement,
      HTMLSelectElement,
      HTMLSelectElement,
      HTMLSelectElement,
    ];
    this.selects = { chart, size, scale, x, y, series };
    const title = element("label", { class: "field title" }, element("span", {}, "title"), this.title);
    const params = element("label", { class: "field title" }, element("span", {}, "parameters"), this.params);
    this.root.append(title, params, ...fields.map(([label]) => label));
  }

  /** columns: names of the present answer's columns. charts: those to choose from. */
  fill(settings: Looks, columns: readonly string[], charts: readonly ChartChoice[]): void {
    this.title.value = settings.title;
    this.params.value = settings.params ? JSON.stringify(settings.params) : "";
    setOptions(
      this.selects.chart,
      [
        ...(settings.chart ? [] : [AUTOMATIC]), // of a new panel: what fits its answer
        ...charts.map(({ kind, name }) => ({ value: kind, text: name })),
      ],
      settings.chart,
    );
    setOptions(
      this.selects.size,
      SIZES.map((size) => ({ value: size, text: size })),
      settings.size,
    );
    setOptions(
      this.selects.scale,
      SCALES.map((scale) => ({ value: scale, text: scale })),
      settings.scale ?? "linear",
    );
    this.offer(columns, settings);
  }

  /** Offer the columns of another answer; what is chosen stays, and says so where the answer lacks it. */
  offer(columns: readonly string[], chosen: Pick<Looks, "x" | "y" | "series"> = this.looks): void {
    const remark = columns.length > 0 ? " (not in the answer)" : "";
    for (const role of ["x", "y", "series"] as const) {
      const name = chosen[role];
      const lacking = name === null || columns.includes(name) ? [] : [name];
      const options = [
        AUTOMATIC,
        ...columns.map((each) => ({ value: each, text: visible(each) })),
        ...lacking.map((each) => ({ value: each, text: visible(each) + remark })),
      ];
      setOptions(this.selects[role], options, name ?? "");
    }
  }

  get looks(): Looks {
    return {
      title: this.title.value.trim(),
      chart: this.selects.chart.value,
      size: this.selects.size.value as PanelSize,
      scale: this.selects.scale.value as (typeof SCALES)[number],
      x: this.selects.x.value || null,
      y: this.selects.y.value || null,
      series: this.selects.series.value || null,
      params: paramsOf(this.params.value),
    };
  }

  focus(): void {
    this.title.focus();
  }
}

/** Return the values that a text of JSON has. What is no JSON stays text, and the server says what is wrong. */
export function paramsOf(text: string): PanelSettings["params"] {
  if (!text.trim()) return null;
  try {
    return JSON.parse(text) as PanelSettings["params"];
  } catch {
    return text;
  }
}

/** Return what differs, as an edit message wants it. */
export function changedSettings(before: PanelSettings, after: PanelEdit): Partial<PanelEdit> {
  const names = ["sql", "title", "chart", "size", "scale", "x", "y", "series", "params"] as const;
  const whole = { scale: "linear", ...before };
  const wanted = { scale: "linear", ...after };
  const text = (value: unknown): string => JSON.stringify(value ?? null);
  return Object.fromEntries(
    names.filter((name) => text(whole[name]) !== text(wanted[name])).map((name) => [name, wanted[name]]),
  );
}
