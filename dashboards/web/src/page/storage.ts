/** Small choices of the reader's that outlive the page. Where storage is closed, they do not. */

export type Choice = "theme" | "cores" | "order" | "name";

export function recall(choice: Choice): string | null {
  try {
    return localStorage.getItem(`relaqs-${choice}`);
  } catch {
    return null;
  }
}

export function keep(choice: Choice, value: string): void {
  try {
    localStorage.setItem(`relaqs-${choice}`, value);
  } catch {
    // A browser that forbids storage still shows the page.
  }
}

/** Light, dark, or as the system has it. */
export type Theme = "system" | "light" | "dark";
export const THEMES: readonly Theme[] = ["system", "light", "dark"];

export function chosenTheme(): Theme {
  const kept = recall("theme");
  return THEMES.find((theme) => theme === kept) ?? "system";
}

export function wearTheme(theme: Theme): void {
  const root = document.documentElement;
  if (theme === "system") delete root.dataset["theme"];
  else root.dataset["theme"] = theme;
  keep("theme", theme);
}
