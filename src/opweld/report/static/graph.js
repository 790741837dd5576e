// A graph on a canvas: pan by dragging, zoom by the wheel or + and -, text where there is room for it.

const FONT = '"Inter", system-ui, "Segoe UI", sans-serif';

/**
 * A view of boxes and edges. `options`: label; colourOf(item), faint(item),
 * shown(item) -> [title, second line, title where there is little room],
 * block(item) -> {key, text, weight}: what is said of items together where no box has room for text, see labels.js;
 * state(): where it changes, blocks are others;
 * joined(a, b): whether both are parts of one kernel; pick(item): what a click does.
 */
class GraphView {
  constructor(options) {
    Object.assign(this, {
      options,
      scale: 1,
      x: 0,
      y: 0,
      items: [],
      ranked: null,
      drawing: null,
      hovered: -1,
      marked: new Set(),
    });
    this.canvas = el("canvas", {
      tabindex: 0,
      role: "img",
      "aria-label": `${options.label}: drag to pan, scroll to zoom`,
    });
    this.message = el("div", { class: "graph-message", text: "laying out…" });
    this.tip = el("div", { class: "graph-tip", hidden: true });
    this.root = el("div", { class: "graph-view" }, this.canvas, this.message, this.tip);
    new ResizeObserver(() => this.resized()).observe(this.root);
    state.themed.push(() => this.draw());
    this.listen();
  }

  buttons() {
    const made = [
      ["+", "Zoom in", () => this.zoom(1.5)],
      ["−", "Zoom out", () => this.zoom(1 / 1.5)],
      ["⤢", "Show all", () => this.fit()],
    ];
    return el(
      "div",
      { class: "graph-buttons" },
      made.map(([text, title, act]) =>
        el("button", { type: "button", text, title, "aria-label": title, on: { click: act } }),
      ),
    );
  }

  /** Shows other items: [{width, height}] with edges [[from, to]] by index. */
  async show(items, boxes, edges) {
    this.message.hidden = false;
    this.message.textContent = `laying out ${plural(items.length, "box", "boxes")}…`;
    this.ranked = this.drawing = null;
    this.draw();
    this.request = (this.request ?? 0) + 1;
    const mine = this.request;
    try {
      const ranked = items.length ? await layOut(boxes, edges) : null;
      if (mine !== this.request) return;
      this.items = items;
      this.ranked = ranked;
      this.message.hidden = ranked !== null;
      this.message.textContent = ranked === null ? "nothing to draw" : "";
      if (ranked) this.fold();
      this.fit();
      this.root.dataset.boxes = String(items.length);
    } catch (problem) {
      if (mine !== this.request) return;
      this.message.textContent = `The graph could not be laid out: ${problem.message}`;
    }
  }

  /** Arranges what was ranked for the shape that the view has now. */
  fold() {
    this.aspect = Math.max(0.4, this.root.clientWidth / Math.max(1, this.root.clientHeight));
    this.drawing = fold(this.ranked, this.aspect);
    this.routes = this.drawing.edges.map((edge) => this.path(edge.points));
  }

  path(points) {
    const path = new Path2D();
    if (points.length) path.moveTo(...points[0]);
    for (let i = 1; i + 2 < points.length; i += 3) path.bezierCurveTo(...points[i], ...points[i + 1], ...points[i + 2]);
    return path;
  }

  resized() {
    const ratio = devicePixelRatio || 1;
    const [width, height] = [this.root.clientWidth, this.root.clientHeight];
    if (!width || (this.width === width && this.height === height)) return;
    const first = !this.width;
    const shape = width / height / (this.aspect ?? 1);
    Object.assign(this, { width, height, ratio });
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    if (!this.moved && this.ranked && (shape > 1.4 || shape < 0.7)) this.fold();
    if (first || !this.moved) this.fit();
    else this.draw();
  }

  fit() {
    if (!this.drawing || !this.width) return this.draw();
    const { left, top, width, height } = this.drawing;
    this.scale = Math.min((this.width - 32) / width, (this.height - 32) / height, 1.6);
    this.x = (this.width - width * this.scale) / 2 - left * this.scale;
    this.y = (this.height - height * this.scale) / 2 - top * this.scale;
    this.moved = false;
    return this.draw();
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const scale = Math.min(4, Math.max(0.01, this.scale * factor));
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.moved = true;
    this.draw();
  }

  /** Marks items, and brings them into view where they are out of it. */
  mark(indices, { follow = true } = {}) {
    this.marked = new Set(indices);
    if (follow && this.drawing && this.marked.size) {
      const found = measure([...this.marked].map((i) => this.drawing.boxes[i]));
      const [cx, cy] = [found.left + found.width / 2, found.top + found.height / 2];
      const [sx, sy] = [cx * this.scale + this.x, cy * this.scale + this.y];
      const readable = this.scale > 0.35;
      const inside = sx > 40 && sx < this.width - 40 && sy > 40 && sy < this.height - 40;
      if (!inside || !readable) {
        const fitting = Math.min((this.width - 80) / found.width, (this.height - 80) / found.height, 1);
        this.scale = Math.max(Math.min(this.scale, 1), Math.min(fitting, 0.8));
        this.x = this.width / 2 - cx * this.scale;
        this.y = this.height / 2 - cy * this.scale;
        this.moved = true;
      }
    }
    this.draw();
  }

