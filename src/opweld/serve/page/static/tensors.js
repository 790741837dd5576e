// Tensors as the Open Inference Protocol sends them, in its binary form: exact for every type, also where JSON is not.

const text = new TextEncoder();
const words = new TextDecoder();

/** By dtype: the protocol's name, and how bytes become values that JavaScript computes with, and back. */
const TYPES = {
  bool: { name: "BOOL", store: Uint8Array, read: (values) => Array.from(values, Boolean), write: Number },
  uint8: integer("UINT8", Uint8Array),
  uint16: integer("UINT16", Uint16Array),
  uint32: integer("UINT32", Uint32Array),
  uint64: integer("UINT64", BigUint64Array, BigInt),
  int8: integer("INT8", Int8Array),
  int16: integer("INT16", Int16Array),
  int32: integer("INT32", Int32Array),
  int64: integer("INT64", BigInt64Array, BigInt),
  float16: { name: "FP16", store: Uint16Array, read: (values) => Float32Array.from(values, fromHalf), write: toHalf },
  bfloat16: { name: "BF16", store: Uint16Array, read: (values) => Float32Array.from(values, fromBF16), write: toBF16 },
  float32: { name: "FP32", store: Float32Array },
  float64: { name: "FP64", store: Float64Array },
  string: { name: "BYTES" },
};

function integer(name, store, made = Number) {
  const write = (value) => {
    const wanted = made(value);
    if (store.of(wanted)[0] !== wanted) throw new RangeError(`${value}`);
    return wanted;
  };
  return { name, store, write };
}

const DTYPES = Object.fromEntries(Object.entries(TYPES).map(([dtype, { name }]) => [name, dtype]));

const LARGEST = 1 << 24;

export const isFloat = (dtype) => dtype.includes("float");
export const sizeOf = (shape) => shape.reduce((product, size) => product * size, 1);

/** The number of values of an input. Throws Error for one that would keep the tab busy for long. */
export function inputSize({ name, shape }) {
  const size = sizeOf(shape);
  if (size > LARGEST) throw new Error(`${name}: ${shape.join(" × ")} are more values than this page makes`);
  return size;
}

/** The answer of a model to tensors {name, dtype, shape, values}: the same of its outputs. Throws ServerError, and
 * Error for values that a dtype has not. */
export async function infer(ask, model, version, inputs, signal) {
  const bodies = inputs.map(encoded);
  const header = text.encode(
    JSON.stringify({
      inputs: inputs.map((one, i) => ({
        name: one.name,
        datatype: TYPES[one.dtype].name,
        shape: one.shape,
        parameters: { binary_data_size: bodies[i].byteLength },
      })),
      parameters: { binary_data_output: true },
    }),
  );
  const path = `/v2/models/${encodeURIComponent(model)}/versions/${encodeURIComponent(version)}/infer`;
  const answer = await ask(path, {
    method: "POST",
    headers: {
      "Content-Type": "application/octet-stream",
      "Inference-Header-Content-Length": String(header.byteLength),
    },
    body: new Blob([header, ...bodies]),
    signal,
  });
  const length = Number(answer.headers.get("Inference-Header-Content-Length"));
  return decoded(await answer.arrayBuffer(), length);
}

function decoded(body, length) {
  const { outputs } = JSON.parse(words.decode(length ? body.slice(0, length) : body));
  let at = length;
  return outputs.map(({ name, datatype, shape, data, parameters }) => {
    const dtype = DTYPES[datatype] ?? datatype;
    const size = parameters?.binary_data_size;
    if (size === undefined) return { name, dtype, shape, values: data.flat(Infinity) };
    const own = body.slice(at, (at += size)); // a slice of its own is aligned
    return { name, dtype, shape, values: valuesOf(dtype, own) };
  });
}

function valuesOf(dtype, bytes) {
  if (dtype === "string") return stringsOf(new DataView(bytes));
  const { store, read } = TYPES[dtype];
  const stored = new store(bytes);
  return read ? read(stored) : stored;
}

function stringsOf(view) {
  const found = [];
  for (let at = 0; at < view.byteLength; ) {
    const size = view.getUint32(at, true);
    found.push(words.decode(new Uint8Array(view.buffer, at + 4, size)));
    at += 4 + size;
  }
  return found;
}

function encoded({ name, dtype, values }) {
  if (dtype === "string") return stringBytes(values);
  const { store, write } = TYPES[dtype];
  try {
    return store.from(values, write && ((value) => write(value)));
  } catch {
    throw new Error(`${name}: a value is none of ${dtype}`);
  }
}

function stringBytes(values) {
  const parts = Array.from(values, (value) => text.encode(String(value)));
  const bytes = new Uint8Array(parts.reduce((size, part) => size + 4 + part.length, 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const part of parts) {
    view.setUint32(at, part.length, true);
    bytes.set(part, at + 4);
    at += 4 + part.length;
  }
  return bytes;
}

const scratch = new DataView(new ArrayBuffer(4));

function fromBF16(bits) {
  scratch.setUint32(0, bits << 16);
  return scratch.getFloat32(0);
}

function toBF16(value) {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  if (Number.isNaN(value)) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16; // to the nearest, ties to even
}

function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

function toHalf(value) {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const exponent = Math.max(-14, Math.floor(Math.log2(size || 2 ** -14)));
  const steps = nearest(size / 2 ** (exponent - 10)); // 1024 and more where it is normal
  return sign | (steps < 1024 ? steps : ((exponent + 15) << 10) + (steps - 1024));
}

/** The nearest integer, ties to even. */
function nearest(value) {
  const low = Math.floor(value);
  const over = value - low;
  return over > 0.5 || (over === 0.5 && low % 2) ? low + 1 : low;
}
