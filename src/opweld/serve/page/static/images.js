// An image as a tensor: drawn at the size that the model wants, then as numbers.

import { el, labelled, select } from "./dom.js";
import { inputSize, isFloat } from "./tensors.js";

const CHANNELS = [1, 3, 4];

/** Numbers of a pixel, of 0 to 1: (value - mean) / std. */
const SCALES = {
  unit: { words: "0 to 1", mean: [0, 0, 0], std: [1, 1, 1] },
  signed: { words: "-1 to 1", mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] },
  imagenet: { words: "ImageNet's mean and deviation", mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] },
  bytes: { words: "0 to 255", mean: [0, 0, 0], std: [1 / 255, 1 / 255, 1 / 255] },
  own: { words: "a mean and deviation of my own" },
};

/** Whether an input may be an image: four dims, one of which may be the channels. */
export function mayBeImage({ dtype, shape }) {
  if (shape?.length !== 4 || !(isFloat(dtype) || dtype === "uint8")) return false;
  return [shape[1], shape[3]].some((size) => CHANNELS.includes(size));
}

/** Fields for a file, and how it becomes numbers. `sizes` tells the size of a dim. */
export function imageField(spec, sizes) {
  const file = el("input", { type: "file", accept: "image/*" });
  const preview = el("canvas", { class: "preview", hidden: true, role: "img", "aria-label": "The image as it is sent" });
  const layout = select(
    [
      ["NCHW", "channels first (NCHW)"],
      ["NHWC", "channels last (NHWC)"],
    ],
    CHANNELS.includes(spec.shape[1]) ? "NCHW" : "NHWC",
  );
  const fit = select([
    ["cover", "cut to fit"],
    ["stretch", "stretched"],
  ]);
  const order = select([
    ["RGB", "red, green, blue"],
    ["BGR", "blue, green, red"],
  ]);
  const means = el("input", { value: "0, 0, 0", inputmode: "decimal" });
  const deviations = el("input", { value: "1, 1, 1", inputmode: "decimal" });
  const own = el("div", { class: "row", hidden: true }, labelled("Mean", means), labelled("Deviation", deviations));
  const scale = select(
    Object.entries(SCALES).map(([name, { words }]) => [name, words]),
    "imagenet",
    (chosen) => (own.hidden = chosen !== "own"),
  );

  const read = async () => {
    if (!file.files.length) throw new Error(`${spec.name}: choose an image`);
    const planar = layout.value === "NCHW";
    const [batch, ...rest] = spec.shape.map(sizes);
    const [channels, height, width] = planar ? rest : [rest[2], rest[0], rest[1]];
    if (!CHANNELS.includes(channels)) throw new Error(`${spec.name}: ${channels} channels are no image`);
    inputSize({ ...spec, shape: spec.shape.map(sizes) });
    const pixels = await drawn(file.files[0], preview, width, height, fit.value);
    const { mean, std } = isFloat(spec.dtype) ? chosenScale() : SCALES.bytes;
    const one = numbers(pixels, { channels, planar, mean, std, reversed: order.value === "BGR" });
    const values = new Float32Array(batch * one.length);
    for (let i = 0; i < batch; i++) values.set(one, i * one.length);
    const exact = isFloat(spec.dtype) ? values : values.map(Math.round);
    return { ...spec, shape: spec.shape.map(sizes), values: exact };
  };
  const chosenScale = () =>
    scale.value === "own" ? { mean: three(means.value), std: three(deviations.value) } : SCALES[scale.value];

  const fields = [labelled("Image", file), labelled("Layout", layout), labelled("Size", fit), labelled("Colours", order)];
  if (isFloat(spec.dtype)) fields.push(labelled("Numbers", scale), own);
  return { element: el("div", { class: "image-field" }, el("div", { class: "grid" }, fields), preview), read };
}

function three(text) {
  const found = text.split(/[\s,;]+/).filter(Boolean).map(Number);
  if (![1, 3].includes(found.length) || found.some(Number.isNaN)) throw new Error(`${text}: expected one number or three`);
  return found.length === 1 ? [found[0], found[0], found[0]] : found;
}

/** The pixels of a file at a size, RGBA. */
async function drawn(file, canvas, width, height, fit) {
  let image;
  try {
    image = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name} is no image that this browser reads`);
  }
  canvas.width = width;
  canvas.height = height;
  canvas.hidden = false;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  const part = Math.min(image.width / width, image.height / height);
  const [w, h] = fit === "cover" ? [width * part, height * part] : [image.width, image.height];
  context.drawImage(image, (image.width - w) / 2, (image.height - h) / 2, w, h, 0, 0, width, height);
  image.close();
  return context.getImageData(0, 0, width, height).data;
}

/** RGBA as numbers of a layout: grey where there is one channel. */
function numbers(pixels, { channels, planar, mean, std, reversed }) {
  const count = pixels.length / 4;
  const made = new Float32Array(count * channels);
  const grey = [0.299, 0.587, 0.114];
  for (let i = 0; i < count; i++) {
    const pixel = pixels.subarray(4 * i, 4 * i + 4);
    for (let c = 0; c < channels; c++) {
      const from = reversed && c < 3 ? 2 - c : c;
      const value = channels === 1 ? grey.reduce((sum, part, k) => sum + part * pixel[k], 0) : pixel[from];
      const scaled = c === 3 ? value / 255 : (value / 255 - mean[c]) / std[c];
      made[planar ? c * count + i : i * channels + c] = scaled;
    }
  }
  return made;
}
