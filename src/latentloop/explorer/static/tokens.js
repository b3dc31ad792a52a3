// How a problem is written for a model: four factors a token, or the flat symbols of a chain of thought.
"use strict";

const FACTORS = ["syntax", "variable", "operation", "value"];
const SYNTAX = { value: 0, variable: 1, operation: 2, equals: 3, sep: 4 };
const TRAJECTORY_SPARE = 16; // tokens a chain of thought may have beyond the true one

// Factored tokens, nothing computed yet, and where the nodes stand among them.
function encodeProblem(task, problem) {
  const columns = { syntax: [], variable: [], operation: [], value: [] };
  const none = { variable: task.names, operation: task.operations.length, value: task.modulus };
  const empty = task.modulus + 1;
  const labels = [];
  const rhs = [];
  const operands = [];
  const push = (syntax, given, label) => {
    columns.syntax.push(syntax);
    for (const factor of ["variable", "operation", "value"]) columns[factor].push(given[factor] ?? none[factor]);
    labels.push(label);
    return labels.length - 1;
  };
  const variable = (place) => {
    const { name } = problem.nodes[place];
    return push(SYNTAX.variable, { variable: name, value: empty }, `x${name}`);
  };
  problem.nodes.forEach((node, place) => {
    if (place) push(SYNTAX.sep, {}, ";");
    const places = node.parents.map((parent, k) => {
      if (k) push(SYNTAX.operation, { operation: node.operations[k - 1] }, task.operations[node.operations[k - 1]]);
      return variable(parent);
    });
    if (!places.length) push(SYNTAX.value, { value: node.constant }, String(node.constant));
    push(SYNTAX.equals, {}, "=");
    operands.push(places);
    rhs.push(variable(place));
  });
  const factors = {};
  for (const factor of FACTORS) factors[factor] = Int32Array.from(columns[factor]);
  return { length: labels.length, factors, labels, rhs: Int32Array.from(rhs), operands, empty };
}

// Values of nodes in a state: numbers at right-hand sides, EMPTY for anything else.
function readValues(task, layout, factors) {
  return Int16Array.from(layout.rhs, (place) => {
    const symbol = factors.value[place];
    return symbol < task.modulus ? symbol : EMPTY;
  });
}

function withValues(task, layout, factors, values) {
  const value = Int32Array.from(factors.value);
  layout.rhs.forEach((place, node) => (value[place] = values[node] === EMPTY ? layout.empty : values[node]));
  return { ...factors, value };
}

// ---- chains of thought

function flatVocabulary(task) {
  const variables = task.modulus;
  const operations = variables + task.names;
  const equals = operations + task.operations.length;
  const special = { variables, operations, equals, sep: equals + 1, pad: equals + 2, cot: equals + 3, end: equals + 4 };
  const spell = (token) => {
    if (token < variables) return String(token);
    if (token < operations) return `x${token - variables}`;
    if (token < equals) return task.operations[token - operations];
    return ["=", ";", "<pad>", "<CoT>", "<end>"][token - equals];
  };
  return { ...special, spell };
}

function flatPrompt(task, problem) {
  const flat = flatVocabulary(task);
  const tokens = [];
  problem.nodes.forEach((node, place) => {
    if (place) tokens.push(flat.sep);
    if (!node.parents.length) tokens.push(node.constant);
    node.parents.forEach((parent, k) => {
      if (k) tokens.push(flat.operations + node.operations[k - 1]);
      tokens.push(flat.variables + problem.nodes[parent].name);
    });
    tokens.push(flat.equals, flat.variables + node.name);
  });
  return [...tokens, flat.cot];
}

// The most tokens that a model may write: the true chain's, and a few more.
function trajectoryLimit(problem, format) {
  const repeats = { value: 0, "equation-value": 1, "equation-operands-value": 2 }[format];
  const steps = problem.nodes.map(({ parents }) => 4 + repeats * 2 * parents.length);
  return steps.reduce((a, b) => a + b, 0) + TRAJECTORY_SPARE;
}

// The value given to each node by what was written so far; the last one counts.
function readTrajectory(task, problem, tokens) {
  const flat = flatVocabulary(task);
  const given = new Map();
  const steps = [[]];
  for (const token of tokens) {
    if (token === flat.end || token === flat.pad) break;
    if (token === flat.sep) steps.push([]);
    else steps.at(-1).push(token);
  }
  for (const words of steps) {
    const closed = words.length >= 3 && words[1] === flat.equals && words.at(-2) === flat.equals;
    const name = words[0] - flat.variables;
    if (closed && words.at(-1) < task.modulus && name >= 0 && name < task.names) given.set(name, words.at(-1));
  }
  return Int16Array.from(problem.nodes, ({ name }) => given.get(name) ?? EMPTY);
}
