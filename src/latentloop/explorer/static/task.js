// What a problem is: a list of nodes in the order of their equations; sampled, solved, and written as text.
"use strict";

const EMPTY = -1;
const MAX_NODES = 4096;

// Arithmetic comes as a table [operation][left][right], so that an operation added in Python works here, too.
function makeTask(settings) {
  return { ...settings, table: bytesOf(settings.table) };
}

function apply(task, operation, left, right) {
  if (left === EMPTY || right === EMPTY) return EMPTY;
  return task.table[(operation * task.modulus + left) * task.modulus + right];
}

// One node from the values of its parents; null where it is a leaf.
function nodeValue(task, node, values) {
  if (node.parents.length === 0) return node.constant;
  let value = values[node.parents[0]];
  for (let k = 1; k < node.parents.length; k++)
    value = apply(task, node.operations[k - 1], value, values[node.parents[k]]);
  return value;
}

// True values and depths; parents come before their children.
function solveProblem(task, problem) {
  const values = new Int16Array(problem.nodes.length).fill(EMPTY);
  const depths = new Int16Array(problem.nodes.length);
  problem.nodes.forEach((node, place) => {
    values[place] = nodeValue(task, node, values);
    depths[place] = 1 + node.parents.reduce((deepest, parent) => Math.max(deepest, depths[parent]), 0);
  });
  return { values, depths, depth: depths.reduce((a, b) => Math.max(a, b), 0) };
}

// One local update of any state: every node anew from its parents' current values.
function updateState(task, problem, values) {
  return Int16Array.from(problem.nodes, (node) => nodeValue(task, node, values));
}

function expressionText(task, problem, place) {
  const node = problem.nodes[place];
  if (node.parents.length === 0) return String(node.constant);
  return node.parents
    .map((parent, k) => (k ? `${task.operations[node.operations[k - 1]]} ` : "") + `x${problem.nodes[parent].name}`)
    .join(" ");
}

function equationText(task, problem, place) {
  return `${expressionText(task, problem, place)} = x${problem.nodes[place].name}`;
}

function problemText(task, problem, separator = " ; ") {
  return problem.nodes.map((_, place) => equationText(task, problem, place)).join(separator);
}

// ---- sampling: latentloop.task.graph.sample for one problem, number by number

function sampleProblem(task, { nodes, family, seed, operations }) {
  const shape = task.families.find((row) => row.name === family);
  const random = new Random(seed, 0, 0);
  const leaves = bytesOf(shape.leaves, Uint16Array)[nodes];
  random.integers(nodes, nodes + 1, 1, 16); // the size: one choice, nothing drawn

  const { parents, depths } = growGraph(nodes, leaves, shape, random);
  const codes = operations.map((operation) => task.operations.indexOf(operation));
  const drawn = random.integers(0, codes.length, 2 * nodes, 8);
  const lowest = shape.leaf_values === "equal" ? 1 : 0;
  let constants = random.integers(lowest, task.modulus, nodes, 8);
  if (shape.leaf_values === "equal") constants = constants.map(() => constants[0]);
  if (shape.leaf_values === "zero") constants = constants.map(() => 0);
  const names = sampleNames(task.names, nodes, random);

  const order = Array.from(depths.keys()).sort((a, b) => depths[a] - depths[b] || a - b);
  const place = new Int16Array(nodes);
  order.forEach((node, at) => (place[node] = at));
  return {
    nodes: order.map((node) => ({
      name: names[node],
      parents: parents[node].map((parent) => place[parent]),
      operations: parents[node].slice(1).map((_, k) => codes[drawn[2 * node + k]]),
      constant: node < leaves ? constants[node] : EMPTY,
    })),
  };
}

function growGraph(nodes, leaves, shape, random) {
  const fanIns = random.integers(0, shape.fan_ins.length, nodes, 8).map((choice) => shape.fan_ins[choice]);
  const uniform = random.uniform(4 * nodes);
  const parents = [];
  const depths = [];
  const pool = [];
  for (let node = 0; node < nodes; node++) {
    let chosen = [];
    if (node >= leaves && shape.pool === "pairs") {
      chosen = [2 * (node - leaves), 2 * (node - leaves) + 1].filter((parent) => parent < node);
    } else if (node >= leaves) {
      const fanIn = Math.min(fanIns[node], pool.length);
      chosen = distinctPicks(uniform.subarray(4 * node, 4 * node + 4), fanIn, pool.length, shape.always)
        .slice(0, fanIn)
        .map((pick) => pool[pick]);
    }
    parents.push(chosen);
    depths.push(1 + chosen.reduce((deepest, parent) => Math.max(deepest, depths[parent]), 0));
    if (depths[node] < nodes + 1 && (node < leaves || shape.pool !== "leaves")) pool.push(node);
  }
  return { parents, depths };
}

// Three distinct places of a pool, in random order; each pick shifts past those taken before it.
function distinctPicks(uniform, fanIn, size, always) {
  let [first, second, third] = [0, 1, 2].map((k) => Math.trunc(Math.fround(uniform[k] * Math.max(size - k, 1))));
  if (always) first = always === "first" ? 0 : size - 1;
  if (second >= first) second += 1;
  if (third >= Math.min(first, second)) third += 1;
  if (third >= Math.max(first, second)) third += 1;
  const picks = [first, second, third];
  if (always) {
    const place = Math.trunc(Math.fround(uniform[3] * fanIn));
    [picks[0], picks[place]] = [picks[place], picks[0]];
  }
  return picks;
}

function sampleNames(names, nodes, random) {
  const deck = Array.from({ length: names }, (_, name) => name);
  const uniform = random.uniform(nodes);
  for (let node = 0; node < nodes; node++) {
    const pick = node + Math.trunc(Math.fround(uniform[node] * (names - node)));
    [deck[node], deck[pick]] = [deck[pick], deck[node]];
  }
  return deck.slice(0, nodes);
}

// ---- bytes that were inlined as base64

function bytesOf(text, kind = Uint8Array) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let place = 0; place < bytes.length; place++) bytes[place] = characters.charCodeAt(place);
  return kind === Uint8Array ? bytes : new kind(bytes.buffer);
}
