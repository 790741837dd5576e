// Runs in a worker, behind viz-global.js: graphs in Graphviz's language in, where its nodes and edges lie out.

const instance = Viz.instance();

onmessage = async ({ data: { ticket, dot } }) => {
  try {
    const viz = await instance;
    postMessage({ ticket, drawn: viz.renderJSON(dot) });
  } catch (problem) {
    postMessage({ ticket, problem: String(problem) });
  }
};
