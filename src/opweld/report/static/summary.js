// The top of the page: what went in, what came out, how long it takes, and where the time goes.

function summarySection(model) {
  const { data } = model;
  const { analysis, account, profile, peers } = data;
  const [before, after] = [analysis?.before, analysis?.after].map(totals);
  const summary = account.summary;
  const memory = analysis?.memory;
  const latency = profile?.latency.median ?? null;
  const cards = [
    card(
      "Graph",
      count(summary.nodes),
      count(summary.kernels),
      "nodes",
      "kernels",
      after ? `${plural(after.launches, "launch", "launches")} a run, ${count(before.launches)} before fusion` : null,
    ),
    before
      ? card(
          "Memory traffic",
          bytes(before.read + before.written),
          bytes(after.read + after.written),
          "before",
          "after",
          less(before.read + before.written, after.read + after.written),
        )
      : gone("Memory traffic"),
    before
      ? card(
          "Arithmetic",
          `${many(before.flops)}`,
          `${many(after.flops)}`,
          "FLOPs before",
          "FLOPs after",
          `${digits(after.flops / Math.max(1, after.read + after.written))} FLOP/B, ${digits(before.flops / Math.max(1, before.read + before.written))} before`,
        )
      : gone("Arithmetic"),
    memory ? memoryCard(memory) : gone("Intermediate memory"),
    latencyCard(data),
    analysis
      ? card(
          "Parameters",
          null,
          many(analysis.parameters.count),
          "",
          "parameters",
          `${bytes(analysis.parameters.file_bytes ?? analysis.parameters.bytes)} in the file`,
        )
      : gone("Parameters"),
  ];
  return el(
    "div",
    {},
    el("div", { class: "cards" }, cards),
    el(
      "div",
      { class: "columns" },
      el("div", { class: "box" }, el("h3", { text: "What became of the nodes" }), fateBar(model)),
      el(
        "div",
        { class: "box" },
        el("h3", { text: profile ? "Where the time goes" : "Where the time is predicted to go" }),
        timeBars(model),
      ),
      el(
        "div",
        { class: "box" },
        el("h3", { text: "Beside other runtimes" }),
        peers.length
          ? peerBars(peers, latency)
          : missing("Not compared", "no other runtime was asked: --vs onnxruntime"),
      ),
      analysis?.training
        ? el("div", { class: "box" }, el("h3", { text: "To train it" }), trainingBar(analysis.training))
        : null,
    ),
  );
}

/** What values take without sharing, and with: the arena, or what lives at once where nothing was bound to sizes. */
function memoryCard({ arena, live, tensors, weights }) {
  const least = `largest live set ${bytes(live)}; `;
  return card(
    "Intermediate memory",
    bytes(tensors),
    bytes(arena ?? live),
    "all tensors",
    known(arena) ? "arena" : "largest live set",
    `${known(arena) ? least : ""}weights ${bytes(weights)}`,
  );
}

/** Opweld's latency beside the first other runtime's, where one was asked, of one contest; else what a run took. */
function latencyCard({ times, profile, profile_reason, peers }) {
  const predicted = seconds(times.predicted.all);
  const cores = times.predicted.threads > 1 ? ` on ${plural(times.predicted.threads, "thread")}` : " on one core";
  const other = peers.find((peer) => peer.name !== "opweld");
  const own = (other && peers.find((peer) => peer.name === "opweld")?.median) ?? profile?.latency.median ?? null;
  if (own === null)
    return card(
      "Latency",
      null,
      predicted,
      "",
      `predicted${cores}`,
      `Not measured: ${profile_reason}`,
    );
  const notes = [
    profile
      ? `p90 ${seconds(profile.latency.p90)}, p99 ${seconds(profile.latency.p99)}, ${digits(profile.latency.per_second)} a second on ${plural(profile.threads, "thread")}`
      : null,
    `predicted ${predicted}${cores}`,
  ];
  return card(
    "Latency",
    other ? seconds(other.median) : null,
    seconds(own),
    other?.name ?? "",
    other ? "opweld" : "measured",
    notes.filter(Boolean).join("; "),
  );
}

/** Totals as plain numbers. */
const totals = (given) =>
  given && Object.fromEntries(Object.entries(given).map(([key, value]) => [key, amount(value)]));

function card(title, from, to, fromWords, toWords, note) {
  return el(
    "div",
    { class: "card" },
    el("h3", { text: title }),
    el(
      "div",
      { class: "change" },
      from === null
        ? null
        : [
            el("div", { class: "from" }, el("b", { text: from }), el("span", { text: fromWords })),
            el("span", { class: "arrow", text: "→" }),
          ],
      el("div", { class: "to" }, el("b", { text: to }), el("span", { text: toWords })),
    ),
    note ? el("p", { text: note }) : null,
  );
}

