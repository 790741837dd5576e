// Talking with a language model: answers come piece by piece.

import { button, el, failure, labelled, number } from "./dom.js";
import { count, digits } from "./format.js";
import { post } from "./server.js";

export function chat(model) {
  const messages = [];
  const talk = el("div", { class: "talk", role: "log", "aria-label": "Conversation", "aria-live": "polite" });
  const system = el("textarea", { rows: 2 });
  const temperature = number(0.7, 0, { step: 0.1, max: 2 });
  const most = number(256, 1);
  const text = el("textarea", { rows: 2, on: { keydown: (event) => sendsWith(event, form) } });
  const send = el("button", { type: "submit", class: "primary", text: "Send" });
  const stop = button("Stop", () => running?.abort(), { hidden: true });
  const again = button("New conversation", () => {
    messages.length = 0;
    talk.replaceChildren();
    text.focus();
  });
  const note = el("p", { class: "hint", role: "status" });
  const busy = (is) => {
    send.disabled = again.disabled = is;
    stop.hidden = !is;
  };
  let running = null;

  const submit = async (event) => {
    event.preventDefault();
    const content = text.value.trim();
    if (running || !content) return;
    text.value = "";
    messages.push({ role: "user", content });
    talk.append(bubble("user", el("div", { class: "said", text: content })));
    const said = el("div", { class: "said" });
    const shown = bubble("assistant", said);
    talk.append(shown);
    running = new AbortController();
    busy(true);
    try {
      const asked = [...(system.value.trim() ? [{ role: "system", content: system.value.trim() }] : []), ...messages];
      const body = {
        model: model.name,
        messages: asked,
        stream: true,
        stream_options: { include_usage: true },
        temperature: Number(temperature.value),
        max_tokens: Number(most.value),
      };
      note.textContent = await streamed(body, running.signal, (more) => {
        said.append(more);
        talk.scrollTop = talk.scrollHeight;
      });
    } catch (error) {
      if (error.name !== "AbortError") shown.append(failure(error));
    } finally {
      // What came stays in the conversation; what was not answered at all does not.
      if (said.textContent) messages.push({ role: "assistant", content: said.textContent });
      else messages.pop();
      running = null;
      busy(false);
    }
  };

  const options = el(
    "details",
    {},
    el("summary", { text: "Options" }),
    labelled("What the model is told first", system),
    el("div", { class: "grid" }, labelled("Temperature", temperature), labelled("Tokens at most", most)),
  );
  const form = el(
    "form",
    { on: { submit } },
    labelled("Message", text, "Enter sends it, Shift and Enter begins a line."),
    el("div", { class: "row" }, send, stop, again),
    options,
  );
  return el("section", { class: "card", "aria-label": "Chat" }, el("h3", { text: "Chat" }), talk, note, form);
}

function sendsWith(event, form) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
}

function bubble(role, said) {
  const who = role === "user" ? "You" : "Model";
  return el("div", { class: `bubble ${role}` }, el("span", { class: "who", text: who }), said);
}

/** Words on how fast an answer came, which is `told` piece by piece. Throws ServerError. */
async function streamed(body, signal, told) {
  const answer = await post("/v1/chat/completions", body, { signal });
  const begun = performance.now();
  let usage = null;
  let first = null;
  for await (const event of events(answer.body)) {
    if (event.error) throw new Error(event.error.message);
    usage = event.usage ?? usage;
    const piece = event.choices?.[0]?.delta?.content;
    if (!piece) continue;
    first ??= performance.now();
    told(piece);
  }
  const took = (performance.now() - (first ?? begun)) / 1000;
  const tokens = usage?.completion_tokens;
  const speed = tokens > 1 && took > 0 ? `, ${digits((tokens - 1) / took)} a second` : "";
  return tokens ? `${count(usage.prompt_tokens)} tokens read, ${count(tokens)} written${speed}` : "";
}

/** Server-sent events whose data is JSON. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (left + value).split("\n\n");
    left = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}
