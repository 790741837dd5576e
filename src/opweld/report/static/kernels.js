// All kernels in a table, sorted by any column.

/** What columns are, where the name alone does not say. */
const ABOUT = {
  share: "Of the time of all kernels",
  bytes: "Read and written at least",
  "FLOP/B": "Floating-point operations a byte",
  bound: "What limits it: see docs/guides/see.md",
};

function kernelsSection(model) {
  const whole =
    model.kernels.reduce((sum, kernel) => sum + ((model.data.profile ? kernel.measured : kernel.predicted) ?? 0), 0) ||
    1;
  const share = (kernel) => kernel.share ?? ((model.data.profile ? kernel.measured : kernel.predicted) ?? NaN) / whole;
  const largest = Math.max(...model.kernels.map((one) => share(one) || 0), 1e-9);
  const columns = [
    [
      "kernel",
      (k) => k.name,
      (k) =>
        el(
          "span",
          { class: "kernel-name" },
          el("i", { class: "swatch", style: { background: kernelColour(k) } }),
          link(k.name, () => chooseKernel(k)),
        ),
    ],
    ...(new Set(model.kernels.map((k) => k.variant)).size > 1 ? [["variant", (k) => k.variant, (k) => k.variant]] : []),
    [
      "computes",
      (k) => k.operators,
      (k) => el("span", { class: "ellipsis wide", text: k.operators, title: k.operators }),
    ],
    ["phase", (k) => k.phase, (k) => String(k.phase), true],
    [
      "share",
      share,
      (k) =>
        el(
          "span",
          { class: "share" },
          el("i", {
            style: {
              width: `${Math.min(100, (100 * share(k)) / largest)}%`,
            },
          }),
          el("b", { text: percent(share(k)) }),
        ),
      true,
    ],
    ["measured", (k) => k.measured ?? NaN, (k) => seconds(k.measured), true],
    ["predicted", (k) => k.predicted ?? NaN, (k) => seconds(k.predicted), true],
["bound", (k) => k.bound?.kind ?? "", (k) => boundBadge(k.bound, true) ?? NONE],
    ["FLOPs", (k) => k.flops, (k) => many(k.flops), true],
    ["bytes", (k) => k.moved, (k) => bytes(k.moved), true],
    ["FLOP/B", (k) => k.intensity, (k) => digits(k.intensity), true],
    ["FLOP/s", (k) => k.flops / k.wall, (k) => rate(k.flops / k.wall, "FLOP/s"), true],
    ["B/s", (k) => k.moved / k.wall, (k) => rate(k.moved / k.wall, "B/s"), true],
  ];
  const sorted = {
    column: columns.findIndex(([name]) => name === (model.data.profile ? "measured" : "predicted")),
    down: true,
  };
  const body = el("tbody", {});
  const rows = new Map(
    model.kernels.map((kernel) => [
      kernel,
      el(
        "tr",
        { "data-key": kernel.key, on: { click: () => chooseKernel(kernel) } },
        columns.map(([, , show, number]) => el("td", { class: number ? "number" : "" }, show(kernel))),
      ),
    ]),
  );
  const heads = columns.map(([name, , , number], i) =>
    el(
      "th",
      { class: number ? "number" : "", scope: "col", title: ABOUT[name] ?? null },
      el("button", {
        type: "button",
        text: name,
        on: {
          click: () => {
            Object.assign(sorted, { down: sorted.column === i ? !sorted.down : Boolean(number), column: i });
            sort();
          },
        },
      }),
    ),
  );
  function sort() {
    const value = columns[sorted.column][1];
    const order = [...model.kernels].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (typeof x === "string") return x.localeCompare(y, "en", { numeric: true }) * (sorted.down ? -1 : 1);
      if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y));
      return (x - y) * (sorted.down ? -1 : 1);
    });
    body.append(...order.map((kernel) => rows.get(kernel)));
    heads.forEach((head, i) =>
      head.setAttribute("aria-sort", i === sorted.column ? (sorted.down ? "descending" : "ascending") : "none"),
    );
  }
  sort();
  state.listeners.push(() => {
    for (const [kernel, row] of rows) row.classList.toggle("chosen", kernel.key === chosenKernel());
  });
  const filter = el("input", {
    type: "search",
    placeholder: "Filter kernels",
    "aria-label": "Filter kernels",
    on: {
      input: () => {
        const wanted = filter.value.trim().toLowerCase();
        for (const [kernel, row] of rows)
          row.hidden = !`${kernel.name} ${kernel.operators} ${kernel.bound?.kind ?? ""} ${kernel.nodes.join(" ")}`
            .toLowerCase()
            .includes(wanted);
      },
    },
  });
  return el(
    "div",
    {},
    el("div", { class: "controls" }, filter),
    el(
      "div",
      { class: "scroll" },
      el("table", { class: "kernels", id: "kernel-table" }, el("thead", {}, el("tr", {}, heads)), body),
    ),
  );
}
