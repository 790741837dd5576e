// The search box: nodes and kernels by any part of their names, operators or source lines.

function searchBox(model) {
  const all = [
    ...model.kernels.map((kernel) => ({
      text: `${kernel.name} ${kernel.operators}`.toLowerCase(),
      title: kernel.name,
      second: kernel.operators,
      kind: "kernel",
      act: () => chooseKernel(kernel),
    })),
    ...model.nodes
      .filter((node) => node.operator !== "Constant")
      .map((node) => ({
        text: `${node.name} ${node.operator} ${node.source}`.toLowerCase(),
        title: node.name || "(no name)",
        second: node.operator,
        kind: "node",
        act: () => chooseNode(node),
      })),
  ];
  const list = el("div", { class: "found", role: "listbox", id: "found", hidden: true });
  const input = el("input", {
    type: "search",
    id: "search",
    placeholder: "Find a node or kernel   /",
    "aria-label": "Find a node or kernel",
    autocomplete: "off",
    spellcheck: "false",
    role: "combobox",
    "aria-controls": "found",
    "aria-expanded": "false",
  });
  let found = [];
  let at = 0;
  const show = () => {
    const words = input.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    found = words.length ? all.filter((one) => words.every((word) => one.text.includes(word))).slice(0, 40) : [];
    at = 0;
    list.replaceChildren(
      ...found.map((one, i) =>
        el(
          "button",
          {
            type: "button",
            role: "option",
            title: one.title,
            "aria-selected": String(i === at),
            on: { pointerdown: (event) => (event.preventDefault(), take(i)) },
          },
          el("span", { class: "tag", text: one.kind }),
          el("span", { class: "ellipsis", text: shorten(one.title, 64) }),
          el("span", { class: "muted ellipsis", text: one.second }),
        ),
      ),
    );
    if (words.length && !found.length) list.replaceChildren(el("p", { class: "muted", text: "nothing of this name" }));
    list.hidden = !words.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
  };
  const take = (i) => {
    list.hidden = true;
    input.blur();
    found[i]?.act();
  };
  input.addEventListener("input", show);
  input.addEventListener("focus", show);
  input.addEventListener("blur", () => {
    list.hidden = true;
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") take(at);
    else if (event.key === "Escape") input.blur();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      at = Math.max(0, Math.min(found.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
      [...list.children].forEach((child, i) => child.setAttribute("aria-selected", String(i === at)));
      list.children[at]?.scrollIntoView({ block: "nearest" });
      event.preventDefault();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) return;
    event.preventDefault();
    input.focus();
  });
  return el("div", { class: "search" }, input, list);
}
