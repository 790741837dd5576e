// The timeline: what every thread did of every kernel in the run nearest the median, and where it waited.

function timelineSection(model) {
  const { profile } = model.data;
  if (!profile) return { root: missing("No timeline", model.data.profile_reason), start: () => {} };
  const { timeline } = profile;
  const steps = profile.kernels.map((kernel) => model.byKey.get(keyOf(kernel.variant ?? profile.variant, kernel.name)));
  const threads = Math.max(profile.threads, ...timeline.parts.map((part) => part.thread + 1));
  const wall = timeline.wall_ns;
  const busy = Array.from({ length: threads }, () => 0);
  for (const part of timeline.parts) busy[part.thread] += part.busy;
  const rows = Array.from({ length: threads }, (_, i) => `thread ${i}`);
  const time = (value) => seconds(value * 1e-9);

  const bar = (params, api, top, height, from, to, style) => {
    const [x0, y] = api.coord([from, api.value(2)]);
    const [x1] = api.coord([to, api.value(2)]);
    const size = api.size([0, 1])[1];
    const area = params.coordSys;
    const shape = echarts.graphic.clipRectByRect(
      { x: x0, y: y - size / 2 + size * top, width: Math.max(x1 - x0, 0.7), height: size * height },
      area,
    );
    return shape && { type: "rect", shape: { ...shape, r: shape.width > 8 ? 3 : 0 }, style };
  };

  const chart = plot(
    "timeline",
    110 + 62 * threads,
    () => ({
      grid: { left: 84, right: 24, top: 12, bottom: 62 },
      xAxis: axis({
        type: "value",
        min: 0,
        max: wall,
        axisLabel: { formatter: time, hideOverlap: true },
        splitNumber: 8,
      }),
      yAxis: axis({
        type: "category",
        data: rows,
        inverse: true,
        axisTick: { show: false },
        splitLine: { show: false },
      }),
      dataZoom: zooms({ xAxisIndex: 0 }),
      tooltip: tooltip(({ seriesName, data }) => {
        if (seriesName === "waiting")
          return el(
            "div",
            { class: "tip" },
            el("strong", { text: rows[data.value[2]] }),
            el("div", {
              text: `busy ${percent(busy[data.value[2]] / wall)}, waiting ${time(wall - busy[data.value[2]])}`,
            }),
          );
        const { part, kernel } = data;
        return (
          kernel &&
          kernelTip(kernel, [
            `${time(part.begin)} to ${time(part.end)} on thread ${part.thread}`,
            `busy ${time(part.busy)} of ${time(part.end - part.begin)}, ${plural(part.pieces, "piece")}`,
          ])
        );
      }),
      series: [
        {
          type: "custom",
          name: "waiting",
          z: 1,
          data: rows.map((_, i) => ({ value: [0, wall, i] })),
          renderItem: (params, api) =>
            bar(params, api, 0.12, 0.76, 0, wall, { fill: colour("waiting"), decal: undefined }),
        },
        {
          type: "custom",
          name: "parts",
          z: 2,
          encode: { x: [0, 1], y: 2 },
          data: timeline.parts.map((part) => ({
            value: [part.begin, part.end, part.thread],
            part,
            kernel: steps[part.step],
          })),
          renderItem: (params, api) => {
            const part = timeline.parts[params.dataIndex];
            const kernel = steps[part.step];
            const ink = kernel ? kernelColour(kernel) : colour("muted");
            const solid = bar(
              params,
              api,
              0.12,
              0.76,
              part.begin,
              part.begin + Math.min(part.busy, part.end - part.begin),
              { fill: ink },
            );
            const whole = bar(params, api, 0.12, 0.76, part.begin, part.end, { fill: ink, opacity: 0.35 });
            const label =
              solid && solid.shape.width > 54 && kernel
                ? {
                    type: "text",
                    style: {
                      text: kernel.name,
                      x: solid.shape.x + 6,
                      y: solid.shape.y + solid.shape.height / 2,
                      width: solid.shape.width - 10,
                      overflow: "truncate",
                      verticalAlign: "middle",
                      fill: colour("on-kernel"),
                      fontSize: 11,
                    },
                  }
                : null;
            return { type: "group", children: [whole, solid, label].filter(Boolean) };
          },
        },
      ],
    }),
    { click: ({ data }) => data?.kernel && chooseKernel(data.kernel) },
  );
  state.listeners.push((selection) => {
    const found =
      selection?.kind === "kernel" ? timeline.parts.filter((part) => steps[part.step] === selection.item) : [];
    if (!found.length) return;
    const [from, to] = [Math.min(...found.map((part) => part.begin)), Math.max(...found.map((part) => part.end))];
    const { start, end } = charts.timeline.getOption().dataZoom[0];
    const seen = (end - start) / 100;
    if (seen > 0.98) return;
    const middle = (100 * (from + to)) / 2 / wall;
    const half = (seen * 100) / 2;
    charts.timeline.dispatchAction({
      type: "dataZoom",
      start: Math.max(0, middle - half),
      end: Math.min(100, middle + half),
    });
  });

  const spent = busy.reduce((a, b) => a + b, 0);
  const idle = profile.idle;
  return {
    root: el(
      "div",
      {},
      el(
        "div",
        { class: "figures" },
        figure("one run", time(wall)),
        figure("threads busy", percent(spent / (wall * threads))),
        figure("between phases", seconds(idle.between)),
        figure("before the first kernel", seconds(idle.before)),
        figure("accounted for", percent(profile.accounted)),
        figure("what timing adds", profile.overhead === null ? "not measurable" : percent(profile.overhead)),
      ),
      chart.root,
      el(
        "div",
        { class: "legend" },
        el("span", {}, el("i", { class: "swatch", style: { background: "var(--waiting)" } }), "waiting"),
        el("span", {
          text: "solid: busy with the kernel; pale: inside of it, waiting for more. Drag the ends of the bar to zoom, or hold ctrl and scroll.",
        }),
      ),
      profile.counters.available
        ? el(
            "div",
            { class: "figures" },
            Object.entries(profile.counters.values).map(([name, value]) => figure(name, many(value))),
          )
        : missing("No hardware counters", profile.counters.reason || "the machine gives none"),
    ),
    start: chart.start,
  };
}

const figure = (words, value) => el("div", { class: "figure" }, el("b", { text: value }), el("span", { text: words }));
