// Trying a model of tensors: its inputs as a form, its answer below.

import { answer } from "./answers.js";
import { button, el, failure } from "./dom.js";
import { seconds } from "./format.js";
import { inputForm } from "./inputs.js";
import { ask } from "./server.js";
import { infer } from "./tensors.js";

export function tryTensors(model) {
  const form = inputForm(model.inputs);
  const result = el("div", { class: "result", role: "status", "aria-live": "polite" });
  const run = el("button", { type: "submit", class: "primary", text: "Run" });
  const stop = button("Stop", () => running?.abort(), { hidden: true });
  let running = null;

  const submit = async (event) => {
    event.preventDefault();
    if (running) return;
    running = new AbortController();
    run.disabled = true;
    stop.hidden = false;
    try {
      const tensors = await form.read();
      const begun = performance.now();
      const outputs = await infer(ask, model.name, model.version, tensors, running.signal);
      const took = `Answered in ${seconds((performance.now() - begun) / 1000)}, the way to this browser included.`;
      result.replaceChildren(el("p", { class: "hint", text: took }), ...outputs.map(answer));
    } catch (error) {
      if (error.name === "AbortError") result.replaceChildren();
      else result.replaceChildren(failure(error));
    } finally {
      running = null;
      run.disabled = false;
      stop.hidden = true;
    }
  };

  const fields = el("form", { on: { submit } }, form.element, el("div", { class: "row" }, run, stop));
  return el("section", { class: "card", "aria-label": "Try it" }, el("h3", { text: "Try it" }), fields, result);
}
