// What is chosen, and who wants to know: one selection for the whole page, and the theme.

const state = { selection: null, listeners: [], themed: [] };

/** Chooses {kind: "kernel" | "node", item}, or null; every part of the page is told. */
function choose(selection) {
  state.selection = selection;
  for (const listener of state.listeners) listener(selection);
}

const chooseKernel = (kernel) => choose(kernel ? { kind: "kernel", item: kernel } : null);
const chooseNode = (node) => choose(node ? { kind: "node", item: node } : null);

/** The key of the chosen kernel, or null. */
const chosenKernel = () => (state.selection?.kind === "kernel" ? state.selection.item.key : null);

const preference = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : preference.matches;
}

/** A colour of the style sheet, for what is drawn on a canvas. */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** A kernel's colour: the same wherever it is drawn. */
function kernelColour(kernel, alpha = 1) {
  const [lightness, chroma] = isDark() ? [0.72, 0.115] : [0.66, 0.125];
  return `oklch(${lightness} ${chroma} ${kernel.hue.toFixed(1)} / ${alpha})`;
}

const boundColour = (bound) => colour(bound ? `bound-${bound.kind}` : "muted");

function themeSwitch() {
  const button = el("button", {
    type: "button",
    class: "icon",
    id: "theme",
    on: {
      click: () => {
        document.documentElement.dataset.theme = isDark() ? "light" : "dark";
        tellTheme();
      },
    },
  });
  const tellTheme = () => {
    button.textContent = isDark() ? "☀" : "☾";
    button.title = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", button.title);
    for (const listener of state.themed) listener();
  };
  preference.addEventListener("change", tellTheme);
  button.textContent = isDark() ? "☀" : "☾";
  button.title = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", button.title);
  return button;
}
