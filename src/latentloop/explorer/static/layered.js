// Where nodes stand: generations from top to bottom, ordered so that edges cross little, folded to fill the room there is.
"use strict";

const NODE_WIDTH = 50;
const NODE_HEIGHT = 38;
const GAP_X = 62;
const GAP_Y = 68;
const COLUMN_GAP = 40;

function layeredLayout(problem, depths, wide, high) {
  const layers = [];
  problem.nodes.forEach((_, node) => (layers[depths[node] - 1] ??= []).push(node));
  const order = sweep(problem, layers);
  let best = null;
  for (const most of [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64]) {
    const rows = order.flatMap((layer) => split(layer, most));
    const widest = rows.reduce((width, row) => Math.max(width, row.length), 1);
    for (let columns = 1; columns <= 16 && columns <= rows.length; columns++) {
      const tall = Math.ceil(rows.length / columns);
      const width = columns * (widest * GAP_X + COLUMN_GAP) - COLUMN_GAP;
      const height = tall * GAP_Y;
      // Folding costs legibility, and nothing is gained by nodes larger than life: only what is too small is folded.
      const cost = (columns > 1 ? 0.6 : 1) * (rows.length > layers.length ? 0.92 : 1);
      const scale = Math.min(wide / width, high / height, 0.6) * cost;
      if (best === null || scale > best.scale * 1.02) best = { scale, rows, widest, tall, width, height };
    }
    if (most > layers.reduce((size, layer) => Math.max(size, layer.length), 0)) break;
  }
  return place(problem, best, stretched(best, wide, high));
}

// Room that is left on one side spreads the nodes out.
function stretched({ width, height }, wide, high) {
  const unit = Math.max(width / wide, height / high); // of the layout, for a pixel
  return { across: Math.min((wide * unit) / width, 1.4), down: Math.min((high * unit) / height, 1.6) };
}

// A layer of too many nodes takes several rows, of about the same length.
function split(layer, most) {
  const count = Math.ceil(layer.length / most);
  return Array.from({ length: count }, (_, k) =>
    layer.slice(Math.ceil((k * layer.length) / count), Math.ceil(((k + 1) * layer.length) / count)),
  );
}

// Order each layer by the mean place of parents, then of children, a few times.
function sweep(problem, layers) {
  const children = problem.nodes.map(() => []);
  problem.nodes.forEach(({ parents }, node) => parents.forEach((parent) => children[parent].push(node)));
  const at = new Float64Array(problem.nodes.length);
  const number = (layer) => layer.forEach((node, k) => (at[node] = (k + 0.5) / layer.length));
  layers.forEach(number);
  const sort = (layer, relatives) => {
    const mean = new Map(
      layer.map((node) => {
        const near = relatives(node);
        return [node, near.length ? near.reduce((sum, other) => sum + at[other], 0) / near.length : at[node]];
      }),
    );
    layer.sort((a, b) => mean.get(a) - mean.get(b) || a - b);
    number(layer);
  };
  for (let round = 0; round < 6; round++) {
    layers.forEach((layer) => sort(layer, (node) => problem.nodes[node].parents));
    [...layers].reverse().forEach((layer) => sort(layer, (node) => children[node]));
  }
  layers.slice(1).forEach((layer) => sort(layer, (node) => problem.nodes[node].parents));
  return layers;
}

function place(problem, { rows, widest, tall, width, height }, { across, down }) {
  const x = new Float64Array(problem.nodes.length);
  const y = new Float64Array(problem.nodes.length);
  const column = widest * GAP_X;
  rows.forEach((row, number) => {
    const left = Math.floor(number / tall) * (column + COLUMN_GAP);
    const apart = Math.min(column / row.length, 1.7 * GAP_X);
    row.forEach((node, k) => {
      x[node] = across * (left + column / 2 + (k - (row.length - 1) / 2) * apart);
      y[node] = down * ((number % tall) * GAP_Y + GAP_Y / 2);
    });
  });
  return { x, y, width: across * width, height: down * height };
}

// The curve from a parent to a child: downwards, or sideways where the child stands in another column.
function edgePath({ x, y }, parent, child) {
  const down = y[child] - y[parent];
  if (down > NODE_HEIGHT) {
    const from = y[parent] + NODE_HEIGHT / 2;
    const to = y[child] - NODE_HEIGHT / 2;
    const bend = Math.min((to - from) * 0.5, 60);
    return `M${x[parent]} ${from}C${x[parent]} ${from + bend} ${x[child]} ${to - bend} ${x[child]} ${to}`;
  }
  const side = x[child] > x[parent] ? 1 : -1;
  const from = x[parent] + (side * NODE_WIDTH) / 2;
  const to = x[child] - (side * NODE_WIDTH) / 2;
  const bend = Math.abs(to - from) * 0.5;
  return `M${from} ${y[parent]}C${from + side * bend} ${y[parent]} ${to - side * bend} ${y[child]} ${to} ${y[child]}`;
}