  /** Where an item is on the canvas, in CSS pixels. */
  position(index) {
    const box = this.drawing.boxes[index];
    return [box.x * this.scale + this.x, box.y * this.scale + this.y];
  }

  at(x, y) {
    if (!this.drawing) return -1;
    const [px, py] = [(x - this.x) / this.scale, (y - this.y) / this.scale];
    const slack = Math.max(0, 3 / this.scale - 3);
    return this.drawing.boxes.findIndex(
      (box) => Math.abs(px - box.x) <= box.width / 2 + slack && Math.abs(py - box.y) <= box.height / 2 + slack,
    );
  }

  listen() {
    const canvas = this.canvas;
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.clientX, y: event.clientY, far: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (held) {
        const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
        if (!held.far && Math.hypot(dx, dy) < 4) return;
        Object.assign(held, { x: event.clientX, y: event.clientY, far: true });
        this.x += dx;
        this.y += dy;
        this.moved = true;
        this.hover(-1);
        this.draw();
      } else this.hover(this.at(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
    });
    canvas.addEventListener("pointerup", (event) => {
      const clicked = held && !held.far ? this.at(event.offsetX, event.offsetY) : -1;
      if (held && !held.far) this.options.pick(clicked < 0 ? null : this.items[clicked]);
      held = null;
    });
    canvas.addEventListener("pointerleave", () => this.hover(-1));
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    canvas.addEventListener("dblclick", (event) => this.zoom(2, event.offsetX, event.offsetY));
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
      if (event.key in moves) {
        this.x += moves[event.key][0];
        this.y += moves[event.key][1];
        this.moved = true;
        this.draw();
      } else if (event.key === "+" || event.key === "=") this.zoom(1.3);
      else if (event.key === "-") this.zoom(1 / 1.3);
      else if (event.key === "0") this.fit();
      else return;
      event.preventDefault();
    });
  }

  hover(index, x = 0, y = 0) {
    this.canvas.style.cursor = index < 0 ? "grab" : "pointer";
    this.tip.hidden = index < 0;
    if (index >= 0) {
      const [title, second] = this.options.shown(this.items[index]);
      this.tip.replaceChildren(el("strong", { text: title }), el("span", { text: second }));
      this.tip.style.left = `${Math.min(x + 14, Math.max(0, this.width - this.tip.offsetWidth - 8))}px`;
      this.tip.style.top = `${Math.min(y + 14, Math.max(0, this.height - this.tip.offsetHeight - 8))}px`;
    }
    if (index !== this.hovered) {
      this.hovered = index;
      this.draw();
    }
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.paint();
    });
  }

  paint() {
    if (!this.width) return;
    const context = this.canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    if (!this.drawing) return;
    context.setTransform(
      this.ratio * this.scale,
      0,
      0,
      this.ratio * this.scale,
      this.ratio * this.x,
      this.ratio * this.y,
    );
    const visible = (box) => {
      const [x, y] = [box.x * this.scale + this.x, box.y * this.scale + this.y];
      const [w, h] = [box.width * this.scale, box.height * this.scale];
      return x + w > 0 && x - w < this.width && y + h > 0 && y - h < this.height;
    };
    this.paintRegions(context);
    this.paintEdges(context);
    const dimmed = this.marked.size > 0;
    this.drawing.boxes.forEach((box, i) => {
      if (visible(box)) this.paintBox(context, box, i, dimmed && !this.marked.has(i));
    });
    if (!this.drawing.boxes.some((box) => this.hasText(box))) this.paintLabels(context);
  }

  /** Whether text in a box can be read. */
  hasText(box) {
    return box.height * this.scale > 8;
  }

  paintLabels(context) {
    const fontOf = (faint) => `${faint ? 400 : 600} ${faint ? 9.5 : 10.5}px ${FONT}`;
    const widthOf = (text, faint) => {
      context.font = fontOf(faint);
      return Math.ceil(context.measureText(text).width);
    };
    context.setTransform(this.ratio, 0, 0, this.ratio, this.ratio * this.x, this.ratio * this.y);
    const { labels } = this;
    if (labels?.drawing !== this.drawing || labels.scale !== this.scale || labels.variant !== this.options.state?.())
      this.labels = {
        drawing: this.drawing,
        scale: this.scale,
        variant: this.options.state?.(),
        placed: placeLabels(this.blocks(), this.scale, widthOf, this.drawing),
      };
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 3;
    context.strokeStyle = colour("sunken");
    for (const { text, faint, x, y } of this.labels.placed) {
      context.font = fontOf(faint);
      context.strokeText(text, x, y);
      context.fillStyle = colour(faint ? "muted-ink" : "ink");
      context.fillText(text, x, y);
    }
  }

  blocks() {
    const found = new Map();
    this.items.forEach((item, i) => {
      const { key, text, weight } = this.options.block(item);
      const faint = this.options.faint?.(item) ?? false;
      if (!found.has(key)) found.set(key, { text: shorten(text, 28), weight, faint, boxes: [] });
      found.get(key).boxes.push(this.drawing.boxes[i]);
    });
    return [...found.values()];
  }

  /** What one kernel computes: its boxes and the edges between them, as one broad stroke behind them. */
  paintRegions(context) {
    if (!this.options.joined) return;
    context.lineCap = "round";
    context.lineJoin = "round";
    this.drawing.edges.forEach((edge, i) => {
      const [from, to] = [this.items[edge.from], this.items[edge.to]];
      if (edge.long || !this.options.joined(from, to)) return;
      context.strokeStyle = this.options.colourOf(from, 0.28);
      context.lineWidth = 22;
      context.stroke(this.routes[i]);
    });
  }

  paintEdges(context) {
    const near = this.hovered >= 0 ? new Set([this.hovered]) : this.marked;
    const passes = [
      [false, colour("edge"), 1.1],
      [true, colour("accent"), 2],
    ];
    for (const [strong, ink, width] of passes) {
      context.strokeStyle = ink;
      context.lineWidth = Math.min(width / Math.min(1, this.scale), 6);
      this.drawing.edges.forEach((edge, i) => {
        if ((near.has(edge.from) || near.has(edge.to)) !== strong) return;
        context.globalAlpha = strong ? 1 : edge.long ? 0.18 : 0.75;
        context.stroke(this.routes[i]);
        if (this.scale > 0.3 && edge.points.length > 1) this.paintHead(context, edge.points, ink);
      });
    }
    context.globalAlpha = 1;
  }

  paintHead(context, points, ink) {
    const [x, y] = points[points.length - 1];
    const [px, py] = points[points.length - 2];
    const angle = Math.atan2(y - py, x - px);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x - 7 * Math.cos(angle - 0.4), y - 7 * Math.sin(angle - 0.4));
    context.lineTo(x - 7 * Math.cos(angle + 0.4), y - 7 * Math.sin(angle + 0.4));
    context.fillStyle = ink;
    context.fill();
  }

  paintBox(context, box, index, dim) {
    const item = this.items[index];
    const faint = this.options.faint?.(item) ?? false;
    const [left, top] = [box.x - box.width / 2, box.y - box.height / 2];
    context.globalAlpha = dim ? 0.38 : 1;
    context.beginPath();
    context.roundRect(left, top, box.width, box.height, 6);
    context.fillStyle = !faint ? this.options.colourOf(item, 1) : colour(this.scale > 0.25 ? "surface" : "ghost");
    context.fill();
    const marked = this.marked.has(index) || this.hovered === index;
    if ((faint && this.scale > 0.25) || marked) {
      context.setLineDash(faint && !marked ? [4, 3] : []);
      context.lineWidth = marked ? 2.5 / Math.min(1, this.scale) : 1;
      context.strokeStyle = marked ? colour("ink") : colour("muted");
      context.stroke();
      context.setLineDash([]);
    }
    if (this.hasText(box)) this.paintText(context, box, item, faint);
    context.globalAlpha = 1;
  }

  paintText(context, box, item, faint) {
    const [title, second, short] = this.options.shown(item);
    const roomy = 12 * this.scale >= 7;
    const two = roomy && second;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = faint ? colour("muted") : colour("on-kernel");
    // Where the scale is small, the first line takes the room of both.
    context.font = `600 ${roomy ? 12 : Math.min(8 / this.scale, box.height - 10)}px ${FONT}`;
    context.fillText(fitted(context, roomy ? title : short, box.width - 12, roomy), box.x, box.y - (two ? 8 : 0));
    if (!two) return;
    context.font = `10.5px ${FONT}`;
    context.globalAlpha *= 0.8;
    context.fillText(fitted(context, second, box.width - 12), box.x, box.y + 9);
  }
}

/** A text cut to a width: in the middle, or at its end. */
function fitted(context, text, width, middle = true) {
  const cutTo = (most) => (middle || text.length <= most ? shorten(text, most) : `${text.slice(0, most - 1)}…`);
  let most = Math.min(text.length, 80);
  let cut = cutTo(most);
  while (most > 3 && context.measureText(cut).width > width) {
    most = Math.min(most - 1, Math.ceil((most * width) / context.measureText(cut).width));
    cut = cutTo(most);
  }
  return cut;
}
