// Which colour a kernel has: the same wherever it is drawn, and another one than that of kernels beside it.

const HUES = Array.from({ length: 12 }, (_, i) => ((i * 5) % 12) * 30);
const FAR = 60;

/** Degrees between two hues. */
const apart = (a, b) => Math.min(Math.abs(a - b), 360 - Math.abs(a - b));

/**
 * Gives each kernel a hue: far from those of kernels that it reads from or gives to, and of those before and after it;
 * of such ones, that which the fewest have.
 */
function giveHues(model) {
  for (const variant of model.variants) {
    const kernels = model.kernels.filter((kernel) => kernel.variant === variant);
    const beside = new Map(kernels.map((kernel) => [kernel.index, []]));
    const join = (a, b) => (beside.get(a).push(b), beside.get(b).push(a));
    kernelEdges(model, kernels).forEach(([a, b]) => join(a, b));
    kernels.slice(1).forEach((kernel, i) => join(kernels[i].index, kernel.index));
    const used = new Map(HUES.map((hue) => [hue, 0]));
    for (const kernel of kernels) {
      const taken = beside.get(kernel.index).map((index) => model.kernels[index].hue);
      const gap = (hue) => Math.min(360, ...taken.filter(known).map((other) => apart(hue, other)));
      const better = (a, b) =>
        Math.min(gap(b), FAR) - Math.min(gap(a), FAR) || used.get(a) - used.get(b) || gap(b) - gap(a);
      kernel.hue = [...HUES].sort(better)[0];
      used.set(kernel.hue, used.get(kernel.hue) + 1);
    }
  }
}

/** What colours tell, of so many kernels. */
function colourWords(kernels) {
  if (new Set(kernels.map((kernel) => kernel.hue)).size === kernels.length)
    return "One colour a kernel, the same before and after";
  return "Kernels beside each other differ in colour, and each has the same before and after";
}
