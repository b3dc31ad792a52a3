// What can be taken away: the run as JSON, the graph as a picture, and this moment as a page of its own.
"use strict";

function download(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = html("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

async function runDocument(app) {
  const pane = app.main;
  if (pane.source.kind === "recorded") return pane.source.document;
  const plain = (value) => (value === EMPTY ? null : value);
  const description = pane.description;
  const recorded = description
    ? await app.ask("trace", { id: pane.id, pane: pane.number })
    : {
        states: pane.values.map((state) => Array.from(state, plain)),
        nodes: app.problem.nodes.map(({ name, parents }) => ({ name: `x${name}`, parents })),
      };
  return {
    format: RUN_FORMAT,
    version: 1,
    model: description
      ? { name: description.title, method: description.config.method.name, sha256: description.sha256 }
      : { name: "oracle" },
    text: problemText(app.task, app.problem),
    modulus: app.task.modulus,
    truth: Array.from(app.truth),
    changes: pane.breakable
      ? app.changes.map(({ at, values }) => ({ at, values: values.map(([node, value]) => [node, plain(value)]) }))
      : [],
    halt: pane.halt ? { reason: pane.halt.reason, at: pane.halt.at } : { reason: "cap", at: pane.last },
    ...recorded,
  };
}

// A recorded run as a problem to show: from its text where this page can read it, else from its nodes alone.
function recordedProblem(document) {
  const depths = [];
  document.nodes.forEach(
    ({ parents = [] }, node) =>
      (depths[node] = 1 + parents.reduce((deepest, parent) => Math.max(deepest, depths[parent]), 0)),
  );
  const labels = document.nodes.map(({ name }) => name);
  const nodes = document.nodes.map(({ parents = [] }, node) => ({
    name: node,
    parents,
    operations: [],
    constant: EMPTY,
  }));
  return {
    nodes,
    labels,
    depths: Int16Array.from(depths),
    truth: document.truth ? Int16Array.from(document.truth) : null,
    modulus: document.modulus,
  };
}

// Draw the first pane's graph on a canvas, with the colors of the page.
function graphPicture(app) {
  const { graph } = app.main;
  const { layout, problem } = graph;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const margin = 24;
  const scale = Math.max(0.25, Math.min(2, 8000 / Math.max(layout.width, layout.height)));
  const canvas = html("canvas");
  canvas.width = Math.ceil((layout.width + 2 * margin) * scale);
  canvas.height = Math.ceil((layout.height + 2 * margin + 26) * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = color("card");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.translate(margin, margin);
  pen.strokeStyle = color("edge");
  pen.lineWidth = 1;
  problem.nodes.forEach(({ parents }, node) =>
    parents.forEach((parent) => pen.stroke(new Path2D(edgePath(layout, parent, node)))),
  );
  pen.textAlign = "center";
  problem.nodes.forEach((node, number) => {
    const kinds = app.main.kinds(app.iteration, number);
    const fill = kinds.includes("broken") ? "broken" : kinds[0];
    pen.beginPath();
    pen.roundRect(
      layout.x[number] - NODE_WIDTH / 2,
      layout.y[number] - NODE_HEIGHT / 2,
      NODE_WIDTH,
      NODE_HEIGHT,
      node.parents.length ? 9 : NODE_HEIGHT / 2,
    );
    pen.fillStyle = ["right", "wrong", "broken"].includes(fill) ? color(`${fill}-fill`) : color("card");
    pen.strokeStyle = color(
      kinds.includes("changed") ? "changed" : ["right", "wrong", "broken"].includes(fill) ? fill : "empty",
    );
    pen.setLineDash(fill === "empty" ? [4, 3] : []);
    pen.lineWidth = kinds.length > 1 ? 3 : 1.6;
    pen.fill();
    pen.stroke();
    pen.fillStyle = color("quiet");
    pen.font = "10px system-ui, sans-serif";
    pen.fillText(labelOf(problem, number), layout.x[number], layout.y[number] - 6);
    pen.fillStyle = color("ink");
    pen.font = "650 15px system-ui, sans-serif";
    const value = app.main.at(app.iteration)[number];
    pen.fillText(value === EMPTY ? "" : String(value), layout.x[number], layout.y[number] + 13);
    if (fill === "wrong" || fill === "broken") {
      pen.fillStyle = color(fill); // the mark that the page shows, since colors alone do not tell
      pen.font = "700 12px system-ui, sans-serif";
      pen.fillText(
        fill === "broken" ? "!" : "×",
        layout.x[number] + NODE_WIDTH / 2 - 7,
        layout.y[number] + NODE_HEIGHT / 2 - 6,
      );
    }
  });
  pen.fillStyle = color("quiet");
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.fillText(`${app.main.title}, ${app.main.unit} ${app.iteration}`, 0, layout.height + 20);
  return canvas;
}

// This page with another opening: its source was kept as it came.
function standalonePage(app, source) {
  const { source: shown } = app.panes[0];
  const moment = shown.kind === "recorded" ? { run: shown.document } : { link: linkOf(app) };
  const opening = JSON.stringify({ problem: app.opening.problem, ...moment }).replaceAll("<", "\\u003c");
  return source.replace(
    /(<script type="application\/json" id="opening">)[^]*?(<\/script>)/,
    (_, open, close) => open + opening + close,
  );
}
