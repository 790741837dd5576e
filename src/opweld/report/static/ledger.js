// The ledger: near misses, most expensive first, and every decision, ranked by what it saves.

function ledgerSection(model) {
  const { near_misses: misses, decisions } = model.data.account;
  const byId = new Map(decisions.map((decision) => [decision.id, decision]));
  const ranked = [...decisions].sort((a, b) => (saved(b) ?? -1) - (saved(a) ?? -1));
  const applied = ranked.filter(fired);
  const rest = ranked.filter((decision) => !fired(decision));
  const settings = { kind: "misses", rule: "", text: "" };
  const list = el("div", { class: "ledger" });
  const controls = el("div", { class: "controls" });

  function ruleChoices() {
    const rules =
      settings.kind === "misses"
        ? misses.map((miss) => miss.rule)
        : (settings.kind === "applied" ? applied : rest).map((decision) => decision.rule);
    const times = new Map();
    for (const rule of rules) times.set(rule, (times.get(rule) ?? 0) + 1);
    return [["", "all rules"], ...[...times].sort().map(([rule, number]) => [rule, `${rule} (${number})`])];
  }

  function fill() {
    const wanted = settings.text.toLowerCase();
    const text = (one) =>
      [
        one.rule,
        one.reason,
        ...(one.operators ?? []),
        one.taken ?? "",
        ...(one.site ?? []),
        one.subject ?? "",
        one.id ?? "",
        ...(one.places ?? []).flatMap((place) => [place.id, ...place.nodes]),
      ]
        .join(" ")
        .toLowerCase();
    const passes = (one) => (!settings.rule || one.rule === settings.rule) && (!wanted || text(one).includes(wanted));
    const found = { misses, applied, rest }[settings.kind].filter(passes);
    const make = settings.kind === "misses" ? missCard : (decision) => decisionCard(model, decision);
    const empty = {
      misses: ["No near misses", "nothing that could have been fused was kept apart"],
      applied: ["Nothing", "no such decision took more than its baseline"],
      rest: ["Nothing", "no such decision stayed at its baseline"],
    }[settings.kind];
    const heading = { misses: missHeading, applied: decisionHeading, rest: decisionHeading }[settings.kind];
    list.replaceChildren(
      found.length
        ? el("div", {}, heading(), moreOf(found, 30, make))
        : missing(
            settings.text || settings.rule ? "No match" : empty[0],
            settings.text || settings.rule ? "nothing fits the filter" : empty[1],
          ),
    );
  }

  const timed = misses.some((miss) => known(miss.seconds));
  const cost = (text, title) => el("b", { class: "cost", text, title });
  const counted = (value) => (known(value) ? null : "not counted");

  const missHeading = () =>
    el(
      "div",
      { class: "heading" },
      timed ? cost("time") : null,
      cost("bytes"),
      el("span", { text: "that keeping them apart costs" }),
    );

  const decisionHeading = () =>
    el(
      "div",
      { class: "heading" },
      el("span", { text: "rule, what was taken and why, time that it saves" }),
    );

  function missCard(miss) {
    const card = el(
      "details",
      { class: "decision miss" },
      el(
        "summary",
        {},
        timed ? cost(seconds(miss.seconds), counted(miss.seconds)) : null,
        cost(bytes(miss.bytes), counted(miss.bytes)),
        el("span", { class: "operators", text: miss.operators.join(" → ") }),
        el("code", { class: "rule", text: miss.rule }),
        el("span", { class: "why", text: miss.reason }),
        miss.places.length > 1 ? el("span", { class: "tag", text: `${count(miss.places.length)}×` }) : null,
      ),
    );
    card.addEventListener("toggle", () => {
      if (!card.open || card.children.length > 1) return;
      const failed = Object.entries(miss.failed)
        .map(([key, value]) => `${key} = ${value}`)
        .join(", ");
      card.append(
        el(
          "div",
          { class: "decision-body" },
          facts([
            ["What lifts it", miss.fix || "nothing does"],
            ["Said no", failed],
          ]),
          moreOf(miss.places, 6, (place) =>
            el(
              "div",
              { class: "place" },
              nodeLinks(model, place.nodes, 12, "inline"),
              place.sources.some(Boolean)
                ? el("div", { class: "muted", text: place.sources.filter(Boolean).join(" → ") })
                : null,
              byId.has(place.id) ? ways(byId.get(place.id)) : null,
            ),
          ),
        ),
      );
    });
    return card;
  }

  /** What each way would take, once it is asked for. */
  function ways(decision) {
    const more = el("details", { class: "ways" }, el("summary", { text: "what each way would take" }));
    more.addEventListener("toggle", () => {
      if (more.open && more.children.length === 1) more.append(decisionBody(model, decision));
    });
    return more;
  }

  function setControls() {
    const filter = el("input", {
      type: "search",
      placeholder: "Filter by node, rule or reason",
      "aria-label": "Filter decisions",
      value: settings.text,
      on: {
        input: () => {
          settings.text = filter.value.trim();
          fill();
        },
      },
    });
    controls.replaceChildren(
      segmented(
        "What",
        [
          ["misses", `Near misses (${count(misses.length)})`],
          ["applied", `Applied (${count(applied.length)})`],
          ["rest", `At the baseline (${count(rest.length)})`],
        ],
        settings.kind,
        (value) => {
          Object.assign(settings, { kind: value, rule: "" });
          setControls();
          fill();
        },
      ),
      select("Rule", ruleChoices(), settings.rule, (value) => {
        settings.rule = value;
        fill();
      }),
      filter,
    );
  }
  setControls();
  fill();
  return el("div", {}, controls, list);
}
