// Numbers for people.

const NONE = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Three significant digits, and no exponent where it can be done without; what is no finite number as it is. */
export function digits(value) {
  if (typeof value === "bigint") return value.toString();
  if (value === null || value === undefined) return NONE;
  if (!Number.isFinite(value)) return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.001 || size >= 1e6) return value.toExponential(2);
  return size >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

/** A value of a tensor: integers whole, others with five digits. */
export function element(value) {
  if (typeof value !== "number" || Number.isInteger(value) || !Number.isFinite(value)) return String(value);
  return String(Number(value.toPrecision(5)));
}

export function seconds(value) {
  if (!known(value)) return NONE;
  if (value === 0) return "0 s";
  const units = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
  const [unit, size] = units.find(([, least]) => value >= least) ?? units[3];
  return `${digits(value / size)} ${unit}`;
}

export const count = (value) => (known(value) ? Math.round(value).toLocaleString("en") : NONE);

export const shape = (sizes) => (sizes === null ? "any shape" : `[${sizes.join(", ")}]`);
