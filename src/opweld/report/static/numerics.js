// Numerics: how far outputs are from float64, and where along the graph the error grows.

function numericsSection(model) {
  const { numerics, numerics_reason: reason } = model.data;
  if (!numerics)
    return { root: missing("Not compared", reason || "the report was made without a comparison"), start: () => {} };
  const { outputs, values } = numerics;
  const table = el(
    "div",
    { class: "scroll" },
    smallTable(
      [
        ["output", false],
        ["shape", false],
        ["scale", true],
        ["error", true],
        ["tolerated", true],
        ["ONNX Runtime", true],
        ["", false],
      ],
      outputs.map((output) =>
        el(
          "tr",
          {},
          el("td", {}, el("span", { class: "name", text: output.name })),
          el("td", { text: output.shape.join("×") || "scalar" }),
          el("td", { class: "number", text: digits(output.scale) }),
          el("td", { class: "number", text: error(output.error) }),
          el("td", { class: "number", text: error(output.tolerance) }),
          el("td", { class: "number", text: error(output.peer_error) }),
          el(
            "td",
            {},
            el("span", {
              class: `tag ${output.passed ? "applied" : "wrong"}`,
              text: output.verdict === "wrong" ? "WRONG" : output.verdict,
            }),
          ),
        ),
      ),
    ),
  );
  if (!values.length)
    return {
      root: el(
        "div",
        {},
        table,
        missing("No values between", reason || "the model keeps none in memory that could be compared"),
      ),
      start: () => {},
    };
  const exact = 1e-9;
  const height = (value) =>
    value === "infinity" || value === null || value === undefined ? 1 : Math.max(exact, value);
  const chart = plot(
    "numerics",
    340,
    () => ({
      grid: { left: 84, right: 24, top: 28, bottom: 74 },
      xAxis: axis({
        type: "value",
        name: "values in memory, in the order of the graph",
        nameLocation: "middle",
        nameGap: 28,
        min: 0,
        max: Math.max(1, values.length - 1),
        minInterval: 1,
        splitLine: { show: false },
      }),
      yAxis: axis({
        type: "log",
        name: "error / scale",
        nameGap: 10,
        min: exact,
        axisLabel: { formatter: (value) => (value <= exact ? "exact" : value.toExponential(0)) },
      }),
      dataZoom: zooms({ xAxisIndex: 0 }),
      tooltip: tooltip(
        ({ data }) =>
          data?.given &&
          el(
            "div",
            { class: "tip" },
            el("strong", { text: shorten(data.given.name, 70) }),
            el("div", { class: "muted", text: shorten(data.given.node, 70) }),
            el("div", { text: `error ${error(data.given.error)}, tolerated ${error(data.given.tolerated)}` }),
            el("div", {
              text: `of what it reads ${error(data.given.before)}; scale ${digits(data.given.scale)}; ${data.given.shape.join("×") || "scalar"}`,
            }),
          ),
      ),
      series: [
        {
          type: "line",
          name: "tolerated",
          data: values.map((value, i) => [i, height(value.tolerated)]),
          symbol: "none",
          silent: true,
          step: "middle",
          lineStyle: { color: colour("muted"), type: "dashed", width: 1.3 },
        },
        {
          type: "line",
          name: "error",
          symbolSize: 7,
          lineStyle: { color: colour("accent"), width: 1.6 },
          data: values.map((value, i) => ({
            value: [i, height(value.error)],
            given: value,
            itemStyle: { color: colour(value.wrong ? "wrong" : "accent") },
            symbol: "circle",
            symbolSize: value.wrong ? 11 : 6,
          })),
          showAllSymbol: true,
        },
      ],
    }),
    {
      click: ({ data }) => {
        const node = data?.given && model.called.get(data.given.node);
        if (node) chooseNode(node);
      },
    },
  );
  const wrong = values.filter((value) => value.wrong);
  const unseen = values.filter((value) => value.verdict === "unseen");
  return {
    root: el(
      "div",
      {},
      table,
      chart.root,
      el(
        "div",
        { class: "legend" },
        el(
          "span",
          {},
          el("i", { class: "swatch round", style: { background: "var(--accent)" } }),
          "error against float64, as a part of each value's scale",
        ),
        el("span", { text: "dashed: tolerated" }),
      ),
      wrong.length
        ? el("p", {
            class: "warning",
            text: `${plural(wrong.length, "value")} outside of what is tolerated, first ${wrong[0].name} (node ${wrong[0].node})`,
          })
        : null,
      unseen.length
        ? el("p", {
            class: "muted",
            text: `${plural(unseen.length, "value")} off by more than rounding, which no output shows, first ${unseen[0].name} (node ${unseen[0].node})`,
          })
        : null,
    ),
    start: chart.start,
  };
}
