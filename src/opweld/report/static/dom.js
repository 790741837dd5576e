// Making elements. Text of a model only ever becomes text: nothing here takes markup.

/** An element: `props` are class, text, title, on (listeners), style, and attributes by their names. */
function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") made.className = value;
    else if (key === "text") made.textContent = String(value);
    else if (key === "on") for (const [name, listener] of Object.entries(value)) made.addEventListener(name, listener);
    else if (key === "style") for (const [name, css] of Object.entries(value)) made.style.setProperty(name, css);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** A button that looks like text: what leads somewhere else in the page. */
function link(text, act, title) {
  return el("button", { class: "link", type: "button", text, title, on: { click: act } });
}

/** What stands where data is missing: what it is, and why it is not there. */
function missing(what, why) {
  return el("div", { class: "missing" }, el("strong", { text: what }), el("span", { text: why }));
}

/** One of several: a row of buttons, the chosen one pressed. `choices` are [value, words] pairs. */
function segmented(label, choices, chosen, choose) {
  const row = el("div", { class: "segmented", role: "group", "aria-label": label });
  const mark = (value) => {
    for (const button of row.children) button.setAttribute("aria-pressed", String(button.dataset.value === value));
  };
  for (const [value, words] of choices) {
    const button = el("button", { type: "button", text: words, on: { click: () => (mark(value), choose(value)) } });
    button.dataset.value = value;
    row.append(button);
  }
  mark(chosen);
  return row;
}

/** A drop-down list. `choices` are [value, words] pairs. */
function select(label, choices, chosen, choose) {
  const list = el("select", { "aria-label": label, on: { change: () => choose(list.value) } });
  for (const [value, words] of choices) list.append(el("option", { value, text: words }));
  list.value = chosen;
  return list;
}

/** Terms and what they are, as a list; pairs whose second part is null are left out. */
function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [term, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(el("dt", { text: term }), el("dd", {}, value));
  }
  return list;
}

/** A small table: `columns` are [heading, whether it holds numbers] pairs, `rows` its "tr" elements. */
function smallTable(columns, rows) {
  const heads = columns.map(([text, number]) => el("th", { class: number ? "number" : "", text }));
  return el("table", { class: "small" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows));
}
