/** Hands the reader a file that was made on the page. */

import { element } from "../dom";

const KEPT_MS = 60_000; // the browser reads it after the click

export function download(file: Blob, name: string): void {
  const href = URL.createObjectURL(file);
  element("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), KEPT_MS);
}
