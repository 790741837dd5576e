// Trying an encoder: a text as a vector, or texts in the order in which they answer a query.

import { columns } from "./charts.js";
import { el, failure, labelled, table } from "./dom.js";
import { digits, element } from "./format.js";
import { post } from "./server.js";

/** Vectors of texts, and how near they are to each other. */
export function embed(model) {
  const texts = el("textarea", { rows: 3, required: true });
  return form("Embed", labelled("Texts", texts, "A line is a text."), async () => {
    const input = lines(texts.value);
    const { data } = await (await post("/v1/embeddings", { model: model.name, input })).json();
    const vectors = data.map((one) => one.embedding);
    const drawn = vectors[0].map((value, i) => [value, `${i}: ${element(value)}`]);
    const words = ["0", String(drawn.length - 1)];
    const rows = input.map((text, i) => [text, ...vectors.map((other) => digits(cosine(vectors[i], other)))]);
    const near = table([["cosine", false], ...input.map((_, i) => [String(i + 1), true])], rows);
    const told = el("p", { class: "hint", text: `${vectors[0].length} numbers a text; those of the first` });
    return [told, columns(drawn, words, "The vector of the first text"), input.length > 1 ? near : null];
  });
}

/** Texts by their scores. */
export function rank(model) {
  const query = el("input", { required: true });
  const texts = el("textarea", { rows: 4, required: true });
  const fields = [labelled("Query", query), labelled("Texts", texts, "A line is a text.")];
  return form("Rank", fields, async () => {
    const documents = lines(texts.value);
    const body = { model: model.name, query: query.value, documents };
    const { results } = await (await post("/v1/rerank", body)).json();
    const rows = results.map((one) => [documents[one.index], digits(one.relevance_score)]);
    return [table([["text", false], ["score", true]], rows)];
  });
}

const lines = (text) => text.split("\n").filter((line) => line.trim());

function cosine(a, b) {
  const product = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return product(a, b) / Math.sqrt(product(a, a) * product(b, b));
}

function form(verb, fields, answered) {
  const result = el("div", { class: "result", role: "status", "aria-live": "polite" });
  const go = el("button", { type: "submit", class: "primary", text: verb });
  const submit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      result.replaceChildren(...(await answered()).filter(Boolean));
    } catch (error) {
      result.replaceChildren(failure(error));
    } finally {
      go.disabled = false;
    }
  };
  const made = el("form", { on: { submit } }, fields, el("div", { class: "row" }, go));
  return el("section", { class: "card", "aria-label": "Try it" }, el("h3", { text: "Try it" }), made, result);
}
