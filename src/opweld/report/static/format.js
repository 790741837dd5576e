// Numbers for people.

const NONE = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Three significant digits, and no exponent where it can be done without. */
function digits(value) {
  if (!known(value)) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.001 || size >= 1e6) return value.toExponential(2);
  return size >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

function scaled(value, steps) {
  if (!known(value)) return NONE;
  const [unit, size] = steps.find(([, least]) => Math.abs(value) >= least) ?? steps[steps.length - 1];
  return `${digits(value / size)} ${unit}`.trim();
}

const seconds = (value) =>
  value === 0
    ? "0 s"
    : scaled(value, [
        ["s", 1],
        ["ms", 1e-3],
        ["µs", 1e-6],
        ["ns", 1e-9],
      ]);
const bytes = (value) =>
  scaled(value, [
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 1024],
    ["B", 1],
  ]);
const count = (value) => (known(value) ? Math.round(value).toLocaleString("en") : NONE);
const many = (value) =>
  scaled(value, [
    ["T", 1e12],
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
    ["", 1],
  ]);
const rate = (value, unit) =>
  scaled(value, [
    [`T${unit}`, 1e12],
    [`G${unit}`, 1e9],
    [`M${unit}`, 1e6],
    [`k${unit}`, 1e3],
    [unit, 1],
  ]);
const percent = (value) => (known(value) ? `${digits(value * 100)} %` : NONE);
const plural = (value, one, more = `${one}s`) => `${count(value)} ${value === 1 ? one : more}`;

/** An error as a part of a scale; JSON has no infinity, so that this may be the word. */
const error = (value) =>
  value === "infinity" ? "∞" : known(value) ? (value === 0 ? "0" : value.toExponential(1)) : NONE;

/** The value of what is {"value", "formula"}, or a plain number. */
const amount = (given) => (given !== null && typeof given === "object" ? given.value : given);

/** A long name, its middle left out: ends tell names of a model apart. */
function shorten(name, most) {
  if (name.length <= most) return name;
  const tail = Math.ceil((most - 1) * 0.65);
  return `${name.slice(0, most - 1 - tail)}…${name.slice(-tail)}`;
}

/** The last parts of a path as exporters write names: /encoder/layer.0/MatMul. */
function leaf(name) {
  const parts = name.split("/").filter(Boolean);
  return parts.length ? parts.slice(-2).join("/") : name;
}
