// The page: a list of models, and the one that is chosen, by the address after #.

import { chat } from "./chat.js";
import { button, el, failure, select, table } from "./dom.js";
import { shape as shapeText } from "./format.js";
import { forgetButton, key } from "./key.js";
import { livePanel, requestsPanel, watch } from "./live.js";
import { ask, askJSON, post } from "./server.js";
import { embed, rank } from "./texts.js";
import { tryTensors } from "./try_tensors.js";

const AGAIN_MS = 10_000;
const MANY = 10; // models of a list that wants a filter
const KINDS = { tensors: "tensors", chat: "language model", embed: "embeddings", rank: "ranking" };

const list = document.querySelector("#models");
const main = document.querySelector("#main");
const filter = document.querySelector("#filter");
const health = document.querySelector("#health");

let models = [];
let shown = null; // {identity, panels}

const address = ({ name, version }) => `#/${encodeURIComponent(name)}${version ? `/${version}` : ""}`;

/** The model that the address names: of its versions the one named, else the newest that is loaded. */
function chosen() {
  const [, name, version] = location.hash.split("/");
  if (!name) return null;
  const own = models.filter((model) => encodeURIComponent(model.name) === name);
  return own.find((model) => model.version === version) ?? own.findLast((model) => model.state === "READY") ?? own.at(-1);
}

async function refresh() {
  try {
    const told = await askJSON("/page/models");
    models = told.models;
    document.querySelector("#version").textContent = told.version;
    document.querySelector("#forget").replaceChildren(...[forgetButton()].filter(Boolean));
    showList();
    showChosen();
  } catch (error) {
    if (!shown) main.replaceChildren(failure(error));
  }
}

function showList() {
  const current = chosen();
  const names = [...new Set(models.map((model) => model.name))];
  const items = names.map((name) => {
    const own = models.filter((model) => model.name === name);
    const ready = own.findLast((model) => model.state === "READY") ?? own.at(-1);
    const link = el(
      "a",
      { href: address({ name }), "aria-current": current?.name === name ? "page" : null },
      el("span", { class: `dot ${ready.state.toLowerCase()}`, "aria-hidden": true }),
      el("span", { class: "name", text: name }),
      el("span", { class: "hint", text: ready.state === "READY" ? KINDS[ready.kind] : ready.state.toLowerCase() }),
    );
    return el("li", {}, link);
  });
  list.replaceChildren(...items);
  filter.closest(".field").hidden = names.length < MANY;
  filterList();
  const marked = list.querySelector("[aria-current]");
  if (marked) list.scrollLeft += marked.getBoundingClientRect().left - list.getBoundingClientRect().left;
}

function filterList() {
  const wanted = filter.value.toLowerCase();
  for (const item of list.children) item.hidden = !item.querySelector(".name").textContent.toLowerCase().includes(wanted);
}

function showChosen() {
  const model = chosen();
  const identity = JSON.stringify(model ?? null);
  if (shown?.identity === identity) return; // what somebody has typed stays
  shown = { identity, panels: [] };
  if (!model) showOverview();
  else showModel(model);
}

function showOverview() {
  document.title = "opweld";
  const requests = requestsPanel();
  shown.panels = [requests];
  const missing = location.hash.length > 2 ? failure(new Error("There is no such model.")) : null;
  main.replaceChildren(...[missing, overview(), requests.element].filter(Boolean));
}

/** All models, and what they take and give. */
function overview() {
  const specs = (own) => (own ?? []).map((one) => `${one.name} ${shapeText(one.shape)}`).join(", ");
  const rows = models.map((model) => [
    el("a", { href: address(model), text: model.name }),
    model.version,
    KINDS[model.kind],
    model.state.toLowerCase(),
    specs(model.inputs),
    specs(model.outputs),
  ]);
  const columns = ["model", "version", "kind", "state", "inputs", "outputs"].map((heading) => [heading, false]);
  const found = rows.length ? table(columns, rows) : el("p", { class: "hint", text: "The server has no models." });
  return el("section", { class: "card", "aria-label": "All models" }, el("h2", { text: "Models" }), found);
}

