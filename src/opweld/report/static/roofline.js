// The roofline: what each kernel reaches, under what the machine allows at its intensity, a roof for each memory level.

const roofTitles = { fp32: "float32 peak", bf16: "bfloat16 peak", int8: "int8 peak" };

function rooflineSection(model) {
  const { machine, profile } = model.data;
  const settings = { cores: (profile?.threads ?? 1) > 1 ? "all" : "one" };
  const shown = model.kernels.filter(
    (kernel) => known(kernel.wall) && kernel.wall > 0 && (profile === null || kernel.measured !== null),
  );
  const reach = (kernel) => kernel.flops / kernel.wall;
  const intensities = shown.map((kernel) => kernel.intensity).filter((value) => value > 0);
  const slowest = machine ? Math.min(...machine.levels.map((level) => level.read.all.value)) : 0;
  const ridge = slowest > 0 ? (machine.compute.fp32?.all.value ?? 0) / slowest : 0;
  const least = 10 ** Math.floor(Math.log10(Math.min(0.02, ...intensities) / 1.5));
  const most = 10 ** Math.ceil(Math.log10(Math.max(4, ridge, ...intensities) * 1.5));
  // What computes nothing stands at the left edge, as high as its bandwidth reaches there: against the roofs of memory.
  const point = (kernel) =>
    kernel.flops > 0 ? [kernel.intensity, reach(kernel)] : [least, (least * kernel.moved) / kernel.wall];
  const rates = shown.map((kernel) => point(kernel)[1]).filter((value) => value > 0);

  const peak = (kind) => machine?.compute?.[kind]?.[settings.cores]?.value;
  function roofs() {
    if (!machine || !known(peak("fp32"))) return [];
    const top = peak("fp32");
    const inset = least * (most / least) ** 0.075;
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
        mark: [inset, inset * speed],
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
      mark: [most, top],
      over: true,
    });
    return lines;
  }

  const chart = plot(
    "roofline",
    460,
    () => {
      const lines = roofs();
      const highest = Math.max(...rates, ...(machine ? [peak("fp32")] : []));
      const lowest = Math.min(...rates, ...(lines.length ? [highest / 1e4] : []));
      const whole = shown.reduce((sum, kernel) => sum + kernel.time, 0) || 1;
      const chosen = chosenKernel();
      return {
        grid: { left: 84, right: 34, top: 30, bottom: 52 },
        xAxis: axis({
          type: "log",
          name: "intensity: FLOP / byte",
          nameLocation: "middle",
          nameGap: 32,
          min: least,
          max: most,
          axisLabel: { formatter: digits },
        }),
        yAxis: axis({
          type: "log",
          name: "FLOP/s",
          nameLocation: "end",
          nameGap: 12,
          min: 10 ** Math.floor(Math.log10(lowest)),
          max: 10 ** Math.ceil(Math.log10(highest * 1.3)),
          axisLabel: { formatter: (value) => rate(value, "") },
        }),
        tooltip: tooltip(({ seriesType, data }) =>
          seriesType !== "scatter"
            ? null
            : kernelTip(data.kernel, [
                `${rate(reach(data.kernel), "FLOP/s")} at ${digits(data.kernel.intensity)} FLOP/B, ${rate(data.kernel.moved / data.kernel.wall, "B/s")}`,
                `${seconds(data.kernel.time)} ${data.kernel.measured === null ? "predicted" : "measured"}, ${percent(data.kernel.time / whole)}`,
                data.kernel.bound
                  ? `${data.kernel.bound.kind}-bound ${data.kernel.bound.level || data.kernel.bound.cause || ""}`
                  : null,
                data.kernel.flops > 0 ? null : "computes nothing in floating point: at the left edge, by its bandwidth",
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
            markPoint: {
              silent: true,
              symbol: "circle",
              symbolSize: 0.01,
              data: [
                {
                  coord: line.mark,
                  label: {
                    show: true,
                    position: line.over ? "top" : "inside",
                    align: line.over ? "right" : "center",
                    formatter: () => line.name,
                    color: line.ink,
                    fontSize: 11.5,
                    backgroundColor: line.over ? "transparent" : colour("surface"),
                    padding: [2, 5],
                  },
                },
              ],
            },
          })),
          {
            type: "scatter",
            name: "kernels",
            z: 3,
            data: shown.map((kernel) => ({
              value: point(kernel),
              kernel,
              name: kernel.key,
              symbol: kernel.flops > 0 ? "circle" : "diamond",
              symbolSize: 7 + 26 * Math.sqrt(kernel.time / whole),
              itemStyle: {
                color: boundColour(kernel.bound),
                opacity: chosen && chosen !== kernel.key ? 0.35 : 0.8,
                borderColor: chosen === kernel.key ? colour("ink") : colour("surface"),
                borderWidth: chosen === kernel.key ? 2.5 : 1,
              },
            })),
          },
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
  return { root: el("div", {}, controls, chart.root, notes), start: chart.start };
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
