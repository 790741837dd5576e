// The graph before and after: nodes of the file, coloured by the kernel that computes them, and the kernels.

const MANY_NODES = 400;

/** k12 of k12_contraction. */
const shortName = (kernel) => kernel.name.split("_")[0];

/** "Conv + Relu", "MatMul + 11": the first of several operators, and the second where there are no more. */
function briefly(operators) {
  const [first, second, ...more] = operators;
  if (second === undefined) return first ?? "";
  return more.length || first === second ? `${first} + ${more.length + 1}` : `${first} + ${second}`;
}

function graphSection(model) {
  const profiled = model.data.profile?.variant;
  const settings = {
    variant: model.variants.includes(profiled) ? profiled : (model.variants[0] ?? ""),
    all: model.nodes.length <= MANY_NODES,
    colours: "kernel",
  };
  const inVariant = (kernel) => settings.variant === "" || kernel.variant === settings.variant;
  // Of several that compute a node, that which computes most with it; then, as one may pad for another, the longest.
  const over = (a, b) =>
    a.members.length !== b.members.length ? a.members.length > b.members.length : a.time >= b.time;
  const kernelOf = (node) =>
    node.kernels
      .map((key) => model.byKey.get(key))
      .filter((kernel) => kernel && inVariant(kernel))
      .reduce((a, b) => (a && over(a, b) ? a : b), undefined);
  const computed = (node) => COMPUTED.has(node.outcome) && kernelOf(node) !== undefined;
  const slowest = Math.max(...model.kernels.map((kernel) => kernel.time || 0), 1e-12);
  const paint = (kernel, alpha) => {
    if (settings.colours === "bound")
      return `color-mix(in oklch, ${boundColour(kernel.bound)} ${alpha * 100}%, transparent)`;
    if (settings.colours === "time") {
      const heat = Math.sqrt((kernel.time || 0) / slowest);
      const ink = `color-mix(in oklch, ${colour("hot")} ${heat * 100}%, ${colour("cold")})`;
      return `color-mix(in oklch, ${ink} ${alpha * 100}%, transparent)`;
    }
    return kernelColour(kernel, alpha);
  };

  const plain = (node) => node.operator.replace(/^.*::/, "");

  const before = new GraphView({
    label: "The graph of the file",
    colourOf: (node, alpha) => (computed(node) ? paint(kernelOf(node), alpha) : colour("muted")),
    shown: (node) => [plain(node), node.name || "(no name)", plain(node)],
    faint: (node) => !computed(node),
    state: () => settings.variant,
    block: (node) => {
      const kernel = computed(node) ? kernelOf(node) : null;
      if (!kernel) return { key: `node ${node.index}`, text: plain(node), weight: 0 };
      const nodes = kernel.members.filter((member) => computed(member) && kernelOf(member) === kernel);
      return { key: kernel.key, text: `${shortName(kernel)} ${briefly(nodes.map(plain))}`, weight: 1 + kernel.time };
    },
    joined: (a, b) => computed(a) && computed(b) && kernelOf(a) === kernelOf(b),
    pick: chooseNode,
  });
  const after = new GraphView({
    label: "The kernels",
    colourOf: paint,
    shown: (kernel) => [kernel.name, kernel.operators, shortName(kernel)],
    block: (kernel) => ({ key: kernel.key, text: shortName(kernel), weight: 1 + kernel.time }),
    pick: chooseKernel,
  });

  const hiddenCount = () =>
    model.nodes.filter((node) => node.operator !== "Constant" && WITHOUT_WORK.has(node.outcome)).length;
  const titles = { before: el("span", {}), after: el("span", {}) };

  function showBefore() {
    const nodes = model.nodes.filter(
      (node) => node.operator !== "Constant" && (settings.all || !WITHOUT_WORK.has(node.outcome)),
    );
    const places = new Map(nodes.map((node, i) => [node.index, i]));
    const edges = model.edges
      .filter(([a, b]) => places.has(a) && places.has(b))
      .map(([a, b]) => [places.get(a), places.get(b)]);
    titles.before.textContent = `Before: ${plural(nodes.length, "node")}`;
    return before
      .show(
        nodes,
        nodes.map(() => ({ width: 128, height: 38 })),
        edges,
      )
      .then(() => marks(state.selection, false));
  }

  function showAfter() {
    const kernels = model.kernels.filter(inVariant);
    const places = new Map(kernels.map((kernel, i) => [kernel.index, i]));
    const edges = kernelEdges(model, kernels).map(([a, b]) => [places.get(a), places.get(b)]);
    titles.after.textContent = `After: ${plural(kernels.length, "kernel")}`;
    return after
      .show(
        kernels,
        kernels.map(() => ({ width: 164, height: 38 })),
        edges,
      )
      .then(() => marks(state.selection, false));
  }

  function marks(selection, follow = true) {
    let nodes = [];
    let kernels = [];
    if (selection?.kind === "kernel") {
      kernels = [selection.item];
      nodes = selection.item.members;
    } else if (selection?.kind === "node") {
      nodes = [selection.item];
      kernels = selection.item.kernels.map((key) => model.byKey.get(key)).filter(Boolean);
    }
    const indices = (view, wanted) => wanted.map((item) => view.items.indexOf(item)).filter((index) => index >= 0);
    before.mark(indices(before, nodes), { follow });
    after.mark(indices(after, kernels), { follow });
  }
  state.listeners.push((selection) => {
    const variant = selection?.kind === "kernel" ? selection.item.variant : settings.variant;
    if (settings.variant !== "" && variant !== settings.variant) setVariant(variant);
    marks(selection);
  });

  const body = el(
    "div",
    { class: "graphs both" },
    el("figure", { class: "graph-pane before" }, el("figcaption", {}, titles.before, before.buttons()), before.root),
    el("figure", { class: "graph-pane after" }, el("figcaption", {}, titles.after, after.buttons()), after.root),
  );
  const redraw = () => (before.draw(), after.draw());
  const legend = el("div", { class: "legend" });
  const explain = () => {
    const words = {
      kernel: [["muted", "dashed: no kernel computes it"]],
      bound: BOUNDS.map((kind) => [`bound-${kind}`, `${kind}-bound`]),
      time: [
        ["cold", "short"],
        ["hot", "takes longest"],
      ],
    };
    legend.replaceChildren(
      ...(settings.colours === "kernel"
        ? [el("span", { text: colourWords(model.kernels.filter(inVariant)) })]
        : []),
      ...words[settings.colours].map(([name, text]) =>
        el(
          "span",
          {},
          el("i", {
            class: settings.colours === "kernel" ? "swatch dashed" : "swatch",
            style: settings.colours === "kernel" ? {} : { background: `var(--${name})` },
          }),
          text,
        ),
      ),
    );
  };
  explain();
  const setVariant = (value) => {
    settings.variant = variants.value = value;
    showAfter();
    explain();
    redraw();
  };
  const variants = select(
    "Variant",
    [...model.variants.map((name) => [name, name]), ["", "all variants"]],
    settings.variant,
    setVariant,
  );
  const unworked = hiddenCount();
  const controls = el(
    "div",
    { class: "controls" },
    segmented(
      "Which graphs",
      [
        ["before", "Before"],
        ["both", "Both"],
        ["after", "After"],
      ],
      "both",
      (value) => {
        body.className = `graphs ${value}`;
      },
    ),
    segmented(
      "Colours",
      [
        ["kernel", "Kernels"],
        ["bound", "Bounds"],
        ["time", "Time"],
      ],
      "kernel",
      (value) => {
        settings.colours = value;
        explain();
        redraw();
      },
    ),
    model.variants.length > 1 ? variants : null,
    unworked
      ? el(
          "label",
          { class: "check" },
          el("input", {
            type: "checkbox",
            ...(settings.all ? { checked: true } : {}),
            on: {
              change: (event) => {
                settings.all = event.target.checked;
                showBefore();
              },
            },
          }),
          `show ${plural(unworked, "node")} that never run`,
        )
      : null,
    legend,
  );
  return { root: el("div", {}, controls, body), start: () => (showBefore(), showAfter()), before, after };
}
