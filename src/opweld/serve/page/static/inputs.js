// The form of a model's inputs: for each, where its values come from.

import { el, labelled, number, select } from "./dom.js";
import { shape as shapeText } from "./format.js";
import { imageField, mayBeImage } from "./images.js";
import { inputSize, isFloat, sizeOf } from "./tensors.js";

/** A form of all inputs: `element`, and `read`, the tensors that it says. Reading throws Error where it says none. */
export function inputForm(specs) {
  const sizes = sizeFields(specs);
  const inputs = specs.map((spec) => oneInput(spec, sizes.of));
  const element = el("div", { class: "inputs" }, sizes.element, inputs.map((input) => input.element));
  return { element, read: () => Promise.all(inputs.map((input) => input.read())) };
}

/** A field for each dim that a call chooses. */
function sizeFields(specs) {
  const fields = new Map();
  for (const { shape, dtype } of specs)
    for (const [i, dim] of (shape ?? []).entries())
      if (typeof dim === "string" && !fields.has(dim))
        fields.set(dim, number(usualSize(i, shape, dtype), 0, { "data-dim": dim }));
  const of = (dim) => (typeof dim === "number" ? dim : Math.max(0, Math.trunc(Number(fields.get(dim).value))));
  const shown = [...fields].map(([dim, field]) => labelled(dim, field));
  const element = fields.size
    ? el("fieldset", { class: "sizes" }, el("legend", { text: "Sizes" }), el("div", { class: "grid" }, shown))
    : null;
  return { element, of };
}

function usualSize(i, shape, dtype) {
  if (i === 0) return 1;
  if (shape.length !== 4) return 8;
  return mayBeImage({ shape, dtype }) ? 224 : 3;
}

function oneInput(spec, size) {
  const ways = waysOf(spec, size);
  const place = el("div");
  let chosen = null;
  const choose = (name) => {
    chosen = ways[name].make();
    place.replaceChildren(chosen.element);
  };
  const list = select(
    Object.entries(ways).map(([name, { words }]) => [name, words]),
    usualWay(spec, ways),
    choose,
  );
  choose(list.value);
  const heading = el(
    "legend",
    {},
    el("code", { text: spec.name }),
    el("span", { class: "hint", text: ` ${spec.dtype} ${shapeText(spec.shape)}` }),
  );
  const element = el("fieldset", { class: "input", "data-input": spec.name }, heading, labelled("Values", list), place);
  return { element, read: () => chosen.read() };
}

/** Where values of an input may come from: words for it, and what makes its fields. */
function waysOf(spec, size) {
  const text = { words: "text", make: () => textField(spec, size) };
  const json = { words: "JSON", make: () => jsonField(spec, size) };
  if (spec.dtype === "string") return { text, json };
  const ways = {
    random: { words: "random", make: () => randomField(spec, size) },
    one: { words: "one value everywhere", make: () => fillField(spec, size) },
    json,
  };
  return mayBeImage(spec) ? { image: { words: "an image", make: () => imageField(spec, size) }, ...ways } : ways;
}

function usualWay({ name, shape }, ways) {
  if (shape === null && !ways.text) return "json";
  if (ways.one && /mask|type/i.test(name)) return "one"; // of transformers: all positions, of one text
  return Object.keys(ways)[0];
}

/** What is asked of an input whose model does not fix the rank: its shape. */
function shapeField(spec, size) {
  if (spec.shape !== null) return { element: null, read: () => spec.shape.map(size) };
  const field = el("input", { value: "1", inputmode: "numeric" });
  const read = () => {
    const sizes = field.value.split(/[\s,;×x]+/).filter(Boolean).map(Number);
    if (sizes.some((one) => !Number.isInteger(one) || one < 0)) throw new Error(`${spec.name}: ${field.value} is no shape`);
    return sizes;
  };
  return { element: labelled("Shape", field, "Sizes with commas between; nothing for a single value."), read };
}

function randomField(spec, size) {
  const where = shapeField(spec, size);
  const below = number(100, 1);
  const kind = select([
    ["normal", "normal: mean 0, deviation 1"],
    ["uniform", "even between 0 and 1"],
  ]);
  const seed = number(0, 0);
  const float = isFloat(spec.dtype);
  const how = spec.dtype === "bool" ? null : float ? labelled("Distribution", kind) : labelled("Below", below);
  const read = async () => {
    const shape = where.read();
    const next = randomNumbers(Math.trunc(Number(seed.value)));
    const most = spec.dtype === "bool" ? 2 : Number(below.value);
    const normal = () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
    const make = !float ? () => Math.floor(next() * most) : kind.value === "normal" ? normal : next;
    return { ...spec, shape, values: Float64Array.from({ length: inputSize({ ...spec, shape }) }, make) };
  };
  return { element: el("div", { class: "grid" }, where.element, how, labelled("Seed", seed)), read };
}

/** Numbers from 0 up to 1, the same for the same seed: mulberry32. */
function randomNumbers(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function fillField(spec, size) {
  const where = shapeField(spec, size);
  const value = el("input", { type: "number", step: "any", value: /type/i.test(spec.name) ? 0 : 1 });
  const read = async () => {
    const shape = where.read();
    return { ...spec, shape, values: new Float64Array(inputSize({ ...spec, shape })).fill(Number(value.value)) };
  };
  return { element: el("div", { class: "grid" }, where.element, labelled("Value", value)), read };
}

const SHOWN = 64;

function jsonField(spec, size) {
  const example = spec.shape === null ? [0] : nested(spec.shape.map(size), spec.dtype === "string" ? "" : 0);
  const field = el("textarea", { rows: 4, spellcheck: "false", value: example ? JSON.stringify(example) : "[]" });
  const read = async () => {
    let given;
    try {
      given = JSON.parse(field.value);
    } catch (error) {
      throw new Error(`${spec.name}: this is no JSON: ${error.message}`);
    }
    const flat = Array.isArray(given) && !given.some(Array.isArray);
    const declared = spec.shape?.map(size);
    const fits = flat && declared && declared.length !== 1 && sizeOf(declared) === given.length;
    return { ...spec, shape: fits ? declared : shapeOf(given, spec.name), values: [given].flat(Infinity) };
  };
  return { element: labelled("JSON", field, "Nested lists, as deep as the input has dims."), read };
}

/** Zeros of a small shape, as nested lists; null where there are too many. */
function nested(shape, zero) {
  if (sizeOf(shape) > SHOWN) return null;
  return shape.reduceRight((inner, count) => Array.from({ length: count }, () => inner), zero);
}

function shapeOf(given, name) {
  if (!Array.isArray(given)) return [];
  const inner = given.map((one) => shapeOf(one, name));
  if (new Set(inner.map(String)).size > 1) throw new Error(`${name}: rows differ in their sizes`);
  return [given.length, ...(inner[0] ?? [])];
}

function textField(spec, size) {
  const field = el("textarea", { rows: 3 });
  const read = async () => {
    const lines = field.value.split("\n");
    const declared = spec.shape?.map(size) ?? [lines.length];
    const whole = sizeOf(declared) === 1;
    const shape = whole || sizeOf(declared) === lines.length ? declared : [lines.length, ...declared.slice(1)];
    return { ...spec, shape, values: whole ? [field.value] : lines };
  };
  return { element: labelled("Text", field, "A line is an element; all of it, where there is but one."), read };
}
