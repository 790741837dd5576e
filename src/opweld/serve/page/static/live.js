// What the server does now: /metrics, read every second while somebody looks.

import { columns, line } from "./charts.js";
import { el, table } from "./dom.js";
import { count, digits, seconds } from "./format.js";
import { gained, histogram, matching, parse, quantile, Readings, total } from "./samples.js";

const EVERY_MS = 1000;

/** Calls `told` with the readings after each one, and with null where the server does not answer. */
export function watch(told) {
  const readings = new Readings();
  const read = async () => {
    try {
      const answer = await fetch("/metrics", { cache: "no-store", redirect: "error" });
      if (!answer.ok) throw new Error(answer.statusText);
      readings.add(parse(await answer.text()));
      told(readings);
    } catch {
      told(null);
    }
  };
  const next = async () => {
    if (!document.hidden) await read();
    setTimeout(next, EVERY_MS);
  };
  next();
}

/** What is shown of models of a kind: names of samples, and words for them. */
const SHOWN = {
  tensors: {
    latencies: [
      ["opweld_model_call_seconds", "Latency"],
      ["opweld_model_queue_seconds", "Time in the queue"],
      ["opweld_model_run_seconds", "Time of a run"],
    ],
    rate: ["opweld_model_calls_total", "answers a second", { outcome: "answered" }],
    gauges: [
      ["opweld_model_calls_waiting", "waiting"],
      ["opweld_model_calls_running", "running"],
    ],
    counters: [
      ["opweld_model_calls_total", "failed", { outcome: "failed" }],
      ["opweld_model_calls_total", "refused", { outcome: "refused" }],
    ],
    batch: "opweld_model_batch_rows",
  },
  chat: {
    latencies: [
      ["opweld_time_to_first_token_seconds", "Time to the first token"],
      ["opweld_time_between_tokens_seconds", "Time between tokens"],
    ],
    rate: ["opweld_generated_tokens_total", "tokens a second"],
    gauges: [
      ["opweld_requests_waiting", "waiting"],
      ["opweld_requests_running", "running"],
    ],
    counters: [],
  },
  embed: { latencies: [], rate: ["opweld_prompt_tokens_total", "tokens a second"], gauges: [], counters: [] },
};
SHOWN.rank = SHOWN.embed;

const QUANTILES = [0.5, 0.9, 0.99];

/** The panel of a model: `element`, and `show`, which is called with the readings. */
export function livePanel(model) {
  const shown = SHOWN[model.kind];
  const wanted = { model: model.name, ...(model.version ? { version: model.version } : {}) };
  const tiles = el("div", { class: "tiles" });
  const charts = el("div", { class: "charts" });
  const element = el("section", { class: "card", "aria-label": "Live" }, el("h3", { text: "Live" }), tiles, charts);
  const show = (readings) => {
    const now = readings.last;
    const [counter, words, which] = shown.rate;
    const facts = [[words, digits(readings.rate(counter, { ...wanted, ...which }))]];
    const latency = shown.latencies[0];
    if (latency) {
      const { buckets } = recent(readings, latency[0], wanted);
      for (const part of QUANTILES) facts.push([`p${part * 100}`, seconds(quantile(buckets, part))]);
    }
    for (const [name, label, which] of [...shown.gauges, ...shown.counters])
      facts.push([label, count(total(now, name, { ...wanted, ...which }))]);
    if (shown.batch) facts.push(["rows a run", digits(meanOf(now, shown.batch, wanted))]);
    tiles.replaceChildren(...facts.map(tile));
    const drawings = shown.latencies.map(([name, title]) => latencyChart(readings, name, title, wanted));
    if (shown.batch) drawings.push(batchChart(readings, shown.batch, wanted));
    drawings.push(rateChart(readings, shown.rate, wanted));
    charts.replaceChildren(...drawings.filter(Boolean));
  };
  return { element, show };
}

const tile = ([label, value]) =>
  el("div", { class: "tile" }, el("span", { class: "value", text: value }), el("span", { class: "hint", text: label }));

/** A histogram of the last minute, or of all time where nothing was observed in it; and words for which. */
function recent(readings, name, wanted) {
  const all = histogram(readings.last, name, wanted);
  const minute = gained(all, readings.span ? histogram(readings.first, name, wanted) : []);
  const some = readings.span && minute.some(([, value]) => value);
  return some ? { buckets: minute, span: "in the last minute" } : { buckets: all, span: "since it was loaded" };
}

function meanOf(reading, name, wanted) {
  const runs = total(reading, `${name}_count`, wanted);
  return runs ? total(reading, `${name}_sum`, wanted) / runs : null;
}

/** Empty buckets at both ends say nothing. */
function trimmed(buckets) {
  const used = buckets.map(([, value]) => value > 0);
  return buckets.slice(Math.max(0, used.indexOf(true) - 1), used.lastIndexOf(true) + 2);
}

function distribution(readings, name, title, wanted, unit) {
  const { buckets, span } = recent(readings, name, wanted);
  const kept = trimmed(buckets);
  if (!kept.some(([, value]) => value)) return null;
  const upTo = (bound) => (Number.isFinite(bound) ? `up to ${unit(bound)}` : "more");
  const values = kept.map(([bound, value]) => [value, `${upTo(bound)}: ${count(value)}`]);
  const middle = kept[Math.floor((kept.length - 1) / 2)][0];
  const bounds = new Set([kept[0][0], middle, kept.at(-1)[0]]);
  const words = [...bounds].map((bound) => (Number.isFinite(bound) ? unit(bound) : "more"));
  const label = `${title} ${span}: ${values.map(([, told]) => told).join(", ")}`;
  return el("div", { class: "drawing" }, el("h4", { text: `${title} ${span}` }), columns(values, words, label));
}

const latencyChart = (readings, name, title, wanted) => distribution(readings, name, title, wanted, seconds);

const batchChart = (readings, name, wanted) => distribution(readings, name, "Rows a run", wanted, String);

function rateChart(readings, [name, words, which], wanted) {
  const own = { ...wanted, ...which };
  const rates = readings.series((now, before, span) => {
    const counted = total(now, name, own);
    return counted === null || !span ? null : Math.max(0, counted - (total(before, name, own) ?? 0)) / span;
  });
  if (rates.length < 2 || rates.every((rate) => !rate)) return null;
  const title = `${words[0].toUpperCase()}${words.slice(1)}`;
  const most = Math.max(...rates.map((rate) => rate ?? 0));
  const label = `${title} in the last minute, ${digits(most)} at most`;
  const heading = el("h4", { text: `${title}, at most ${digits(most)}` });
  return el("div", { class: "drawing" }, heading, line(rates, [`${Math.round(readings.span)} s ago`, "now"], label));
}

/** Requests of the whole server by their path and status. */
export function requestsPanel() {
  const place = el("div");
  const element = el("section", { class: "card", "aria-label": "Requests" }, el("h3", { text: "Requests" }), place);
  const show = (readings) => {
    const found = matching(readings.last, "opweld_requests_total");
    const own = found.filter(([{ path }]) => !path.startsWith("/page"));
    const rows = own
      .sort(([a], [b]) => a.path.localeCompare(b.path) || a.status.localeCompare(b.status))
      .map(([labels, value]) => [`${labels.method} ${labels.path}`, labels.status, count(value)]);
    const columnsOf = [["request", false], ["status", true], ["answers", true]];
    place.replaceChildren(rows.length ? table(columnsOf, rows) : el("p", { class: "hint", text: "None so far." }));
  };
  return { element, show };
}
