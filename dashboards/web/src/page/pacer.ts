/** Draws what has changed: at most five times a second, once a frame, and never in a page nobody sees. */

const LEAST_MS = 200;

export class Pacer {
  private isAsked = false;
  private lastMs = -Infinity;

  constructor(private readonly draw: (now: number) => void) {}

  /** Draw soon. Asking again before that changes nothing. */
  ask(): void {
    if (this.isAsked) return;
    this.isAsked = true;
    setTimeout(
      () => requestAnimationFrame((now) => this.run(now)),
      Math.max(0, this.lastMs + LEAST_MS - performance.now()),
    );
  }

  private run(now: number): void {
    this.isAsked = false;
    this.lastMs = now;
    this.draw(now);
  }
}
