// Names in a graph that is too small for text in its boxes: beside the boxes, where there is room.

const LABEL_HEIGHT = 12;

/**
 * Where names of blocks go, at some scale: [{text, x, y, width, faint}], left middles, in pixels from the drawing's
 * origin. `blocks` are [{text, weight, faint, boxes}], the boxes in the drawing's own units; the heaviest are served
 * first, and a name for which there is no room is left out. `widthOf(text, faint)` is in pixels; `extent` is what is
 * seen of the drawing when all of it is.
 */
function placeLabels(blocks, scale, widthOf, extent) {
  const onScreen = (box) => ({
    left: (box.x - box.width / 2) * scale,
    right: (box.x + box.width / 2) * scale,
    top: (box.y - box.height / 2) * scale,
    bottom: (box.y + box.height / 2) * scale,
  });
  const meets = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const solid = blocks.map((block) => ({ ...block, rects: block.boxes.map(onScreen) }));
  const grid = new Map();
  const cells = (rect, visit) => {
    for (let x = Math.floor(rect.left / CELL); x <= Math.floor(rect.right / CELL); x += 1)
      for (let y = Math.floor(rect.top / CELL); y <= Math.floor(rect.bottom / CELL); y += 1) visit(`${x} ${y}`);
  };
  const put = (rect) =>
    cells(rect, (cell) => (grid.has(cell) ? grid.get(cell).push(rect) : grid.set(cell, [rect])));
  for (const block of solid) for (const rect of block.rects) put(Object.assign(rect, { block }));
  const free = (rect, { mayCover, margin }) => {
    const [wide, high] = margin;
    const room = { left: rect.left - wide, right: rect.right + wide, top: rect.top - high, bottom: rect.bottom + high };
    let clear = true;
    cells(room, (cell) => {
      clear &&= !(grid.get(cell) ?? []).some((other) => (!other.block || !mayCover(other.block)) && meets(room, other));
    });
    return clear;
  };
  const [leftmost, rightmost] = [extent.left * scale - EDGE, (extent.left + extent.width) * scale + EDGE];
  const found = [];
  for (const block of [...solid].sort((a, b) => b.weight - a.weight)) {
    const width = widthOf(block.text, block.faint);
    const spots = spotsOf(block.rects, width).filter((spot) => spot.left >= leftmost && spot.right <= rightmost);
    // Beside all boxes; else, of a kernel, over what no kernel computes and over its own; else over any, here and there.
    const ways = [
      { mayCover: () => false, margin: [0, 0] },
      { mayCover: (other) => other === block || other.faint, margin: [0, 0] },
      { mayCover: () => true, margin: [30, 16] },
    ].slice(0, block.faint ? 1 : 3);
    for (const way of ways) {
      const rect = spots.find((spot) => free(spot, way));
      if (!rect) continue;
      put(rect);
      found.push({ text: block.text, faint: block.faint, x: rect.left, y: (rect.top + rect.bottom) / 2, width });
      break;
    }
  }
  return found;
}

const CELL = 64;
const GAP = 3;
const EDGE = 14;

/** Where the name of some boxes may stand: right and left of them, from the middle one on, then above and below. */
function spotsOf(rects, width) {
  const middle = Math.floor((rects.length - 1) / 2);
  const order = [...rects.keys()].sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle)).slice(0, 8);
  const at = (left, y) => ({ left, right: left + width, top: y - LABEL_HEIGHT / 2, bottom: y + LABEL_HEIGHT / 2 });
  return [
    ...order.map((i) => at(rects[i].right + GAP, (rects[i].top + rects[i].bottom) / 2)),
    ...order.map((i) => at(rects[i].left - GAP - width, (rects[i].top + rects[i].bottom) / 2)),
    ...order.flatMap((i) => {
      const left = (rects[i].left + rects[i].right - width) / 2;
      return [at(left, rects[i].top - LABEL_HEIGHT / 2 - 1), at(left, rects[i].bottom + LABEL_HEIGHT / 2 + 1)];
    }),
  ];
}
