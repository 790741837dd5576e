// What a model answered, shown: largest values, bars, a map of colours, texts.

import { columns, heatMap } from "./charts.js";
import { el, labelled, number, table } from "./dom.js";
import { count, digits, element, shape as shapeText } from "./format.js";
import { isFloat, sizeOf } from "./tensors.js";

const TOP = 5;
const BARS = 200;
const ROWS = 10;
const VALUES = 1000;

/** A card for an output {name, dtype, shape, values}. */
export function answer(output) {
  const { name, dtype, shape } = output;
  const heading = el(
    "h4",
    {},
    el("code", { text: name }),
    el("span", { class: "hint", text: ` ${dtype} ${shapeText(shape)}` }),
  );
  return el("div", { class: "answer", "data-output": name }, heading, shown(output), allValues(output));
}

function shown({ name, dtype, shape, values }) {
  if (!values.length) return el("p", { text: "It is empty." });
  if (dtype === "string") return texts(values);
  if (values.length === 1) return el("p", { class: "single", text: element(values[0]) });
  const wide = shape.at(-1);
  const parts = [el("p", { class: "hint", text: summary(values) })];
  const leading = sizeOf(shape.slice(0, -1));
  if (leading === 1) parts.push(vector(name, dtype, values));
  else if (shape.length === 2 && leading <= ROWS) parts.push(largestOfRows(values, leading, wide));
  if (leading > 1) parts.push(maps(name, shape, values));
  return parts;
}

function texts(values) {
  const items = Array.from(values.slice(0, BARS), (text) => el("li", { text }));
  const more = values.length > BARS ? el("p", { class: "hint", text: `and ${count(values.length - BARS)} more` }) : null;
  return [el("ol", { class: "texts" }, items), more];
}

function summary(values) {
  let [least, most, sum, strange] = [Infinity, -Infinity, 0, 0];
  for (const given of values) {
    const value = Number(given);
    if (!Number.isFinite(value)) strange++;
    else {
      least = Math.min(least, value);
      most = Math.max(most, value);
      sum += value;
    }
  }
  const finite = values.length - strange;
  const range = finite ? `from ${digits(least)} to ${digits(most)}, mean ${digits(sum / finite)}` : "no finite value";
  return strange ? `${range}; ${count(strange)} not finite` : range;
}

/** The largest values by their index, which is the class of a classifier, and bars of all. */
function vector(name, dtype, values) {
  const order = largest(values, TOP);
  const place = el("div");
  const asParts = el("input", { type: "checkbox", on: { change: () => show() } });
  const show = () => {
    const part = asParts.checked ? softmax(values) : null;
    const told = (i) => (part ? `${digits(part(i) * 100)} %` : element(values[i]));
    const rows = order.map((i) => [String(i), told(i)]);
    place.replaceChildren(table([["index", false], [part ? "probability" : "value", true]], rows));
  };
  show();
  const toggle = isFloat(dtype) ? el("label", { class: "check" }, asParts, "as probabilities (softmax)") : null;
  return el("div", { class: "vector" }, el("div", {}, place, toggle), bars(name, values));
}

function bars(name, values) {
  const each = Math.ceil(values.length / BARS);
  const found = [];
  for (let i = 0; i < values.length; i += each) {
    const end = Math.min(i + each, values.length);
    let most = i;
    for (let k = i; k < end; k++) if (Math.abs(Number(values[k])) > Math.abs(Number(values[most]))) most = k;
    found.push([Number(values[most]), `${most}: ${element(values[most])}`]);
  }
  return columns(found, ["0", String(values.length - 1)], `The values of ${name} by their index`);
}

function largestOfRows(values, rows, wide) {
  const found = Array.from({ length: rows }, (_, row) => {
    const own = values.slice(row * wide, (row + 1) * wide);
    const [i] = largest(own, 1);
    return [String(row), String(i), element(own[i])];
  });
  return table([["row", true], ["largest at", true], ["value", true]], found);
}

/** Indices of the largest values, the largest first. */
function largest(values, most) {
  const kept = [];
  for (let i = 0; i < values.length; i++) {
    if (kept.length === most && !(values[i] > values[kept[most - 1]])) continue;
    let at = kept.length;
    while (at > 0 && values[i] > values[kept[at - 1]]) at--;
    kept.splice(at, 0, i);
    if (kept.length > most) kept.pop();
  }
  return kept;
}

function softmax(values) {
  const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const total = values.reduce((sum, value) => sum + Math.exp(value - most), 0);
  return (i) => Math.exp(values[i] - most) / total;
}

/** The last two dims as colours; fields choose the others. */
function maps(name, shape, values) {
  const [rows, wide] = shape.slice(-2);
  const place = el("div");
  const fields = shape.slice(0, -2).map((size, i) => {
    const field = number(0, 0, { max: size - 1, on: { input: () => show() } });
    return size > 1 ? { field, element: labelled(`Index of dim ${i}`, field) } : { field, element: null };
  });
  const show = () => {
    const at = fields.map(({ field }, i) => Math.min(Math.max(0, Math.trunc(Number(field.value))), shape[i] - 1));
    const first = at.reduce((index, own, i) => index * shape[i] + own, 0) * rows * wide;
    const map = heatMap((y, x) => values[first + y * wide + x], rows, wide, `The values of ${name} as colours`);
    const words = `${rows} × ${wide}, dark ${digits(map.least)} to light ${digits(map.most)}`;
    const note = map.skip > 1 ? `; one value of ${map.skip} each way` : "";
    place.replaceChildren(map.element, el("p", { class: "hint", text: words + note }));
  };
  show();
  const elements = fields.map((one) => one.element).filter(Boolean);
  return el("div", { class: "maps" }, elements.length ? el("div", { class: "grid" }, elements) : null, place);
}

function allValues({ values }) {
  const text = Array.from(values.slice(0, VALUES), element).join(", ");
  const more = values.length > VALUES ? `, … (${count(values.length)} in all)` : "";
  return el("details", {}, el("summary", { text: "Values" }), el("pre", { text: text + more }));
}
