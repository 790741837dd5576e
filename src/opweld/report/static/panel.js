// The side panel: all that is known of the kernel or node that was chosen.

function sidePanel(model) {
  const content = el("div", { class: "panel-content" });
  const close = el("button", {
    type: "button",
    class: "icon",
    text: "×",
    title: "Close (Esc)",
    "aria-label": "Close",
    on: { click: () => choose(null) },
  });
  const panel = el("aside", { class: "panel", id: "panel", "aria-live": "polite", hidden: true }, close, content);
  state.listeners.push((selection) => {
    panel.hidden = selection === null;
    document.body.classList.toggle("with-panel", selection !== null);
    if (selection === null) return;
    content.replaceChildren(
      ...(selection.kind === "kernel" ? kernelPanel(model, selection.item) : nodePanel(model, selection.item)),
    );
    panel.scrollTop = 0;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !panel.hidden) choose(null);
  });
  return panel;
}

const block = (title, ...children) => el("section", { class: "block" }, el("h4", { text: title }), ...children);

/** What a kernel is bound by; `short` where there is little room. */
function boundBadge(bound, short = false) {
  if (!bound) return null;
  const detail = bound.level || bound.cause;
  const words = short
    ? [bound.kind, detail].filter(Boolean).join(": ")
    : `${bound.kind}-bound${detail ? ` (${detail})` : ""}`;
  return el(
    "span",
    { class: "badge", style: { "--badge": `var(--bound-${bound.kind})` } },
    el("i", { class: "dot" }),
    words,
  );
}

function boundBlock(kernel) {
  const { bound, predictedBound, profiled } = kernel;
  if (!bound)
    return block("Bound", missing("Not known", "The machine's ceilings were not measured: run opweld machine once."));
  const bar = (label, part) =>
    known(part)
      ? el(
          "div",
          { class: "meter" },
          el("span", { text: label }),
          el("div", { class: "track" }, el("i", { style: { width: `${Math.min(100, part * 100)}%` } })),
          el("span", { class: "number", text: percent(part) }),
        )
      : null;
  const differs = profiled?.disagreement;
  return block(
    "Bound",
    el("p", {}, boundBadge(bound), " ", bound.reason ?? bound.words ?? ""),
    bar("of compute peak", bound.compute),
    bar(`of ${bound.level ? `${bound.level} ` : ""}bandwidth`, bound.bandwidth),
    facts([
      ["Cannot be below", known(bound.floor_seconds) ? seconds(bound.floor_seconds) : null],
      [
        "Predicted as",
        predictedBound && predictedBound !== bound
          ? `${predictedBound.kind}-bound${predictedBound.level ? ` (${predictedBound.level})` : ""}`
          : null,
      ],
      ["Try next", bound.try ?? bound.try_next ?? null],
    ]),
    differs ? el("p", { class: "warning", text: differs }) : null,
  );
}

function timeBlock(model, kernel) {
  const { profiled, analysed } = kernel;
  const parts = analysed?.predicted;
  const pair = (label, value, most, name) =>
    known(value)
      ? el(
          "div",
          { class: "meter" },
          el("span", { text: label }),
          el(
            "div",
            { class: "track" },
            el("i", { class: name, style: { width: `${most > 0 ? (100 * value) / most : 0}%` } }),
          ),
          el("span", { class: "number", text: seconds(value) }),
        )
      : null;
  const most = Math.max(kernel.measured ?? 0, kernel.predicted ?? 0);
  return block(
    "Time",
    pair("measured", kernel.measured, most, "measured"),
    pair("predicted", kernel.predicted, most, "predicted"),
    kernel.measured === null
      ? el("p", {
          class: "muted",
          text: model.data.profile
            ? `Not measured: the run took variant ${model.data.profile.variant}.`
            : `Not measured: ${model.data.profile_reason}`,
        })
      : null,
    facts([
      ["Share of the run", known(kernel.share) ? percent(kernel.share) : null],
      ["Best, p90", profiled ? `${seconds(profiled.seconds.best)}, ${seconds(profiled.seconds.p90)}` : null],
      [
        "Wall, busy, waiting",
        profiled ? `${seconds(profiled.wall)}, ${seconds(profiled.busy)}, ${seconds(profiled.waiting)}` : null,
      ],
      ["Threads", profiled?.threads],
      ["Achieved", profiled ? `${rate(profiled.flops_per_s, "FLOP/s")}, ${rate(profiled.bytes_per_s, "B/s")}` : null],
      [
        "Predicted parts",
        parts
          ? ["arithmetic", "dependency", "traffic", "launch"]
              .filter((name) => known(parts[name]))
              .map((name) => `${name} ${seconds(parts[name])}`)
              .join(", ")
          : null,
      ],
    ]),
  );
}

