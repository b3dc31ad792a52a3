// The one JSON form of a run of a loop: what `latentloop solve --json --trace full` prints and this page saves and reads.
"use strict";

const RUN_FORMAT = "latentloop-run";

// States, margins and the look-up head's attention of a run, with keys by place among the tokens.
function fullTrace(run) {
  const { problem, engine } = run;
  const plain = (values) => Array.from(values, (value) => (value === EMPTY ? null : value));
  const document = {
    states: run.values.map(plain),
    margins: run.margins.map((margins) => Array.from(margins, (margin) => rounded(margin))),
  };
  if (run.writer) {
    const spell = (token) => run.writer.flat.spell(token);
    return {
      ...document,
      tokens: run.writer.prompt.map(spell),
      written: run.writer.tokens.map(spell),
      nodes: problem.nodes.map(({ name, parents }) => ({ name: `x${name}`, parents })),
    };
  }
  const { layout } = run.solver;
  const nodes = problem.nodes.map(({ name, parents }, node) => ({
    name: `x${name}`,
    position: layout.rhs[node],
    operands: layout.operands[node],
    parents,
  }));
  const attention = [];
  const queries = layout.operands.flat();
  for (let t = 1; t < run.states.length && queries.length; t++) {
    run.solver.update(run.states[t - 1]);
    if (t === 1) {
      const found = lookupHead(run);
      if (!found) break;
      attention.push({ layer: found.layer, head: found.head, queries, top: [] });
    }
    const { layer, head, top } = attention[0];
    const given = givenOf(run, layer);
    top.push(queries.map((place) => strongest(engine.layers[layer].attention.pattern(given, head, place), 2)));
  }
  return { ...document, tokens: layout.labels, nodes, attention };
}

function strongest({ first, weights }, count) {
  const order = Array.from(weights.keys())
    .sort((a, b) => weights[b] - weights[a])
    .slice(0, count);
  return order.map((k) => [first + k, rounded(weights[k])]);
}

function rounded(number) {
  return Number(number.toPrecision(5));
}

// ---- reading: a schema of few words, then what no schema can say

function checkSchema(value, schema, path = "run") {
  const kinds = {
    object: (v) => v !== null && typeof v === "object" && !Array.isArray(v),
    array: Array.isArray,
    string: (v) => typeof v === "string",
    number: Number.isFinite,
    integer: Number.isInteger,
    boolean: (v) => typeof v === "boolean",
    null: (v) => v === null,
  };
  const allowed = [schema.type ?? []].flat();
  if (allowed.length && !allowed.some((kind) => kinds[kind](value)))
    throw new Error(`${path} must be of type ${allowed.join(" or ")}`);
  if ("const" in schema && value !== schema.const) throw new Error(`${path} must be ${JSON.stringify(schema.const)}`);
  if (schema.enum && !schema.enum.includes(value)) throw new Error(`${path} must be one of ${schema.enum.join(", ")}`);
  if (typeof value === "number") {
    if (value < (schema.minimum ?? -Infinity)) throw new Error(`${path} must be at least ${schema.minimum}`);
    if (value > (schema.maximum ?? Infinity)) throw new Error(`${path} must be at most ${schema.maximum}`);
  }
  if (typeof value === "string" && value.length > (schema.maxLength ?? Infinity))
    throw new Error(`${path} must have at most ${schema.maxLength} characters`);
  if (kinds.array(value)) {
    if (value.length < (schema.minItems ?? 0)) throw new Error(`${path} must have at least ${schema.minItems} items`);
    if (value.length > (schema.maxItems ?? Infinity))
      throw new Error(`${path} must have at most ${schema.maxItems} items`);
    if (schema.items) value.forEach((item, k) => checkSchema(item, schema.items, `${path}[${k}]`));
  } else if (kinds.object(value)) {
    for (const name of schema.required ?? []) if (!Object.hasOwn(value, name)) throw new Error(`${path} lacks ${name}`);
    for (const [name, part] of Object.entries(schema.properties ?? {}))
      if (Object.hasOwn(value, name)) checkSchema(value[name], part, `${path}.${name}`);
  }
}

function checkRun(document, schema) {
  checkSchema(document, schema);
  const count = document.nodes.length;
  document.states.forEach((state, t) => {
    if (state.length !== count)
      throw new Error(`run.states[${t}] must have a value for each of ${count} nodes, got ${state.length}`);
    for (const value of state)
      if (value !== null && value >= document.modulus)
        throw new Error(`run.states[${t}] has ${value}, and values are below ${document.modulus}`);
  });
  document.nodes.forEach((node, place) => {
    if (document.truth && document.truth.length !== count)
      throw new Error(`run.truth must have ${count} values, got ${document.truth.length}`);
    for (const parent of node.parents ?? [])
      if (parent >= place)
        throw new Error(`run.nodes[${place}] has the parent ${parent}, which does not come before it`);
  });
  (document.margins ?? []).forEach((margins, t) => {
    if (margins.length !== count)
      throw new Error(`run.margins[${t}] must have ${count} numbers, got ${margins.length}`);
  });
  return document;
}
