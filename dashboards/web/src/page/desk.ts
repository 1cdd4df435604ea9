/** What the parts of a page may ask of it. */

import type { Order } from "../answer/order";
import type { ClientMessage, Page } from "../protocol";

export interface Desk {
  readonly page: Page | null;
  readonly order: Order;
  /** Send, and say so where nobody hears it. */
  send(message: ClientMessage): void;
  /** Show a short word to everybody, also to those who do not see it. */
  say(text: string): void;
  /** Draw a panel anew, though the server said nothing. */
  redraw(panel: string): void;
}
