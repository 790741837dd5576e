// What the server counts: Prometheus' text format, and what follows from two readings of it.

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \S+)?$/;
const LABEL = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPES = { n: "\n" };

const number = (text) => Number(text.replace("Inf", "Infinity"));

/** A reading: by name of a sample, all that have it as [labels, value] pairs. */
export function parse(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const parts = line.startsWith("#") ? null : LINE.exec(line);
    if (!parts) continue;
    const labels = {};
    for (const [, name, value] of (parts[2] ?? "").matchAll(LABEL))
      labels[name] = value.replace(/\\(.)/g, (_, escaped) => ESCAPES[escaped] ?? escaped);
    if (!found.has(parts[1])) found.set(parts[1], []);
    found.get(parts[1]).push([labels, number(parts[3])]);
  }
  return found;
}

/** The samples of a name whose labels are as in `wanted`. */
export function matching(reading, name, wanted = {}) {
  const own = Object.entries(wanted);
  return (reading?.get(name) ?? []).filter(([labels]) => own.every(([label, value]) => labels[label] === value));
}

/** The sum of the samples of a name; null where there is none. */
export function total(reading, name, wanted) {
  const found = matching(reading, name, wanted);
  return found.length ? found.reduce((sum, [, value]) => sum + value, 0) : null;
}

/** A histogram as [upper bound, observations up to it and above the one before] pairs; empty where there is none. */
export function histogram(reading, name, wanted) {
  const upTo = new Map();
  for (const [labels, value] of matching(reading, `${name}_bucket`, wanted)) {
    const bound = number(labels.le);
    upTo.set(bound, (upTo.get(bound) ?? 0) + value);
  }
  const bounds = [...upTo.keys()].sort((a, b) => a - b);
  return bounds.map((bound, i) => [bound, upTo.get(bound) - (i ? upTo.get(bounds[i - 1]) : 0)]);
}

/** What a histogram gained since an earlier one of the same buckets, or has where there is no earlier one. */
export function gained(now, before) {
  const had = new Map(before);
  return now.map(([bound, value]) => [bound, Math.max(0, value - (had.get(bound) ?? 0))]);
}

/** A quantile of a histogram, as Prometheus estimates it: even within a bucket, at most the last finite bound. Null
 * where nothing was observed. */
export function quantile(buckets, part) {
  const all = buckets.reduce((sum, [, value]) => sum + value, 0);
  let left = all * part;
  let lower = 0;
  if (!all) return null;
  for (const [upper, value] of buckets) {
    if (left <= value && value) return Number.isFinite(upper) ? lower + ((upper - lower) * left) / value : lower;
    left -= value;
    if (Number.isFinite(upper)) lower = upper;
  }
  return lower;
}

const SPAN_S = 60;

/** Readings of the last minute. */
export class Readings {
  constructor() {
    this.kept = [];
  }

  add(reading, now = performance.now() / 1000) {
    this.kept.push({ reading, now });
    while (this.kept.length > 2 && this.kept[1].now < now - SPAN_S) this.kept.shift();
  }

  get last() {
    return this.kept.at(-1)?.reading;
  }

  /** The one before the last minute, or the first one. */
  get first() {
    return this.kept[0]?.reading;
  }

  get span() {
    return this.kept.length > 1 ? this.kept.at(-1).now - this.kept[0].now : 0;
  }

  /** How much a counter gained a second, in the last minute; null where that cannot be told. */
  rate(name, wanted) {
    const now = total(this.last, name, wanted);
    if (now === null || !this.span) return null;
    return Math.max(0, now - (total(this.first, name, wanted) ?? 0)) / this.span;
  }

  /** A value of every reading, oldest first: what `value` makes of it and of the one before. */
  series(value) {
    return this.kept.slice(1).map(({ reading, now }, i) => value(reading, this.kept[i].reading, now - this.kept[i].now));
  }
}
