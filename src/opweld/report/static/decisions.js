// A decision in words: what was taken, among what, why, and what each way would take.

function decisionCard(model, decision) {
  const miss = !fired(decision) && Object.keys(decision.failed).length > 0;
  const gain = saved(decision);
  const worth = gain > 0 ? `saves ${seconds(gain)}` : "";
  const kind = fired(decision) ? "applied" : miss ? "refused" : "kept";
  const card = el(
    "details",
    { class: `decision ${kind}` },
    el(
      "summary",
      {},
      el("span", { class: `tag ${kind}`, text: kind }),
      el("code", { class: "rule", text: decision.rule }),
      el("span", { class: "taken", text: decision.taken }),
      el("span", { class: "why", text: decision.reason }),
      worth ? el("span", { class: "worth", text: worth }) : null,
      el("span", { class: "about", text: shorten(leaf(decision.subject), 48), title: decision.subject }),
    ),
  );
  card.addEventListener("toggle", () => {
    if (card.open && card.children.length === 1) card.append(decisionBody(model, decision));
  });
  return card;
}

function decisionBody(model, decision) {
  const row = (given) =>
    el(
      "tr",
      { class: given.name === decision.taken ? "is-taken" : "" },
      el("td", { text: given.name }),
      el("td", { class: "number", text: known(given.seconds) ? seconds(given.seconds) : NONE }),
      el("td", { class: "number", text: known(given.bytes) ? bytes(given.bytes) : (given.bytes ?? NONE) }),
      el("td", { class: "number", text: known(given.flops) ? many(given.flops) : (given.flops ?? NONE) }),
    );
  const failed = Object.entries(decision.failed)
    .map(([key, value]) => `${key} = ${value}`)
    .join(", ");
  return el(
    "div",
    { class: "decision-body" },
    smallTable(
      [
        ["alternative", false],
        ["time", true],
        ["bytes", true],
        ["FLOPs", true],
      ],
      decision.alternatives.map(row),
    ),
    facts([
      ["About", decision.subject],
      ["Said no", failed],
      ["Wanted", decision.preferred === decision.taken ? null : decision.preferred],
      ["Nodes", decision.site.length ? nodeLinks(model, decision.site) : null],
      ["Id", el("code", { text: decision.id, title: "For --disable and --pin" })],
    ]),
  );
}

/** Names of nodes as decisions use them: links where the file has such a node. */
function nodeLinks(model, names, most = 12, look = "") {
  const unique = [...new Set(names)];
  const list = el("ul", { class: `names ${look}` });
  const add = (some) =>
    list.append(
      ...some.map((name) => {
        const node = model.called.get(name);
        return el(
          "li",
          {},
          node
            ? link(shorten(name, 90), () => chooseNode(node), name)
            : el("span", { text: shorten(name, 90), title: name }),
          node ? el("span", { class: "muted", text: ` ${node.operator}` }) : null,
        );
      }),
    );
  add(unique.slice(0, most));
  if (unique.length > most) {
    const more = el(
      "li",
      {},
      link(`${unique.length - most} more`, () => (more.remove(), add(unique.slice(most)))),
    );
    list.append(more);
  }
  return list;
}
