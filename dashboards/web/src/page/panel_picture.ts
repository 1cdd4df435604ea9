/** A panel's drawing as a picture of its own: what the page's style gives it is written into it. */

import { visible } from "../text/plain";
import { download } from "../dom";
import type { PanelModel } from "./model";
import { intervalName } from "./picture";
import { stateText } from "./states";

const SVG = "http://www.w3.org/2000/svg";
const HEAD = 44; // pixels above the drawing, for its title and how it stands
const LEGEND = 20;
const EDGE = 14;
const PIXEL_RATIO = 2;
const NUMBER_WIDTH = 320; // of a number that has no course to draw
const PROPERTIES = [
  ...["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity"],
  ...["stroke-linecap", "stroke-linejoin", "vector-effect", "paint-order", "visibility"],
  ...["font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline"],
];

interface Line {
  readonly said: string;
  readonly size: number;
  readonly weight: number;
  readonly height: number;
}

/** Return the panel's drawing, or its number, with its title, state and legend; null where it is a table. */
export function pictureOf(panel: PanelModel, card: HTMLElement): SVGSVGElement | null {
  const drawn = card.querySelector<SVGSVGElement>(".chart .drawing:not(.is-blank) > svg[role=img]");
  const lines = linesOf(card);
  if (!panel.update || (!drawn && lines.length === 0)) return null;
  const legend = [...card.querySelectorAll<HTMLElement>(".legend li")];
  const said = lines.reduce((sum, line) => sum + line.height, 0);
  const top = HEAD + (legend.length > 0 ? LEGEND : 0) + said;
  const [width, height] = drawn ? [drawn.width.baseVal.value, drawn.height.baseVal.value] : [NUMBER_WIDTH, 0];
  const whole = newSvg("svg", { width: width + 2 * EDGE, height: height + top + EDGE, role: "img" });
  const title = visible(panel.settings.title);
  const label = newSvg("title", {});
  label.textContent = `${title}: ${stateText(panel.update)}`;
  const ground = getComputedStyle(card).backgroundColor;
  whole.append(
    label,
    newSvg("rect", { width: "100%", height: "100%", fill: ground }),
    text(title, 18, card, 14, 600),
    text(`${stateText(panel.update)}, ${intervalName(panel.update)}s`, 36, card, 12, 400),
    ...legendOf(legend, HEAD + 12),
    ...written(lines, top - said, card),
  );
  if (drawn) {
    const inside = copied(drawn);
    setAll(inside, { x: EDGE, y: top, overflow: "visible" });
    whole.append(inside);
  }
  return whole;
}

/** Return what a panel with one big number says, from the top; nothing for other charts. */
function linesOf(card: HTMLElement): readonly Line[] {
  const number = card.querySelector<HTMLElement>(".chart.number");
  if (!number) return [];
  const shown = (name: string): string[] =>
    [...number.querySelectorAll<HTMLElement>(name)]
      .filter((part) => !part.hidden)
      .map((part) => part.innerText);
  const names = [...number.querySelectorAll<HTMLElement>(".others:not([hidden]) dt")];
  const others = names.map(
    (term) => `${term.innerText}: ${(term.nextElementSibling as HTMLElement).innerText}`,
  );
  return [
    ...shown(".big").map((said) => ({ said, size: 30, weight: 600, height: 44 })),
    ...[...shown(".interval"), ...shown(".memory"), ...others].map((said) => ({
      said,
      size: 12,
      weight: 400,
      height: 18,
    })),
  ];
}

function written(lines: readonly Line[], top: number, like: Element): SVGElement[] {
  let y = top;
  return lines.map((line) => {
    y += line.height;
    return text(line.said.replaceAll("\n", " "), y - line.height / 4, like, line.size, line.weight);
  });
}

/** Hand a picture to the reader as a file. */
export async function offerPicture(picture: SVGSVGElement, name: string, kind: "png" | "svg"): Promise<void> {
  const written = new XMLSerializer().serializeToString(picture);
  if (kind === "svg") download(new Blob([written], { type: "image/svg+xml" }), `${name}.svg`);
  else download(await painted(written, picture), `${name}.png`);
}

async function painted(written: string, { width, height }: SVGSVGElement): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(written)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width.baseVal.value * PIXEL_RATIO;
  canvas.height = height.baseVal.value * PIXEL_RATIO;
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large")))),
  );
}

/** Return a copy of a drawing whose parts have their style as attributes. */
function copied(drawn: SVGSVGElement): SVGSVGElement {
  const copy = drawn.cloneNode(true) as SVGSVGElement;
  const parts = [...copy.querySelectorAll("*")];
  drawn.querySelectorAll("*").forEach((part, at) => {
    const style = getComputedStyle(part);
    const mine = parts[at];
    if (!mine) return;
    for (const name of PROPERTIES) mine.setAttribute(name, style.getPropertyValue(name));
    mine.removeAttribute("class");
  });
  return copy;
}

function legendOf(items: readonly HTMLElement[], y: number): SVGElement[] {
  let x = EDGE;
  return items.flatMap((item) => {
    const swatch = item.querySelector(".swatch");
    const fill = swatch ? getComputedStyle(swatch).backgroundColor : "currentColor";
    const name = text(item.textContent ?? "", y, item, 11, 400, x + 14);
    const box = newSvg("rect", { x, y: y - 9, width: 10, height: 10, fill });
    x += item.getBoundingClientRect().width + 12;
    return [box, name];
  });
}

function text(said: string, y: number, like: Element, size: number, weight: number, x = EDGE): SVGElement {
  const { color, fontFamily } = getComputedStyle(like);
  const attributes = { "font-family": fontFamily, "font-size": size, "font-weight": weight };
  const made = newSvg("text", { x, y, fill: color, ...attributes });
  made.textContent = said;
  return made;
}

function newSvg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string | number>>,
): SVGElementTagNameMap[K] {
  const made = document.createElementNS(SVG, tag);
  setAll(made, attributes);
  return made;
}

function setAll(target: Element, attributes: Readonly<Record<string, string | number>>): void {
  for (const [name, value] of Object.entries(attributes)) target.setAttribute(name, String(value));
}
