// Where nodes lie: Graphviz ranks them in a worker, and what is much taller than the view is folded into columns.

const layouts = { worker: null, waiting: new Map(), tickets: 0 };

async function startWorker() {
  const worker = new Worker(scriptOf(await unpacked("viz"), await unpacked("layout-worker")));
  worker.onmessage = ({ data }) => {
    const [resolve, reject] = layouts.waiting.get(data.ticket);
    layouts.waiting.delete(data.ticket);
    if (data.problem) reject(new Error(data.problem));
    else resolve(data.drawn);
  };
  return worker;
}

async function askWorker(dot) {
  layouts.worker ??= startWorker();
  const worker = await layouts.worker;
  layouts.tickets += 1;
  const ticket = layouts.tickets;
  return new Promise((resolve, reject) => {
    layouts.waiting.set(ticket, [resolve, reject]);
    worker.postMessage({ ticket, dot });
  });
}

/**
 * Ranks boxes [{width, height}] with edges [[from, to]] by index, from top to bottom.
 * Gives {boxes: [{x, y}], edges: [{from, to, points}]}: centres, and the points of cubic splines.
 */
async function layOut(boxes, edges) {
  const inches = (size) => (size / 72).toFixed(3);
  const dot = [
    'digraph { ranksep=0.32; nodesep=0.22; nslimit=2; nslimit1=2; node [shape=box, fixedsize=true, label=""];',
    ...boxes.map((box, i) => `n${i} [width=${inches(box.width)}, height=${inches(box.height)}];`),
    ...edges.map(([from, to]) => `n${from} -> n${to};`),
    "}",
  ];
  const drawn = await askWorker(dot.join("\n"));
  const top = Number(drawn.bb.split(",")[3]);
  const numbers = new Map((drawn.objects ?? []).map((object) => [object._gvid, Number(object.name.slice(1))]));
  const placed = boxes.map((box) => ({ ...box, x: 0, y: 0 }));
  for (const object of drawn.objects ?? []) {
    const [x, y] = object.pos.split(",").map(Number);
    Object.assign(placed[numbers.get(object._gvid)], { x, y: top - y });
  }
  const routes = (drawn.edges ?? []).map((edge) => ({
    from: numbers.get(edge.tail),
    to: numbers.get(edge.head),
    points: spline(edge.pos, top),
  }));
  return { boxes: placed, edges: routes };
}

/** Graphviz's "e,x,y x,y ..." as points, the head's end last. */
function spline(text, top) {
  let end = null;
  const points = [];
  for (const part of text.split(" ")) {
    const [x, y] = part
      .replace(/^[es],/, "")
      .split(",")
      .map(Number);
    if (part.startsWith("e,")) end = [x, top - y];
    else if (!part.startsWith("s,")) points.push([x, top - y]);
  }
  if (end !== null && points.length) points[points.length - 1] = end;
  return points;
}

/**
 * Fills a view of some width by height: parts that nothing joins stand beside and below each other, and what is much
 * taller than the view is broken into columns, as text is, where the fewest edges are cut; those are drawn from box to
 * box.
 */
function fold(ranked, aspect) {
  const boxes = ranked.boxes.map((box) => ({ ...box }));
  const edges = ranked.edges.map((edge) => ({ ...edge }));
  const pieces = connected(boxes, edges).map((piece) => ({ ...piece, extent: measure(piece.boxes) }));
  const tallest = Math.max(...pieces.map((piece) => piece.extent.height));
  const area = pieces.reduce((sum, piece) => sum + piece.extent.width * piece.extent.height, 0);
  const side = Math.sqrt(area / aspect);
  const heights = [
    ...Array.from({ length: 14 }, (_, i) => tallest / (i + 1)),
    side * 0.8,
    side,
    side * 1.3,
    side * 1.8,
    side * 2.5,
  ];
  const tried = heights.map((height) => columnsOf(pieces, Math.max(height, 60)));
  const size = (made) => Math.min(aspect / made.width, 1 / made.height) * (1 - 0.01 * made.cuts);
  const best = tried.reduce((a, b) => (size(b) > size(a) ? b : a));
  let left = 0;
  for (const column of best.columns) {
    let top = 0;
    for (const part of column.parts) {
      for (const box of part.boxes)
        Object.assign(box, { part, shift: [left - part.extent.left, top - part.extent.top] });
      top += part.extent.height + ROW_GAP;
    }
    left += column.width + COLUMN_GAP;
  }
  for (const edge of edges) {
    const [from, to] = [boxes[edge.from], boxes[edge.to]];
    edge.long = from.part !== to.part;
    const [dx, dy] = from.shift;
    if (!edge.long) edge.points = edge.points.map(([x, y]) => [x + dx, y + dy]);
  }
  for (const box of boxes) {
    box.x += box.shift[0];
    box.y += box.shift[1];
  }
  for (const edge of edges) if (edge.long) edge.points = across(boxes[edge.from], boxes[edge.to]);
  return { boxes, edges, ...measure(boxes) };
}

