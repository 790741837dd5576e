// The roofline: what each kernel reaches, under what the machine allows at its intensity, a roof for each memory level.

const roofTitles = { fp32: "float32 peak", bf16: "bfloat16 peak", int8: "int8 peak" };

function rooflineSection(model) {
  const { machine, profile } = model.data;
  const settings = { cores: (profile?.threads ?? 1) > 1 ? "all" : "one" };
  const shown = model.kernels.filter(
    (kernel) => known(kernel.wall) && kernel.wall > 0 && (profile === null || kernel.measured !== null),
  );
  const [working, moving] = [shown.filter((kernel) => kernel.flops > 0), shown.filter((kernel) => !(kernel.flops > 0))];
  const reach = (kernel) => kernel.flops / kernel.wall;
  const speedOf = (kernel) => kernel.moved / kernel.wall;
  const intensities = shown.map((kernel) => kernel.intensity).filter((value) => value > 0);
  const slowest = machine ? Math.min(...machine.levels.map((level) => level.read.all.value)) : 0;
  const ridge = slowest > 0 ? (machine.compute.fp32?.all.value ?? 0) / slowest : 0;
  const least = 10 ** Math.floor(Math.log10(Math.min(0.02, ...intensities) / 1.5));
  const most = 10 ** Math.ceil(Math.log10(Math.max(4, ridge, ...intensities) * 1.5));
  const point = (kernel) => [kernel.intensity, reach(kernel)];
  const rates = working.map(reach);

  const peak = (kind) => machine?.compute?.[kind]?.[settings.cores]?.value;
  function roofs() {
    if (!machine || !known(peak("fp32"))) return [];
    const top = peak("fp32");
    const lines = machine.levels.map((level, i) => {
      const speed = level.read[settings.cores].value;
      const knee = top / speed;
      return {
        name: `${level.name} ${rate(speed, "B/s")}`,
        ink: colour(`series-${i + 1}`),
        data: [
          [least, least * speed],
          [Math.min(knee, most), Math.min(top, most * speed)],
        ],
      };
    });
    const first = top / Math.max(...machine.levels.map((level) => level.read[settings.cores].value));
    lines.push({
      name: `${roofTitles.fp32} ${rate(top, "FLOP/s")}`,
      ink: colour("ink"),
      data: [
        [first, top],
        [most, top],
      ],
    });
    return lines;
  }

  /** Copies and integer kernels have no intensity in FLOP per byte: a strip of their own, by bytes a second, each
   * above or below the next. */
  const bandwidths = (dots) => ({
    x: axis({
      type: "log",
      gridIndex: 1,
      name: `${plural(moving.length, "kernel")} without float arithmetic (copies, integers): B/s`,
      nameLocation: "middle",
      nameGap: 28,
      min: 10 ** Math.floor(Math.log10(Math.min(...moving.map(speedOf)))),
      max: 10 ** Math.ceil(Math.log10(Math.max(...moving.map(speedOf)) * 1.01)),
      axisLabel: { formatter: (value) => rate(value, "") },
    }),
    y: axis({ type: "value", gridIndex: 1, min: 0, max: 4, show: false }),
    series: { ...dots(moving, (kernel, i) => [speedOf(kernel), 1 + (i % 3)]), name: "moving", xAxisIndex: 1, yAxisIndex: 1 },
  });

  const roofLegend = el("div", { class: "legend" });
  const tellRoofs = () =>
    roofLegend.replaceChildren(
      ...roofs().map((line) =>
        el("span", {}, el("i", { class: "swatch line", style: { background: line.ink } }), line.name),
      ),
    );
  tellRoofs();
  state.themed.push(tellRoofs);

  const chart = plot(
    "roofline",
    moving.length ? 560 : 460,
    () => {
      const lines = roofs();
      const highest = Math.max(1, ...rates, ...(lines.length ? [peak("fp32")] : []));
      const lowest = Math.min(highest / 1e3, ...rates) / 1.3;
      const whole = shown.reduce((sum, kernel) => sum + kernel.time, 0) || 1;
      const chosen = chosenKernel();
      const dots = (kernels, place) => ({
        type: "scatter",
        z: 3,
        data: kernels.map((kernel, i) => ({
          value: place(kernel, i),
          kernel,
          name: kernel.key,
          symbolSize: 7 + 26 * Math.sqrt(kernel.time / whole),
          itemStyle: {
            color: boundColour(kernel.bound),
            opacity: chosen && chosen !== kernel.key ? 0.35 : 0.8,
            borderColor: chosen === kernel.key ? colour("ink") : colour("surface"),
            borderWidth: chosen === kernel.key ? 2.5 : 1,
          },
        })),
      });
      const strip = moving.length ? [bandwidths(dots)] : [];
      return {
        grid: [
          { left: 64, right: 24, top: 30, height: 378 },
          { left: 64, right: 24, top: 476, height: 34, show: true, borderColor: colour("grid") },
        ].slice(0, moving.length ? 2 : 1),
        xAxis: [axis({
          type: "log",
          name: "intensity: FLOP / byte",
          nameLocation: "middle",
          nameGap: 32,
          min: least,
          max: most,
          axisLabel: { formatter: digits },
        }), ...strip.map((one) => one.x)],
        yAxis: [axis({
          type: "log",
          name: "FLOP/s",
          nameLocation: "end",
          nameGap: 12,
          min: 10 ** Math.floor(Math.log10(lowest)),
          max: 10 ** Math.ceil(Math.log10(highest * 1.3)),
          axisLabel: { formatter: (value) => rate(value, "") },
        }), ...strip.map((one) => one.y)],
        tooltip: tooltip(({ seriesType, data }) =>
          seriesType !== "scatter"
            ? null
            : kernelTip(data.kernel, [
                data.kernel.flops > 0
                  ? `${rate(reach(data.kernel), "FLOP/s")} at ${digits(data.kernel.intensity)} FLOP/B, ${rate(speedOf(data.kernel), "B/s")}`
                  : `computes nothing in floating point: ${rate(speedOf(data.kernel), "B/s")}`,
                `${seconds(data.kernel.time)} ${data.kernel.measured === null ? "predicted" : "measured"}, ${percent(data.kernel.time / whole)}`,
                data.kernel.bound
                  ? `${data.kernel.bound.kind}-bound ${data.kernel.bound.level || data.kernel.bound.cause || ""}`
                  : null,
              ]),
        ),
        series: [
          ...lines.map((line) => ({
            type: "line",
            name: line.name,
            data: line.data,
            symbol: "none",
            silent: true,
            z: 1,
            lineStyle: { color: line.ink, width: 1.6, opacity: 0.85 },
          })),
          { ...dots(working, point), name: "kernels" },
          ...strip.map((one) => one.series),
        ],
      };
    },
    { click: ({ data }) => data?.kernel && chooseKernel(data.kernel) },
  );
  state.listeners.push(() => chart.redraw());

  const kinds = BOUNDS.filter((kind) => shown.some((kernel) => kernel.bound?.kind === kind));
  const controls = el(
    "div",
    { class: "controls" },
    machine
      ? segmented(
          "Roofs of",
          [
            ["one", "One core"],
            ["all", "All threads"],
          ],
          settings.cores,
          (value) => {
            settings.cores = value;
            tellRoofs();
            chart.redraw();
          },
        )
      : null,
    el(
      "div",
      { class: "legend" },
      kinds.map((kind) =>
        el(
          "span",
          {},
          el("i", { class: "swatch round", style: { background: `var(--bound-${kind})` } }),
          `${kind}-bound`,
        ),
      ),
      kinds.length < 1
        ? el("span", {}, el("i", { class: "swatch round", style: { background: "var(--muted)" } }), "bound not known")
        : null,
      el("span", { text: `area: share of the ${profile ? "measured" : "predicted"} time` }),
    ),
  );
  const notes = [
    machine
      ? null
      : missing("No roofs", "this machine's ceilings were not measured: run opweld machine once, then report again"),
    profile
      ? null
      : missing(
          "Predicted points",
          `the points are where kernels are predicted to be: ${model.data.profile_reason}`,
        ),
    machine && machine.sure && machine.sure !== "high" ? doubtsOf(machine) : null,
  ];
  if (!shown.length) return { root: missing("No kernels", "there is nothing to plot"), start: () => {} };
  return { root: el("div", {}, controls, roofLegend, chart.root, notes), start: chart.start };
}

/** How far the ceilings can be trusted, and what speaks against it. */
function doubtsOf({ sure, measured, doubts = [] }) {
  const words = `How sure the ceilings are: ${sure}, measured ${measured.slice(0, 10)}.`;
  if (!doubts.length) return el("p", { class: "muted", text: words });
  return el(
    "details",
    { class: "ways" },
    el("summary", { text: `${words} ${plural(doubts.length, "doubt")}` }),
    el(
      "ul",
      { class: "names muted" },
      doubts.map((doubt) => el("li", { text: doubt })),
    ),
  );
}
