// What the page holds packed: the document, and libraries.

/** A text that the page holds deflated, in base64; it is given once. */
async function unpacked(id) {
  const holder = document.getElementById(id);
  const data = Uint8Array.from(atob(holder.textContent), (letter) => letter.charCodeAt(0));
  holder.remove();
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

/** Where texts can be had as one script: of this page, as its policy demands. */
const scriptOf = (...texts) => URL.createObjectURL(new Blob(texts, { type: "text/javascript" }));

/** Runs a library that the page holds packed. */
async function loadLibrary(id) {
  const script = document.createElement("script");
  script.src = scriptOf(await unpacked(id));
  const done = new Promise((resolve, reject) => {
    script.onload = resolve;
    script.onerror = () => reject(new Error(`${id} does not run here`));
  });
  document.head.append(script);
  await done;
  URL.revokeObjectURL(script.src);
}
