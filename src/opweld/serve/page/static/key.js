// The key of the server: kept for this tab alone, sent in a header, never part of an address.

import { button, el, labelled } from "./dom.js";

const HELD = "opweld.key";

export const key = () => sessionStorage.getItem(HELD) ?? "";

let asking = null;

/** Asks for a key; `refused` is the one that the server has just refused, or none. All who ask at once wait for one. */
export function askForKey(refused) {
  if (key() && key() !== refused) return Promise.resolve(key());
  asking ??= asked(refused).finally(() => (asking = null));
  return asking;
}

function asked(refused) {
  return new Promise((resolve) => {
    const field = el("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false" });
    const form = el(
      "form",
      { method: "dialog" },
      el("h2", { text: "This server asks for a key" }),
      refused ? el("p", { class: "failure", role: "alert", text: "The server does not know that key." }) : null,
      labelled("Key", field, "It stays in this tab, and is forgotten with it."),
      el("div", { class: "row" }, el("button", { type: "submit", class: "primary", text: "Go on" })),
    );
    const dialog = el("dialog", { "aria-label": "Key of the server" }, form);
    form.addEventListener("submit", () => sessionStorage.setItem(HELD, field.value.trim()));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(key());
    });
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
  });
}

/** What forgets the key; nothing where there is none. */
export function forgetButton() {
  if (!key()) return null;
  return button("Forget key", () => {
    sessionStorage.removeItem(HELD);
    location.reload();
  });
}
