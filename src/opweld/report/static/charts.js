// Plots: one place that makes them, keeps their size, and draws them again when the theme changes.

const charts = {};

/** A plot in an element of some height. `describe()` gives its ECharts option, in the colours of the theme. */
function plot(name, height, describe, listeners = {}) {
  const root = el("div", {
    class: "plot",
    id: `plot-${name}`,
    style: { height: `${height}px` },
    role: "img",
    "aria-label": name,
  });
  const drawn = () => ({ animation: false, textStyle: { fontFamily: FONT, color: colour("ink") }, ...describe() });
  const redraw = () => {
    const chart = charts[name];
    if (!chart) return;
    const zoomed = chart.getOption().dataZoom?.map(({ start, end }) => ({ start, end }));
    chart.setOption(drawn(), true);
    zoomed?.forEach(({ start, end }, dataZoomIndex) =>
      chart.dispatchAction({ type: "dataZoom", dataZoomIndex, start, end }),
    );
  };
  const start = () => {
    const chart = echarts.init(root, null, { renderer: "canvas" });
    charts[name] = chart;
    chart.setOption(drawn());
    for (const [event, listener] of Object.entries(listeners)) chart.on(event, listener);
    new ResizeObserver(() => chart.resize()).observe(root);
    state.themed.push(redraw);
  };
  return { root, start, redraw };
}

/** The look of an axis. */
const axis = (given) => ({
  nameTextStyle: { color: colour("muted-ink"), fontSize: 12 },
  axisLabel: { color: colour("muted-ink"), fontSize: 11.5, hideOverlap: true, ...given.axisLabel },
  axisLine: { lineStyle: { color: colour("line") } },
  axisTick: { lineStyle: { color: colour("line") } },
  splitLine: { lineStyle: { color: colour("grid") } },
  minorSplitLine: { show: false },
  ...Object.fromEntries(Object.entries(given).filter(([key]) => key !== "axisLabel")),
});

/** A tooltip of elements, never of markup. */
const tooltip = (describe) => ({
  trigger: "item",
  confine: true,
  backgroundColor: colour("raised"),
  borderColor: colour("line"),
  textStyle: { color: colour("ink"), fontSize: 12.5, fontFamily: FONT },
  extraCssText: "box-shadow: var(--shadow); border-radius: 8px; max-width: 420px; white-space: normal;",
  formatter: (hit) => describe(hit) ?? "",
});

const zooms = (given) => [
  { type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, ...given },
  {
    type: "slider",
    filterMode: "none",
    height: 18,
    bottom: 6,
    borderColor: colour("line"),
    fillerColor: colour("veil"),
    handleStyle: { color: colour("raised"), borderColor: colour("muted") },
    moveHandleSize: 0,
    showDetail: false,
    dataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } },
    selectedDataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } },
    backgroundColor: colour("sunken"),
    ...given,
  },
];

/** What a plot says of a kernel that the pointer is on. */
function kernelTip(kernel, lines) {
  return el(
    "div",
    { class: "tip" },
    el("strong", {}, el("i", { class: "swatch", style: { background: kernelColour(kernel) } }), kernel.name),
    el("div", { class: "muted", text: shorten(kernel.operators, 120) }),
    lines.filter(Boolean).map((line) => el("div", { text: line })),
  );
}
