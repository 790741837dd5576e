// Making elements. What models and servers say only ever becomes text: nothing here takes markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(made, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") made.textContent = String(value);
    else if (key === "on") for (const [name, listener] of Object.entries(value)) made.addEventListener(name, listener);
    else if (key === "value") made.value = value;
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** An element: `props` are text, on (listeners), value, and attributes by their names. */
export const el = (tag, props = {}, ...children) => filled(document.createElement(tag), props, children);

/** An element of a drawing. */
export const svg = (tag, props = {}, ...children) => filled(document.createElementNS(SVG, tag), props, children);

let fields = 0;

/** A field under its label. `hint` stands below it, and is read with it. */
export function labelled(label, field, hint) {
  field.id ||= `field-${++fields}`;
  const below = hint ? el("p", { class: "hint", id: `${field.id}-hint`, text: hint }) : null;
  if (below) field.setAttribute("aria-describedby", below.id);
  return el("div", { class: "field" }, el("label", { for: field.id, text: label }), field, below);
}

/** A drop-down list. `choices` are [value, words] pairs. */
export function select(choices, chosen, change) {
  const options = choices.map(([value, words]) => el("option", { value, text: words }));
  const list = el("select", { on: { change: () => change?.(list.value) } }, options);
  list.value = chosen ?? choices[0][0];
  return list;
}

/** A number to type. */
export const number = (value, least, more = {}) => el("input", { type: "number", min: least, step: 1, value, ...more });

export function button(text, act, props = {}) {
  return el("button", { type: "button", text, on: { click: act }, ...props });
}

/** A table: `columns` are [heading, whether it holds numbers] pairs; cells are texts or elements. */
export function table(columns, rows) {
  const cell = (tag, content, numeric) =>
    el(tag, { class: numeric ? "number" : null, scope: tag === "th" ? "col" : null }, content);
  const head = el("tr", {}, columns.map(([text, numeric]) => cell("th", text, numeric)));
  const body = rows.map((row) => el("tr", {}, row.map((content, i) => cell("td", content, columns[i][1]))));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}

/** An error in words. */
export const failure = (error) => el("p", { class: "failure", role: "alert", text: error.message ?? String(error) });
