// The graph of one pane: nodes with their values, drawn once and then only touched where something changed.
"use strict";

class GraphView {
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.element = svg("svg", { class: "graph", role: "group", "aria-label": "Graph of the problem", tabindex: 0 });
    this.nodes = [];
    this.listen();
    new ResizeObserver(() => this.resized()).observe(this.element);
  }

  show(problem, depths) {
    Object.assign(this, { problem, depths });
    this.nodes = [];
    this.element.replaceChildren();
    this.build();
  }

  build() {
    const { problem, depths, element } = this;
    this.room = [element.clientWidth || 600, element.clientHeight || 500];
    this.layout = layeredLayout(problem, depths, ...this.room);
    const edges = problem.nodes.flatMap(({ parents }, node) =>
      [...new Set(parents)].map((parent) => edgePath(this.layout, parent, node)),
    );
    this.flow = svg("path", { class: "flow" });
    this.traced = svg("path", { class: "traced" });
    const layer = svg("g");
    this.nodes = problem.nodes.map((node, number) => this.makeNode(node, number));
    layer.append(...this.nodes.map(({ group }) => group));
    element.replaceChildren(svg("path", { class: "edges", d: edges.join("") }), this.flow, this.traced, layer);
    this.fit();
  }

  makeNode(node, number) {
    const { x, y } = this.layout;
    const round = node.parents.length ? 9 : NODE_HEIGHT / 2;
    const box = { x: -NODE_WIDTH / 2, y: -NODE_HEIGHT / 2, width: NODE_WIDTH, height: NODE_HEIGHT, rx: round };
    const halo = {
      x: box.x - 4,
      y: box.y - 4,
      width: box.width + 8,
      height: box.height + 8,
      rx: round + 4,
      class: "halo",
    };
    const value = svg("text", { class: "value", y: 13 });
    const badge = svg("text", { class: "badge", x: NODE_WIDTH / 2 - 7, y: NODE_HEIGHT / 2 - 6 });
    const name = svg("text", { class: "name", y: -6 }, labelOf(this.problem, number));
    const place = `translate(${x[number].toFixed(1)} ${y[number].toFixed(1)})`;
    const group = svg(
      "g",
      { class: "node", transform: place, role: "button", tabindex: -1 }, // else it fades in from black
      svg("rect", box),
      svg("rect", halo),
      name,
      value,
      badge,
    );
    group.addEventListener("click", () => this.moved || this.onSelect(number));
    group.addEventListener("keydown", (event) => event.key === "Enter" && this.onSelect(number));
    return { group, value, badge, seen: "", number };
  }

  // Show the looks of a moment: for each node its value, its classes and how it is read out.
  update(looks, selected) {
    const flowing = [];
    looks.forEach(({ text, kinds, spoken }, number) => {
      const node = this.nodes[number];
      const classes = `node ${kinds.join(" ")}${number === selected ? " selected" : ""}`;
      if (kinds.includes("changed")) flowing.push(number);
      const seen = `${classes}|${text}`;
      if (node.seen === seen) return;
      node.seen = seen;
      node.group.setAttribute("class", classes);
      node.group.setAttribute("aria-label", spoken);
      node.value.textContent = text;
      node.badge.textContent = kinds.includes("broken") ? "!" : "×";
    });
    this.flow.setAttribute("d", this.edgesInto(flowing.length > 200 ? [] : flowing));
    this.traced.setAttribute("d", selected === null ? "" : this.edgesInto([selected]));
  }

  edgesInto(numbers) {
    return numbers
      .flatMap((number) => this.problem.nodes[number].parents.map((parent) => edgePath(this.layout, parent, number)))
      .join("");
  }

  focus(number) {
    this.nodes[number]?.group.focus({ preventScroll: true });
  }

  // ---- pan and zoom: the view box, in the layout's own units

  fit() {
    const { width, height } = this.layout;
    const margin = 14;
    const least = Math.min(...this.room) < 480 ? 300 : 420; // a small graph is not blown up
    const wide = Math.max(width + 2 * margin, least);
    const high = Math.max(height + 2 * margin, least * 0.6);
    this.setView([(width - wide) / 2, (height - high) / 2, wide, high]);
  }

  setView(view) {
    this.view = view;
    this.element.setAttribute("viewBox", view.map((number) => number.toFixed(1)).join(" "));
    const scale = Math.min(this.element.clientWidth / view[2], this.element.clientHeight / view[3]);
    this.element.classList.toggle("far", scale < 0.62);
    this.element.classList.toggle("farther", scale < 0.3);
  }

  zoom(factor, point = null) {
    const [x, y, width, height] = this.view;
    const [px, py] = point ?? [x + width / 2, y + height / 2];
    const wide = Math.min(Math.max(width / factor, 120), 40000);
    const ratio = wide / width;
    this.setView([px - (px - x) * ratio, py - (py - y) * ratio, wide, height * ratio]);
  }

  toLayout(event) {
    const matrix = this.element.getScreenCTM().inverse();
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    return [point.x, point.y];
  }

  listen() {
    const fingers = new Map();
    let spread = null;
    this.element.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY * 0.0015), this.toLayout(event));
      },
      { passive: false },
    );
    this.element.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      this.moved = false;
    });
    this.element.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before || !this.view) return;
      const shift = [event.clientX - before[0], event.clientY - before[1]];
      if (!this.moved && Math.hypot(...shift) < 4) return;
      this.moved = true;
      this.element.classList.add("dragged");
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      if (fingers.size === 2) {
        const [a, b] = [...fingers.values()];
        const apart = Math.hypot(a[0] - b[0], a[1] - b[1]);
        if (spread) this.zoom(apart / spread);
        spread = apart;
        return;
      }
      const scale = 1 / this.element.getScreenCTM().a;
      const [x, y, width, height] = this.view;
      this.setView([x - shift[0] * scale, y - shift[1] * scale, width, height]);
    });
    const up = (event) => {
      fingers.delete(event.pointerId);
      spread = null;
      this.element.classList.remove("dragged");
    };
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) this.element.addEventListener(name, up);
    this.element.addEventListener("dblclick", () => this.fit());
  }

  // The room has changed: lay out anew where its shape has, else only fit.
  resized() {
    if (!this.problem || !this.element.clientWidth) return;
    const [wide, high] = this.room;
    const [now, tall] = [this.element.clientWidth, this.element.clientHeight];
    if (Math.abs(Math.log((now / tall) * (high / wide))) > 0.15) {
      this.build();
      this.onRebuilt?.();
    } else {
      this.room = [now, tall];
      this.fit();
    }
  }
}

function labelOf(problem, node) {
  return problem.labels ? problem.labels[node] : `x${problem.nodes[node].name}`;
}
