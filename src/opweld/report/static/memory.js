// Memory over time: what lives in each phase, each buffer from where it is written to where it is last read.

function memorySection(model) {
  const { analysis } = model.data;
  const buffers = (analysis?.buffers ?? []).filter((buffer) => buffer.bytes > 0);
  if (!analysis) return { root: missing("No memory", "the report was made without an analysis"), start: () => {} };
  if (!buffers.length)
    return { root: missing("No buffers", "no value between kernels needs memory of its own"), start: () => {} };
  const variants = [...new Set(buffers.map((buffer) => buffer.variant))];
  const settings = {
    variant: variants.includes(model.data.profile?.variant) ? model.data.profile.variant : variants[0],
  };
  const makers = new Map();
  for (const kernel of model.kernels) for (const name of kernel.nodes) makers.set(`${kernel.variant}\n${name}`, kernel);

  const chart = plot(
    "memory",
    400,
    () => {
      const own = buffers.filter((buffer) => buffer.variant === settings.variant);
      const last = Math.max(
        ...own.map((buffer) => buffer.last),
        ...model.kernels.filter((kernel) => kernel.variant === settings.variant).map((kernel) => kernel.phase),
      );
      const placed = stacked(own);
      const live = Array.from({ length: last + 1 }, (_, phase) =>
        own.reduce((sum, buffer) => sum + (buffer.first <= phase && phase <= buffer.last ? buffer.bytes : 0), 0),
      );
      const steps = live.flatMap((value, phase) => [
        [phase, value],
        [phase + 1, value],
      ]);
      const { arena } = analysis.memory;
      const highest = Math.max(
        arena ?? 0,
        ...placed.map((item) => item.low + item.buffer.bytes),
        analysis.memory.live ?? 0,
      );
      const interval = 2 ** Math.ceil(Math.log2(Math.max(highest, 1) / 6));
      const mark = (value, words, ink, position) => ({
        yAxis: value,
        lineStyle: { color: ink, type: "dashed", width: 1.5 },
        label: { formatter: () => `${words} ${bytes(value)}`, position, color: ink, fontSize: 12 },
      });
      return {
        grid: { left: 84, right: 24, top: 24, bottom: 74 },
        xAxis: axis({
          type: "value",
          name: "phase",
          nameLocation: "middle",
          nameGap: 28,
          min: 0,
          max: last + 1,
          minInterval: 1,
          splitLine: { show: false },
        }),
        yAxis: axis({
          type: "value",
          interval,
          max: interval * Math.ceil((highest * 1.08) / interval),
          axisLabel: { formatter: bytes },
        }),
        dataZoom: zooms({ xAxisIndex: 0 }),
        tooltip: tooltip(
          ({ data }) =>
            data?.buffer &&
            el(
              "div",
              { class: "tip" },
              el("strong", { text: data.buffer.name }),
              el("div", { text: `${bytes(data.buffer.bytes)}, phases ${data.buffer.first} to ${data.buffer.last}` }),
              data.buffer.nodes.slice(0, 3).map((name) => el("div", { class: "muted", text: shorten(name, 70) })),
            ),
        ),
        series: [
          {
            type: "custom",
            name: "buffers",
            encode: { x: [0, 1], y: [2, 3] },
            data: placed.map(({ buffer, low, kernel }) => ({
              value: [buffer.first, buffer.last + 1, low, low + buffer.bytes],
              buffer,
              kernel,
            })),
            renderItem: (params, api) => {
              const { kernel } = placed[params.dataIndex];
              const [x0, y0] = api.coord([api.value(0), api.value(2)]);
              const [x1, y1] = api.coord([api.value(1), api.value(3)]);
              const shape = echarts.graphic.clipRectByRect(
                { x: x0 + 0.5, y: y1, width: Math.max(x1 - x0 - 1, 0.7), height: Math.max(y0 - y1, 0.7) },
                params.coordSys,
              );
              return (
                shape && {
                  type: "rect",
                  shape: { ...shape, r: shape.height > 6 && shape.width > 6 ? 3 : 0 },
                  style: {
                    fill: kernel ? kernelColour(kernel) : colour("muted"),
                    opacity: 0.8,
                    stroke: colour("surface"),
                    lineWidth: 0.7,
                  },
                }
              );
            },
          },
          {
            type: "line",
            name: "live",
            data: steps,
            symbol: "none",
            silent: true,
            z: 4,
            lineStyle: { color: colour("ink"), width: 1.6 },
            markLine: {
              silent: true,
              symbol: "none",
              data: [
                ...(known(arena)
                  ? [
                      mark(
                        arena,
                        arena === analysis.memory.live ? "arena, and largest live set" : "arena",
                        colour("accent"),
                        "insideEndTop",
                      ),
                    ]
                  : []),
                ...(known(analysis.memory.live) && arena !== analysis.memory.live
                  ? [mark(analysis.memory.live, "largest live set", colour("muted-ink"), "insideStartTop")]
                  : []),
              ],
            },
          },
        ],
      };
    },
    { click: ({ data }) => data?.kernel && chooseKernel(data.kernel) },
  );

  /** Each buffer at the lowest free height over its life, as high as it is large; the largest first: so they fit. */
  function stacked(own) {
    const done = [];
    for (const buffer of [...own].sort((a, b) => b.bytes - a.bytes || a.first - b.first)) {
      const beside = done
        .filter((other) => other.buffer.first <= buffer.last && buffer.first <= other.buffer.last)
        .sort((a, b) => a.low - b.low);
      let low = 0;
      for (const other of beside) {
        if (low + buffer.bytes <= other.low) break;
        low = Math.max(low, other.low + other.buffer.bytes);
      }
      done.push({
        buffer,
        low,
        kernel: buffer.nodes.map((name) => makers.get(`${buffer.variant}\n${name}`)).find(Boolean),
      });
    }
    return done;
  }

  const { memory } = analysis;
  return {
    root: el(
      "div",
      {},
      el(
        "div",
        { class: "figures" },
        known(memory.arena) ? figure("arena", bytes(memory.arena)) : null,
        figure("largest live set", bytes(memory.live)),
        figure("all tensors, without sharing", bytes(memory.tensors)),
        figure("weights", bytes(memory.weights)),
      ),
      variants.length > 1
        ? el(
            "div",
            { class: "controls" },
            select(
              "Variant",
              variants.map((name) => [name, name]),
              settings.variant,
              (value) => {
                settings.variant = value;
                chart.redraw();
              },
            ),
          )
        : null,
      chart.root,
      el(
        "div",
        { class: "legend" },
        el("span", {
          text: "Each bar is a buffer, as high as it is large, as long as it lives, in the colour of the kernel that writes it; the line is what lives in a phase. Heights are sizes, not addresses.",
        }),
      ),
    ),
    start: chart.start,
  };
}
