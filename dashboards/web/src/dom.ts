/** Elements made and changed in place. Text reaches the page as text nodes only, never as HTML. */

type Attributes = Readonly<Record<string, string | number | boolean | null | undefined>>;
type Child = Node | string | null;

/** Return a new element. A false, null or undefined attribute is left out; true is an empty one. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(made, name, value);
  made.append(...children.filter((child): child is Node | string => child !== null));
  return made;
}

/** Set an attribute, or take it away; nothing is touched where nothing changes. */
export function setAttribute(target: Element, name: string, value: Attributes[string]): void {
  const text =
    value === false || value === null || value === undefined ? null : value === true ? "" : String(value);
  if (target.getAttribute(name) === text) return;
  if (text === null) target.removeAttribute(name);
  else target.setAttribute(name, text);
}

/** Set the text of an element that holds nothing else. */
export function setText(target: Element, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

export function setClass(target: Element, name: string, on: boolean): void {
  if (target.classList.contains(name) !== on) target.classList.toggle(name, on);
}

export function setHidden(target: HTMLElement, hidden: boolean): void {
  if (target.hidden !== hidden) target.hidden = hidden;
}

export function button(text: string, act: () => void, attributes: Attributes = {}): HTMLButtonElement {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", () => {
    if (made.getAttribute("aria-disabled") !== "true") act();
  });
  return made;
}

/** Say that a button does nothing now. It stays focusable, so that nobody's keyboard position is lost. */
export function setDisabled(target: HTMLElement, disabled: boolean): void {
  setAttribute(target, "aria-disabled", disabled ? "true" : null);
}

export interface Option {
  readonly value: string;
  readonly text: string;
}

/** Fill a select with options, and choose one; touched only where something differs. */
export function setOptions(target: HTMLSelectElement, options: readonly Option[], chosen: string): void {
  const same =
    target.options.length === options.length &&
    options.every(
      (option, at) => target.options[at]?.value === option.value && target.options[at]?.text === option.text,
    );
  if (!same)
    target.replaceChildren(...options.map((each) => element("option", { value: each.value }, each.text)));
  if (target.value !== chosen) target.value = chosen;
}

/** Return a select with its visible label. */
export function labelledSelect(
  label: string,
  change: (value: string) => void,
): [HTMLLabelElement, HTMLSelectElement] {
  const select = element("select");
  select.addEventListener("change", () => change(select.value));
  return [element("label", { class: "field" }, element("span", {}, label), select), select];
}

const PARTS = /(\*\*[^*]+\*\*)/;

/** Set text in which **this** is strong; kept as nodes, so that unchanged text costs nothing. */
export function setRichText(target: HTMLElement, text: string): void {
  if (target.dataset["text"] === text) return;
  target.dataset["text"] = text;
  const parts = text.split(PARTS).filter(Boolean);
  target.replaceChildren(
    ...parts.map((part) =>
      PARTS.test(part) ? element("b", {}, part.slice(2, -2)) : document.createTextNode(part),
    ),
  );
}

const KEPT_MS = 60_000; // the browser reads it after the click

/** Hand the reader a file that was made on the page. */
export function download(file: Blob, name: string): void {
  const href = URL.createObjectURL(file);
  element("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), KEPT_MS);
}
