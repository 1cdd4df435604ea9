/** The WebSocket of a page: comes back after every break, and acknowledges what was drawn. */

import type { ClientMessage, Update } from "../protocol";

const FIRST_SECONDS = 0.5;
const MOST_SECONDS = 15;

/** Return how long to wait before attempt n (from 0): doubling, with up to a quarter off by chance. */
export function delaySeconds(attempt: number, random: () => number): number {
  const full = Math.min(MOST_SECONDS, FIRST_SECONDS * 2 ** attempt);
  return full * (1 - random() / 4);
}

export type Status =
  | { readonly kind: "connecting" }
  | { readonly kind: "live" }
  | {
      readonly kind: "waiting";
      readonly seconds: number;
      readonly attempts: number;
      /** Why the server closed, in its words; "" where it said nothing. */
      readonly reason: string;
    };

export interface Listener {
  status(status: Status): void;
  update(update: Update): void;
  /** The server closed for a reason of its own and will not have us back. */
  refused(reason: string): void;
}

const REFUSED_FROM = 4000; // WebSocket close codes from here on are the application's own

export class Connection {
  private socket: WebSocket | null = null;
  private attempts = 0;

  constructor(
    private readonly address: string,
    private readonly listener: Listener,
  ) {}

  open(): void {
    this.listener.status({ kind: "connecting" });
    const socket = new WebSocket(this.address);
    this.socket = socket;
    socket.addEventListener("open", () => this.listener.status({ kind: "live" }));
    socket.addEventListener("message", (event) => this.take(String(event.data)));
    socket.addEventListener("close", (event) => this.closed(event));
  }

  /** Send, or say that there is nobody to hear it. */
  send(message: ClientMessage): boolean {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  private take(text: string): void {
    const message = JSON.parse(text) as Update;
    if (message.type !== "update") return;
    this.attempts = 0;
    this.listener.update(message);
  }

  private closed(event: CloseEvent): void {
    if (event.code >= REFUSED_FROM) this.listener.refused(event.reason);
    else this.wait(delaySeconds(this.attempts++, Math.random), event.reason);
  }

  /** Count down in whole seconds, then try again. */
  private wait(seconds: number, reason: string): void {
    if (seconds <= 0) {
      this.open();
      return;
    }
    this.listener.status({ kind: "waiting", seconds: Math.ceil(seconds), attempts: this.attempts, reason });
    const step = seconds % 1 || 1;
    setTimeout(() => this.wait(seconds - step, reason), 1000 * step);
  }
}
