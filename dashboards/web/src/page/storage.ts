/** Small choices of the reader's that outlive the page. Where storage is closed, they do not. */

export type Choice = "theme" | "order" | "name";

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
