// The document, looked up: nodes and kernels by what refers to them, and which kernel gives what to which.

/** What is computed in several variants has a kernel in each; a kernel is named by its variant and its name. */
const keyOf = (variant, name) => `${variant}/${name}`;

const COMPUTED = new Set(["fused", "alone"]);
const WITHOUT_WORK = new Set(["known", "unused", "unreached"]);

const OUTCOMES = {
  fused: ["fused", "computed in kernels with other nodes"],
  alone: ["alone", "computed in kernels of their own"],
  "index arithmetic": ["index arithmetic", "only move data: index arithmetic in other kernels"],
  rewritten: ["rewritten", "replaced in the graph before anything was fused"],
  known: ["known", "known without running the model, from constants and sizes"],
  "control flow": ["control flow", "decide what runs next"],
  unused: ["unused", "needed by no output"],
  unreached: ["unreached", "in branches that never run, or replaced when the model was read"],
  simplified: ["simplified", "nothing left to compute"],
};

/** Where a kernel's limit is, in words and in the colour that stands for it. */
const BOUNDS = ["compute", "memory", "latency"];

function makeModel(data) {
  const nodes = data.account.nodes.map((node, index) => ({
    ...node,
    index,
    kernels: node.kernels.map((k) => keyOf(k.variant, k.name)),
  }));
  const called = new Map();
  for (const node of nodes) for (const name of node.called) if (!called.has(name)) called.set(name, node);

  const analysed = new Map((data.analysis?.kernels ?? []).map((k) => [keyOf(k.variant, k.name), k]));
  const measured = new Map((data.profile?.kernels ?? []).map((k) => [keyOf(k.variant, k.name), k]));
  const predicted = new Map((data.times?.predicted.kernels ?? []).map(([v, name, took]) => [keyOf(v, name), took]));
  const entries = data.account.kernels;
  const kernels = entries.map((entry, index) => {
    const key = keyOf(entry.variant, entry.name);
    return mergeKernel(entry, index, key, analysed.get(key), measured.get(key), data.sources, called, predicted.get(key));
  });
  const byKey = new Map(kernels.map((kernel) => [kernel.key, kernel]));
  const variants = [...new Set(kernels.map((kernel) => kernel.variant))];
  const model = { data, nodes, called, kernels, byKey, variants };
  model.edges = nodeEdges(nodes);
  giveHues(model);
  model.decisionsOf = decisionIndex(data.account.decisions);
  model.analysed = new Map((data.analysis?.nodes ?? []).map((node) => [node.name, node]));
  model.checked = new Map((data.numerics?.values ?? []).map((value) => [value.node, value]));
  return model;
}

/** One kernel with all that is said of it: by the compiler, by the analysis, by a run. */
function mergeKernel(entry, index, key, analysed, profiled, sources, called, foreseen) {
  const members = [...new Set(entry.nodes.map((name) => called.get(name)).filter(Boolean))];
  const flops = amount(profiled?.flops ?? analysed?.flops ?? entry.flops);
  const moved =
    profiled?.bytes ?? (analysed ? (amount(analysed.read) ?? 0) + (amount(analysed.written) ?? 0) : entry.bytes);
  const measured = profiled?.seconds?.median ?? null;
  const predicted = foreseen ?? entry.seconds;
  const time = measured ?? predicted;
  return {
    key,
    index,
    members,
    analysed,
    profiled,
    flops,
    moved,
    measured,
    predicted,
    time,
    name: entry.name,
    variant: entry.variant,
    region: entry.region,
    phase: entry.phase,
    nodes: entry.nodes,
    schedule: entry.schedule,
    source: sources?.[key] ?? sources?.[entry.name] ?? "",
    operators: operatorsOf(members, entry.nodes),
    intensity: moved > 0 ? flops / moved : 0,
    wall: profiled?.wall ?? measured ?? predicted,
    share: profiled?.share ?? null,
    bound: profiled?.bound ?? analysed?.bound ?? null,
    predictedBound: profiled?.predicted_bound ?? analysed?.bound ?? null,
    hue: null,
  };
}

/** "MatMul + Add + 3 Relu": what a kernel computes, in short. */
function operatorsOf(members, names) {
  if (!members.length) return names.length ? "(rewritten)" : "(no node of the file)";
  const counted = new Map();
  for (const node of members) counted.set(node.operator, (counted.get(node.operator) ?? 0) + 1);
  return [...counted].map(([operator, times]) => (times > 1 ? `${times} ${operator}` : operator)).join(" + ");
}

/**
 * [from, to] by index: which node reads what another gives. Names of a body hide those outside, and bodies of one node
 * may use the same; the account does not say what a body gives, which is what nothing in it reads.
 */
