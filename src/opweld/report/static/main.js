// Puts the page together from the document.

async function begin() {
  const [text] = await Promise.all([unpacked("document"), loadLibrary("echarts")]);
  const data = JSON.parse(text);
  const model = makeModel(data);
  const graphs = graphSection(model);
  const roofline = rooflineSection(model);
  const timeline = timelineSection(model);
  const memory = memorySection(model);
  const numerics = numericsSection(model);
  const sections = [
    ["summary", "Summary", "", summarySection(model)],
    [
      "graph",
      "Graph",
      "Nodes of the file, and the kernels that they became. Click for all that is known of one; drag to pan, scroll to zoom.",
      graphs.root,
    ],
    ["roofline", "Roofline", "What each kernel reaches, under what the machine allows.", roofline.root],
    ["timeline", "Timeline", "Who worked when, in the run nearest the median.", timeline.root],
    ["memory", "Memory", "What lives in each phase of a run.", memory.root],
    ["kernels", "Kernels", "", kernelsSection(model)],
    [
      "ledger",
      "Decisions",
      "What was nearly done, what was done, and what was not, by what it is worth.",
      ledgerSection(model),
    ],
    ["numerics", "Numerics", "How far the answers are from float64, and where the error grows.", numerics.root],
  ];
  const places = sections.map(([id, title]) => el("a", { href: `#${id}`, text: title }));
  document.getElementById("opening").remove();
  document.body.append(
    el(
      "header",
      { class: "top" },
      el(
        "div",
        { class: "brand" },
        el("b", { text: "opweld" }),
        el("span", { class: "ellipsis", text: data.title, title: data.model }),
      ),
      el("nav", { "aria-label": "Sections" }, places),
      searchBox(model),
      themeSwitch(),
    ),
    el(
      "div",
      { class: "page" },
      el(
        "main",
        {},
        hero(data),
        sections.map(([id, title, words, content]) =>
          el(
            "section",
            { class: "section", id },
            el("h2", { text: title }),
            words ? el("p", { class: "lead", text: words }) : null,
            content,
          ),
        ),
        foot(data),
      ),
      sidePanel(model),
    ),
  );
  for (const part of [graphs, roofline, timeline, memory, numerics]) part.start();
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries)
        if (entry.isIntersecting)
          places.forEach((place) => place.classList.toggle("here", place.hash === `#${entry.target.id}`));
    },
    { rootMargin: "-30% 0px -60% 0px" },
  );
  document.querySelectorAll("section.section").forEach((section) => seen.observe(section));
  window.report = { model, charts, graphs, choose, chooseKernel, chooseNode, state };
}

function hero(data) {
  const { summary } = data.account;
  const sizes = Object.entries(data.analysis?.sizes ?? summary.sizes ?? {})
    .map(([name, value]) => `${name} = ${value}`)
    .join(", ");
  return el(
    "div",
    { class: "hero" },
    el("h1", { text: data.title }),
    el(
      "p",
      { class: "muted" },
      [
        data.target,
        sizes && `at ${sizes}`,
        data.machine?.processor,
        `made ${data.made.slice(0, 16).replace("T", " ")} by opweld ${data.opweld}`,
      ]
        .filter(Boolean)
        .join("  ·  "),
    ),
    data.notes.length
      ? el(
          "ul",
          { class: "notes" },
          data.notes.map((note) => el("li", { text: note })),
        )
      : null,
  );
}

const foot = (data) =>
  el(
    "footer",
    { class: "muted" },
    el("span", { text: `${data.model}: one file, no network. Plots by Apache ECharts, layout by Graphviz (Viz.js).` }),
  );

begin().catch((problem) => {
  document.body.append(missing("The report could not be shown", String(problem)));
  throw problem;
});
