// Generated C with its comments, words, numbers and types told apart. Light: one expression, no grammar.

const C_KINDS = {
  comment: String.raw`\/\/[^\n]*|\/\*[\s\S]*?\*\/`,
  text: String.raw`"(?:[^"\\\n]|\\.)*"`,
  macro: String.raw`^[ \t]*#[^\n]*`,
  keyword: String.raw`\b(?:for|if|else|while|return|const|static|inline|restrict|void|continue|break)\b`,
  type: String.raw`\b(?:u?int\d+_t|float|double|char|bool|size_t|v[fiu]\d+\w*)\b`,
  call: String.raw`\b(?:opw_\w+|OPW_\w+)\b`,
  number: String.raw`\b(?:0x[\da-fA-F]+|\d[\d.]*(?:e[+-]?\d+)?[fuUlL]*)\b`,
};
const C_TOKENS = new RegExp(
  Object.entries(C_KINDS)
    .map(([kind, pattern]) => `(?<${kind}>${pattern})`)
    .join("|"),
  "gm",
);

function highlighted(source) {
  const code = el("code", {});
  let last = 0;
  for (const match of source.matchAll(C_TOKENS)) {
    if (match.index > last) code.append(source.slice(last, match.index));
    const [kind] = Object.entries(match.groups).find(([, text]) => text !== undefined);
    code.append(el("span", { class: `c-${kind}`, text: match[0] }));
    last = match.index + match[0].length;
  }
  code.append(source.slice(last));
  return el("pre", { class: "code", tabindex: 0 }, code);
}
