// Asking the server, with the key where it has keys.

import { askForKey, key } from "./key.js";

/** What the server refuses, in its own words. */
export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The answer of the server; asks for a key, and once more, where it wants one. Throws ServerError. */
export async function ask(path, options = {}) {
  for (let given = key(); ; given = await askForKey(given)) {
    const headers = new Headers(options.headers);
    if (given) headers.set("Authorization", `Bearer ${given}`);
    const answer = await reached(path, { ...options, headers, cache: "no-store", redirect: "error" });
    if (answer.ok) return answer;
    if (answer.status !== 401) throw new ServerError(answer.status, await reason(answer));
  }
}

export const askJSON = async (path, options) => (await ask(path, options)).json();

export const post = (path, body, options = {}) =>
  ask(path, {
    ...options,
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

async function reached(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The server does not answer. Does it run?");
  }
}

/** Why it refuses: each protocol has its own form. */
async function reason(answer) {
  const text = await answer.text();
  try {
    const { error } = JSON.parse(text);
    return typeof error === "string" ? error : error.message;
  } catch {
    return text || `${answer.status} ${answer.statusText}`;
  }
}