function showModel(model) {
  document.title = `${model.name} · opweld`;
  const panels = [heading(model)];
  if (model.state === "READY") {
    const live = livePanel(model);
    shown.panels = [live];
    if (model.inputs) panels.push(signature(model));
    panels.push(TRIES[model.kind](model), live.element);
  } else if (model.reason) {
    panels.push(failure(new Error(model.reason)));
  }
  main.replaceChildren(...panels);
}

const TRIES = { tensors: tryTensors, chat, embed, rank };

function heading(model) {
  const said = el("div", { role: "status" });
  const versions = models.filter((one) => one.name === model.name);
  const act = (doing, path) => async (event) => {
    event.target.disabled = true;
    said.replaceChildren(el("p", { class: "hint", text: doing }));
    try {
      await post(path, {});
      said.replaceChildren();
    } catch (error) {
      said.replaceChildren(failure(error));
    }
    event.target.disabled = false;
    await refresh();
  };
  const path = `/v2/repository/models/${encodeURIComponent(model.name)}`;
  const buttons = [];
  if (versions.length > 1) {
    const choices = versions.map((one) => [one.version, `version ${one.version}`]);
    const picked = select(choices, model.version, (version) => (location.hash = address({ ...model, version })));
    picked.setAttribute("aria-label", "Version");
    buttons.push(picked);
  }
  if (model.kind === "tensors") {
    if (model.report) buttons.push(button("Report", () => report(model, said)));
    const loaded = model.state === "READY";
    buttons.push(button(loaded ? "Load again" : "Load", act("Loading…", `${path}/load`)));
    if (loaded) buttons.push(button("Unload", act("Unloading…", `${path}/unload`)));
  }
  const context = model.context ? `, context of ${model.context.toLocaleString("en")} tokens` : "";
  const state = model.state === "READY" ? "ready" : model.state.toLowerCase();
  return el(
    "header",
    { class: "heading" },
    el("h2", { text: model.name }),
    el("p", { class: "hint", text: `${KINDS[model.kind]}, ${state}${context}` }),
    el("div", { class: "row" }, buttons),
    said,
  );
}

/** Shows the schema of the server where it needs a key, which a link would not send. */
async function showSchema(event) {
  if (!key()) return;
  event.preventDefault();
  try {
    const answer = await ask("/openapi.json");
    location.assign(URL.createObjectURL(await answer.blob()));
  } catch (error) {
    main.replaceChildren(failure(error));
  }
}

/** Has the report of a model made, and shows where it is: a browser opens what was clicked, not what was waited for. */
async function report(model, said) {
  said.replaceChildren(el("p", { class: "hint", text: "The report is being made; that takes some seconds…" }));
  try {
    const answer = await post("/page/report", { name: model.name, version: model.version });
    const { path } = await answer.json();
    const link = el("a", { href: path, target: "_blank", rel: "noopener", text: "Open the report" });
    said.replaceChildren(el("p", {}, link, el("span", { class: "hint", text: ", of what was compiled" })));
    link.focus();
  } catch (error) {
    said.replaceChildren(failure(error));
  }
}

function signature(model) {
  const rows = (specs) => specs.map((one) => [el("code", { text: one.name }), one.dtype, shapeText(one.shape)]);
  const of = (title, specs) =>
    el("div", {}, el("h4", { text: title }), table([["name", false], ["dtype", false], ["shape", false]], rows(specs)));
  const batch = model.max_batch ? `Calls are put together, up to ${model.max_batch} rows a run.` : null;
  return el(
    "section",
    { class: "card", "aria-label": "Inputs and outputs" },
    el("div", { class: "pair" }, of("Inputs", model.inputs), of("Outputs", model.outputs)),
    batch ? el("p", { class: "hint", text: batch }) : null,
  );
}

function told(readings) {
  health.textContent = readings ? "answers" : "does not answer";
  health.className = readings ? "good" : "wrong";
  if (readings) for (const panel of shown?.panels ?? []) panel.show(readings);
}

filter.addEventListener("input", filterList);
window.addEventListener("hashchange", () => {
  showList();
  showChosen();
  main.focus();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the model
  main.focus();
});
document.querySelector("#api").addEventListener("click", showSchema);
await refresh();
watch(told);
setInterval(() => document.hidden || refresh(), AGAIN_MS);
