/** Light, dark, or as the system has it. */

import { keep, recall } from "./storage";

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