const COLUMN_GAP = 70;
const ROW_GAP = 46;

/** The parts of a graph that no edge joins, the largest first. */
function connected(boxes, edges) {
  const leader = boxes.map((_, i) => i);
  const find = (i) => {
    while (leader[i] !== i) i = leader[i] = leader[leader[i]];
    return i;
  };
  for (const { from, to } of edges) leader[find(from)] = find(to);
  const pieces = new Map();
  boxes.forEach((box, i) => {
    const piece = pieces.get(find(i)) ?? { boxes: [], edges: [] };
    piece.boxes.push(box);
    pieces.set(find(i), piece);
  });
  for (const { from, to } of edges) pieces.get(find(from)).edges.push([boxes[from].y, boxes[to].y]);
  return [...pieces.values()].sort((a, b) => b.boxes.length - a.boxes.length);
}

/** Pieces in columns no taller than `height`, as far as they can be cut. */
function columnsOf(pieces, height) {
  const columns = [];
  let cuts = 0;
  let used = Infinity;
  for (const piece of pieces) {
    const parts = partsOf(piece, height);
    cuts += parts.length - 1;
    for (const part of parts) {
      if (used + part.extent.height > height) {
        columns.push({ parts: [], width: 0 });
        used = 0;
      }
      const column = columns[columns.length - 1];
      column.parts.push(part);
      column.width = Math.max(column.width, part.extent.width);
      used += part.extent.height + ROW_GAP;
    }
  }
  const tall = (column) => column.parts.reduce((sum, part) => sum + part.extent.height + ROW_GAP, -ROW_GAP);
  const width = columns.reduce((sum, column) => sum + column.width + COLUMN_GAP, -COLUMN_GAP);
  return { columns, cuts, width, height: Math.max(...columns.map(tall)) };
}

function partsOf(piece, height) {
  const wanted = Math.ceil(piece.extent.height / height - 0.05);
  if (wanted <= 1) return [piece];
  const cuts = cutsOf(piece, wanted);
  const parts = Array.from({ length: cuts.length + 1 }, () => []);
  for (const box of piece.boxes) parts[cuts.filter((cut) => box.y > cut).length].push(box);
  return parts.filter((part) => part.length).map((part) => ({ boxes: part, extent: measure(part) }));
}

/** Where to cut a piece into so many parts: near equal ones, through few edges. */
function cutsOf(piece, wanted) {
  const step = piece.extent.height / wanted;
  piece.tops ??= [...new Set(piece.boxes.map((box) => Math.round(box.y)))].sort((a, b) => a - b);
  piece.prices ??= new Map();
  const between = piece.tops.slice(1).map((y, i) => (y + piece.tops[i]) / 2);
  const price = (cut) => {
    if (!piece.prices.has(cut))
      piece.prices.set(cut, piece.edges.filter(([from, to]) => from < cut && to > cut).length);
    return piece.prices.get(cut);
  };
  const found = [];
  for (let i = 1; i < wanted; i += 1) {
    const middle = piece.extent.top + i * step;
    const near = between.filter((cut) => Math.abs(cut - middle) < step / 6);
    const cost = (cut) => price(cut) + (3 * Math.abs(cut - middle)) / step;
    if (near.length) found.push(near.reduce((best, cut) => (cost(cut) < cost(best) ? cut : best)));
  }
  return found;
}

function across(from, to) {
  const [x0, y0, x1, y1] = [from.x, from.y + from.height / 2, to.x, to.y - to.height / 2];
  return [
    [x0, y0],
    [x0, y0 + 60],
    [x1, y1 - 60],
    [x1, y1],
  ];
}

function measure(boxes) {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const box of boxes) {
    left = Math.min(left, box.x - box.width / 2);
    right = Math.max(right, box.x + box.width / 2);
    top = Math.min(top, box.y - box.height / 2);
    bottom = Math.max(bottom, box.y + box.height / 2);
  }
  return boxes.length
    ? { left, top, width: right - left, height: bottom - top }
    : { left: 0, top: 0, width: 1, height: 1 };
}