const gone = (title) =>
  el(
    "div",
    { class: "card" },
    el("h3", { text: title }),
    missing("Not counted", "the report was made without an analysis"),
  );

const less = (before, after) => (after > 0 && before > 0 ? `${digits(before / after)} times less` : null);

/** Parts of a whole as one bar, and what they are: [words, value, colour, title]. */
function partsBar(parts, show) {
  const whole = parts.reduce((sum, part) => sum + part[1], 0) || 1;
  return el(
    "div",
    { class: "parts" },
    el(
      "div",
      { class: "bar" },
      parts.map(([words, value, ink]) =>
        el("i", { style: { width: `${(100 * value) / whole}%`, background: ink }, title: `${words}: ${show(value)}` }),
      ),
    ),
    el(
      "ul",
      {},
      parts.map(([words, value, ink, title]) =>
        el(
          "li",
          { title: title ?? "" },
          el("i", { class: "swatch", style: { background: ink } }),
          el("span", { text: words }),
          el("b", { text: show(value) }),
          el("span", { class: "muted", text: percent(value / whole) }),
        ),
      ),
    ),
  );
}

function fateBar(model) {
  const outcomes = Object.entries(model.data.account.summary.outcomes).sort(
    (a, b) => Object.keys(OUTCOMES).indexOf(a[0]) - Object.keys(OUTCOMES).indexOf(b[0]),
  );
  return partsBar(
    outcomes.map(([outcome, times]) => [
      OUTCOMES[outcome]?.[0] ?? outcome,
      times,
      `var(--outcome-${outcome.replaceAll(" ", "-")})`,
      OUTCOMES[outcome]?.[1],
    ]),
    count,
  );
}

function timeBars(model) {
  const shown = model.kernels.filter((kernel) => (model.data.profile ? kernel.measured !== null : known(kernel.time)));
  const whole = model.data.times?.measured?.run || shown.reduce((sum, kernel) => sum + kernel.time, 0) || 1;
  const kinds = [...BOUNDS, "none"]
    .map((kind) => [kind, shown.filter((kernel) => (kernel.bound?.kind ?? "none") === kind)])
    .filter(([, some]) => some.length);
  const first = [...shown].sort((a, b) => b.time - a.time).slice(0, 5);
  const waiting = Object.values(model.data.times?.measured?.idle ?? {}).reduce((sum, part) => sum + part, 0);
  return el(
    "div",
    {},
    kinds.length && kinds[0][0] !== "none"
      ? partsBar(
          [
            ...kinds.map(([kind, some]) => [
              kind === "none" ? "not known" : `${kind}-bound`,
              some.reduce((sum, kernel) => sum + kernel.time, 0),
              kind === "none" ? "var(--muted)" : `var(--bound-${kind})`,
            ]),
            ...(waiting > 0 ? [["no kernel runs", waiting, "var(--waiting)"]] : []),
          ],
          seconds,
        )
      : null,
    el(
      "ol",
      { class: "slowest" },
      first.map((kernel) =>
        el(
          "li",
          {},
          el("i", { class: "swatch", style: { background: kernelColour(kernel) } }),
          link(kernel.name, () => chooseKernel(kernel)),
          el("span", { class: "muted ellipsis", text: kernel.operators, title: kernel.operators }),
          el("b", { text: seconds(kernel.time) }),
          el("span", { class: "muted", text: percent(kernel.time / whole) }),
        ),
      ),
    ),
  );
}

function peerBars(peers, own) {
  const rows = [
    ...(own === null || peers.some((peer) => peer.name === "opweld") ? [] : [{ name: "opweld", median: own }]),
    ...peers,
  ];
  const most = Math.max(...rows.map((row) => row.median));
  const mine = rows.find((row) => row.name === "opweld")?.median;
  return el(
    "ul",
    { class: "peers" },
    rows.map((row) =>
      el(
        "li",
        { class: row.name === "opweld" ? "own" : "" },
        el("span", { text: row.name }),
        el("div", { class: "track" }, el("i", { style: { width: `${(100 * row.median) / most}%` } })),
        el("b", { text: seconds(row.median) }),
        el("span", { class: "muted", text: mine && row.name !== "opweld" ? `${digits(row.median / mine)}×` : "" }),
      ),
    ),
  );
}

function trainingBar(training) {
  const parts = [
    ["weights", training.weights],
    ["gradients", training.gradients],
    ["optimiser state", training.optimizer],
    ["activations", training.activations],
  ];
  return el(
    "div",
    {},
    partsBar(
      parts.map(([words, value], i) => [words, amount(value), `var(--series-${i + 1})`]),
      bytes,
    ),
    el(
      "p",
      { class: "muted" },
      `${bytes(amount(training.total))} in all`,
      training.formula ? [": ", el("code", { class: "formula", text: training.formula })] : null,
    ),
  );
}