function kernelPanel(model, kernel) {
  const { analysed } = kernel;
  const formula = analysed?.flops?.formula;
  const decisions = model.decisionsOf.kernel(kernel).sort((a, b) => Number(fired(b)) - Number(fired(a)));
  return [
    el(
      "header",
      {},
      el(
        "div",
        { class: "eyebrow" },
        el("i", { class: "swatch", style: { background: kernelColour(kernel) } }),
        `kernel, phase ${kernel.phase}`,
        model.variants.length > 1 ? `, ${kernel.variant}` : "",
      ),
      el("h3", { text: kernel.name }),
      el("p", { class: "muted", text: kernel.operators }),
    ),
    timeBlock(model, kernel),
    boundBlock(kernel),
    block(
      "Work",
      facts([
        [
          "FLOPs",
          el(
            "span",
            { title: formula ?? "" },
            count(kernel.flops),
            formula && formula !== String(kernel.flops) ? el("code", { class: "formula", text: formula }) : null,
          ),
        ],
        ["Reads, writes", analysed ? `${bytes(amount(analysed.read))}, ${bytes(amount(analysed.written))}` : null],
        ["Moves", analysed ? null : bytes(kernel.moved)],
        ["Intensity", `${digits(kernel.intensity)} FLOP/B`],
        ["Launches", analysed?.launches],
        ["Region", el("span", { class: "name", text: kernel.region })],
      ]),
    ),
    block(`Computes ${plural(new Set(kernel.nodes).size, "node")}`, nodeLinks(model, kernel.nodes)),
    kernel.schedule
      ? block(
          "Schedule",
          el(
            "ol",
            { class: "schedule" },
            kernel.schedule.split("; ").map((part) => el("li", {}, el("code", { text: part }))),
          ),
        )
      : null,
    block(
      `Decisions (${decisions.length})`,
      decisions.length
        ? moreOf(decisions, 8, (decision) => decisionCard(model, decision))
        : missing("None", "nothing had to be decided about this kernel"),
    ),
    kernel.source
      ? block("Generated source", highlighted(kernel.source))
      : block("Generated source", missing("Not there", "the artifact keeps no source of this kernel")),
  ].filter(Boolean);
}

function nodePanel(model, node) {
  const kernels = node.kernels.map((key) => model.byKey.get(key)).filter(Boolean);
  const [name, meaning] = OUTCOMES[node.outcome] ?? [node.outcome, ""];
  const counted = model.analysed.get(node.name);
  const checked = [node.name, ...node.called].map((one) => model.checked.get(one)).find(Boolean);
  const decisions = model.decisionsOf.node(node);
  const neighbours = (end, other) =>
    model.edges.filter((edge) => edge[end] === node.index).map((edge) => model.nodes[edge[other]]);
  const nodeList = (nodes) =>
    el(
      "ul",
      { class: "names" },
      nodes.slice(0, 8).map((one) =>
        el(
          "li",
          {},
          link(shorten(one.name || "(no name)", 80), () => chooseNode(one), one.name),
          el("span", { class: "muted", text: ` ${one.operator}` }),
        ),
      ),
      nodes.length > 8 ? el("li", { class: "muted", text: `and ${nodes.length - 8} more` }) : null,
    );
  const [from, to] = [neighbours(1, 0), neighbours(0, 1)];
  return [
    el(
      "header",
      {},
      el("div", { class: "eyebrow", text: "node of the file" }),
      el("h3", { text: node.operator }),
      el("p", { class: "name", text: node.name || "(no name in the file)" }),
    ),
    block(
      "Where it went",
      el(
        "p",
        {},
        el(
          "span",
          { class: "badge", style: { "--badge": `var(--outcome-${node.outcome.replaceAll(" ", "-")})` } },
          el("i", { class: "dot" }),
          name,
        ),
        " ",
        meaning,
      ),
      kernels.length
        ? el(
            "ul",
            { class: "names" },
            kernels.map((kernel) =>
              el(
                "li",
                {},
                el("i", { class: "swatch", style: { background: kernelColour(kernel) } }),
                link(kernel.name, () => chooseKernel(kernel)),
                el("span", {
                  class: "muted",
                  text: ` ${kernel.operators}${model.variants.length > 1 ? `, ${kernel.variant}` : ""}`,
                }),
              ),
            ),
          )
        : null,
    ),
    block(
      "In the program",
      facts([
        ["Source line", node.source || null],
        ["In the body of", node.body || null],
        ["Called", node.called.length && node.called[0] !== node.name ? node.called.join(", ") : null],
        ["Reads", el("span", { class: "name", text: node.inputs.filter(Boolean).join(", ") || NONE })],
        ["Gives", el("span", { class: "name", text: node.outputs.filter(Boolean).join(", ") || NONE })],
      ]),
      node.source ? null : el("p", { class: "muted", text: "The exporter recorded no source line for it." }),
    ),
    counted
      ? block(
          "Work",
          facts([
            [
              "FLOPs",
              el(
                "span",
                {},
                count(amount(counted.flops)),
                counted.flops?.formula ? el("code", { class: "formula", text: counted.flops.formula }) : null,
              ),
            ],
            ["Reads, writes", `${bytes(amount(counted.read))}, ${bytes(amount(counted.written))}`],
            [
              "Parameters",
              counted.parameters
                ? `${count(amount(counted.parameters))} (${bytes(amount(counted.parameter_bytes))})`
                : null,
            ],
          ]),
        )
      : null,
    checked
      ? block(
          "Error",
          facts([
            ["Of the scale", error(checked.error)],
            ["Tolerated", error(checked.tolerated)],
            ["Before it", error(checked.before)],
          ]),
        )
      : null,
    from.length ? block("Reads from", nodeList(from)) : null,
    to.length ? block("Read by", nodeList(to)) : null,
    block(
      `Decisions (${decisions.length})`,
      decisions.length
        ? moreOf(decisions, 8, (decision) => decisionCard(model, decision))
        : missing("None", "nothing was decided about this node"),
    ),
  ].filter(Boolean);
}

/** The first of many, and a button for the rest. */
function moreOf(items, most, make) {
  const list = el("div", { class: "more-of" });
  const add = (from) => {
    list.append(...items.slice(from, from + most * (from ? 8 : 1)).map(make));
    const left = items.length - list.children.length;
    if (left > 0) {
      const more = el("button", {
        type: "button",
        class: "quiet",
        text: `${count(left)} more`,
        on: { click: () => (more.remove(), add(items.length - left)) },
      });
      list.append(more);
    }
  };
  add(0);
  return list;
}
