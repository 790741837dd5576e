// Small drawings: a shape in SVG that stretches, and its words in HTML, which do not.

import { el, svg } from "./dom.js";

const WIDTH = 100;
const HEIGHT = 100;

/** A figure: what is drawn, words under its ends and middle, and what a reader of the screen hears. */
function figure(shapes, words, label) {
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": true });
  drawing.append(...shapes);
  const axis = el("div", { class: "axis", "aria-hidden": true }, words.map((text) => el("span", { text })));
  return el("figure", { class: "chart", role: "img", "aria-label": label }, drawing, axis);
}

/** Columns from zero up, or down where values are below: [value, title, class] of each. */
export function columns(values, words, label) {
  const finite = values.map(([value]) => value).filter(Number.isFinite);
  const top = finite.reduce((a, b) => Math.max(a, b), 0);
  const bottom = finite.reduce((a, b) => Math.min(a, b), 0);
  const scale = HEIGHT / (top - bottom || 1);
  const step = WIDTH / values.length;
  const shapes = values.map(([value, title, kind = ""], i) => {
    const height = Number.isFinite(value) ? Math.abs(value) * scale : 0;
    const y = (top - Math.max(value, 0)) * scale;
    const width = values.length > 60 ? step : step * 0.84;
    const bar = { x: i * step, y: Number.isFinite(y) ? y : 0, width, height, class: `bar ${kind}` };
    return svg("rect", bar, svg("title", { text: title }));
  });
  return figure(shapes, words, label);
}

/** A line through values from zero up, oldest first; gaps where one is null. */
export function line(values, words, label) {
  const top = values.reduce((most, value) => Math.max(most, value ?? 0), 0) || 1;
  const x = (i) => (values.length > 1 ? (i * WIDTH) / (values.length - 1) : 0);
  let path = "";
  values.forEach((value, i) => {
    if (value === null) return;
    const begins = i === 0 || values[i - 1] === null;
    path += `${begins ? "M" : "L"}${x(i).toFixed(2)} ${(HEIGHT - (value / top) * (HEIGHT - 4)).toFixed(2)}`;
  });
  return figure([svg("path", { d: path, class: "line" })], words, label);
}

const COLOURS = [
  [68, 1, 84],
  [59, 82, 139],
  [33, 145, 140],
  [94, 201, 98],
  [253, 231, 37],
]; // viridis

function colour(part) {
  const at = Math.min(Math.max(part, 0), 1) * (COLOURS.length - 1);
  const i = Math.min(Math.floor(at), COLOURS.length - 2);
  return COLOURS[i].map((from, k) => from + (COLOURS[i + 1][k] - from) * (at - i));
}

const WIDEST = 512;

/** A matrix as colours, from its least to its largest value; every second one and so on where it is large. */
export function heatMap(value, rows, columnCount, label) {
  const skip = Math.max(1, Math.ceil(Math.max(rows, columnCount) / WIDEST));
  const width = Math.ceil(columnCount / skip);
  const height = Math.ceil(rows / skip);
  const cells = new Float64Array(width * height);
  let least = Infinity;
  let most = -Infinity;
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const one = Number(value(y * skip, x * skip));
      cells[y * width + x] = one;
      if (Number.isFinite(one)) {
        least = Math.min(least, one);
        most = Math.max(most, one);
      }
    }
  const canvas = el("canvas", { class: "heat-map", width, height, role: "img", "aria-label": label });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  cells.forEach((one, i) => {
    const shade = Number.isFinite(one) ? colour((one - least) / (most - least || 1)) : [128, 128, 128];
    image.data.set([...shade, 255], 4 * i);
  });
  context.putImageData(image, 0, 0);
  return { element: canvas, least, most, skip };
}