function nodeEdges(nodes) {
  const makers = new Map();
  const bodyOf = new Map(nodes.map((node) => [node.name, node.body]));
  const found = new Map();
  const read = new Set();
  const join = (from, to) => from !== to && found.set(`${from} ${to}`, [from, to]);
  for (const node of nodes) {
    for (const name of node.inputs.filter(Boolean)) {
      let body = node.body;
      let maker = makers.get(`${body}\n${name}`);
      for (let depth = 0; maker === undefined && body && depth < 64; depth += 1) {
        body = bodyOf.get(body) ?? "";
        maker = makers.get(`${body}\n${name}`);
      }
      if (maker === undefined) continue;
      join(maker, node.index);
      if (body === node.body) read.add(maker);
    }
    for (const name of node.outputs) if (name) makers.set(`${node.body}\n${name}`, node.index);
  }
  const owners = new Map(nodes.filter((node) => node.name).map((node) => [node.name, node.index]));
  for (const node of nodes) {
    const owner = node.body ? owners.get(node.body) : undefined;
    if (owner !== undefined && !read.has(node.index) && node.operator !== "Constant") join(node.index, owner);
  }
  return [...found.values()];
}

/** Of the kernels of one node, those that finish it, in each variant. */
const latestOf = (kernels) =>
  kernels.filter((one) => !kernels.some((other) => other.variant === one.variant && other.phase > one.phase));

/** Which kernels give what others read, through nodes that no kernel computes; and those that share a node, in turn. */
function kernelEdges(model, kernels) {
  const chosen = new Set(kernels.map((kernel) => kernel.key));
  const owners = model.nodes.map(() => []);
  for (const kernel of kernels) for (const node of kernel.members) owners[node.index].push(kernel);
  const reads = model.nodes.map(() => []);
  for (const [from, to] of model.edges) reads[to].push(from);
  const givers = new Map();
  const giversOf = (start) => {
    const todo = [start];
    while (todo.length) {
      const index = todo[todo.length - 1];
      if (givers.has(index)) {
        todo.pop();
        continue;
      }
      const node = model.nodes[index];
      if (owners[index].length || node.outcome === "known") {
        givers.set(index, new Set(latestOf(owners[index])));
        todo.pop();
        continue;
      }
      const waiting = reads[index].filter((from) => !givers.has(from) && !todo.includes(from));
      if (waiting.length) {
        todo.push(...waiting);
        continue;
      }
      givers.set(index, new Set(reads[index].flatMap((from) => [...(givers.get(from) ?? [])])));
      todo.pop();
    }
    return givers.get(start);
  };
  const found = new Map();
  const join = (from, to) => {
    if (from !== to && chosen.has(from.key) && from.variant === to.variant && from.phase < to.phase)
      found.set(`${from.index} ${to.index}`, [from.index, to.index]);
  };
  const latest = (some) => some.filter((one) => one.phase === Math.max(...some.map((other) => other.phase)));
  const before = (some, kernel) =>
    [...some].filter((other) => other.variant === kernel.variant && other.phase < kernel.phase);
  for (const kernel of kernels) {
    for (const node of kernel.members) {
      const earlier = before(owners[node.index], kernel);
      // Of kernels that share a node, the first reads what the node reads, each next one what the one before it gives,
      // and what the first was too early to read.
      for (const other of latest(earlier)) join(other, kernel);
      const since = Math.min(...earlier.map((other) => other.phase));
      for (const index of reads[node.index]) {
        const direct = owners[index].length > 0;
        const from = before(giversOf(index), kernel).filter((giver) => !earlier.length || giver.phase >= since);
        for (const giver of direct ? latest(from) : from) join(giver, kernel);
      }
    }
  }
  return [...found.values()];
}

/** Decisions about regions and about nodes, by the names that decisions use. */
function decisionIndex(decisions) {
  const regions = new Map();
  const sites = new Map();
  const put = (where, key, decision) => (where.has(key) ? where.get(key).push(decision) : where.set(key, [decision]));
  for (const decision of decisions) {
    if (decision.region) put(regions, `${decision.variant}\n${decision.region}`, decision);
    for (const name of new Set(decision.site)) put(sites, name, decision);
  }
  return {
    kernel: (kernel) => {
      const inside = new Set(kernel.nodes);
      const about = [...inside].flatMap((name) => sites.get(name) ?? []);
      const own = regions.get(`${kernel.variant}\n${kernel.region}`) ?? [];
      const fits = about.filter((d) => (!d.variant || d.variant === kernel.variant) && !d.region);
      return [...new Set([...own, ...fits])];
    },
    node: (node) => [...new Set(node.called.flatMap((name) => sites.get(name) ?? []))],
  };
}

/** Whether a decision took more than its baseline. */
const fired = (decision) => decision.taken !== decision.alternatives[0]?.name;

/** What a decision saves against its baseline: seconds, or null where nobody counted. */
function saved(decision) {
  const base = decision.alternatives[0];
  const taken = decision.alternatives.find((alternative) => alternative.name === decision.taken);
  return known(base?.seconds) && known(taken?.seconds) ? base.seconds - taken.seconds : null;
}
