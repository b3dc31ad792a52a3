// Why a value is what it is: where operands were looked up, what arrived, which result was decided, and how clearly.
"use strict";

const CLEAR = 0.5; // share of attention from which a look-up counts as one

function explain(run, node, iteration) {
  const { solver, engine, problem } = run;
  const { task } = engine;
  const { layout, block } = solver;
  const before = run.values[iteration - 1];
  solver.update(run.states[iteration - 1]);
  const { parents } = problem.nodes[node];
  const head = lookupHead(run);
  const result = distribution(solver.valueLogits(node));
  const operands = parents.map((parent, k) => {
    const place = layout.operands[node][k];
    const seen = engine.auxiliary("lookup", block.layers[1]?.x ?? block.output, place);
    return {
      parent,
      name: problem.nodes[parent].name,
      held: before[parent],
      lookup: head && lookup(run, head, place, layout.rhs[parent]),
      arrived: seen ? decision(seen, task) : received(run, head, place, layout.rhs[parent], iteration),
    };
  });
  const expected = nodeValue(task, problem.nodes[node], before);
  const first =
    parents.length > 1 ? apply(task, problem.nodes[node].operations[0], before[parents[0]], before[parents[1]]) : null;
  const partial = parents.length > 1 ? engine.auxiliary("partial", block.half, layout.rhs[node]) : null;
  return {
    node,
    iteration,
    operands,
    expected,
    partial: partial && { ...decision(partial, task), expected: first },
    ...decision(solver.valueLogits(node), task),
    probabilities: result,
    heads: attentionOf(run, node),
    history: run.logits.map(
      (kept) => kept && distribution(kept.subarray(node * result.length, (node + 1) * result.length)),
    ),
  };
}

function distribution(logits) {
  return Float32Array.from(softmax(logits));
}

// The symbol that is decided, its probability, and the margin to the next one.
function decision(logits, task) {
  const best = argmax(logits, 0, logits.length);
  let next = best ? 0 : 1;
  for (let symbol = 0; symbol < logits.length; symbol++)
    if (symbol !== best && logits[symbol] > logits[next]) next = symbol;
  const number = (symbol) => (symbol < task.modulus ? symbol : EMPTY);
  return {
    value: number(best),
    next: number(next),
    margin: logits[best] - logits[next],
    probability: softmax(logits)[best],
  };
}

// The head that looks up definitions: of all, the one whose weight on the right definitions is largest on average.
function lookupHead(run) {
  const { engine, solver } = run;
  const { layout } = solver;
  const pairs = [];
  run.problem.nodes.forEach(({ parents }, node) => {
    parents.forEach((parent, k) => pairs.push([layout.operands[node][k], layout.rhs[parent]]));
  });
  const asked = pairs.slice(0, 24);
  if (!asked.length) return null;
  let best = null;
  engine.layers.forEach(({ attention }, layer) => {
    // Where only values are read, later layers have been computed at right-hand sides alone, and see a few tokens back.
    if (attention.window < Infinity || (solver.pinned && layer === engine.layers.length - 1)) return;
    const given = givenOf(run, layer);
    for (let head = 0; head < attention.heads; head++) {
      const mean =
        asked.reduce((sum, [place, definition]) => sum + attention.pattern(given, head, place).weights[definition], 0) /
        asked.length;
      if (best === null || mean > best.mean) best = { layer, head, mean };
    }
  });
  return best;
}

function givenOf(run, layer) {
  const { block } = run.solver;
  const given = block.given(layer);
  const { attention } = run.engine.layers[layer];
  if (attention.encoding === "deberta")
    given.distances = Array.from({ length: attention.heads }, (_, head) =>
      attention.keyDistances(given.keys, head, block.length),
    );
  return given;
}

// What one operand's look-up found: where most of the attention went, the weight of its definition and of the best wrong one.
function lookup(run, { layer, head }, place, definition) {
  const { attention } = run.engine.layers[layer];
  const { first, weights } = attention.pattern(givenOf(run, layer), head, place);
  const most = first + argmax(weights, 0, weights.length);
  let rival = null;
  run.solver.layout.rhs.forEach((key, node) => {
    const weight = key === definition || key >= place ? undefined : weights[key - first];
    if (weight !== undefined && (rival === null || weight > rival.weight))
      rival = { name: run.problem.nodes[node].name, weight };
  });
  const weight = weights[definition - first] ?? 0;
  const found = attention.sink && most === place ? "nowhere" : labelAt(run, most);
  return { layer, head, weight, rival, found, right: most === definition && weight > CLEAR };
}

// What arrived at an operand, without a read-out trained for it: of all numbers, the one whose definition would have sent the
// vector nearest to it, where vectors depend on tokens alone. `times` is how much farther the next one is.
function received(run, head, place, definition, iteration) {
  const { engine, solver } = run;
  if (head === null || head.layer || !solver.block.given(0).index) return null;
  const { task, width } = engine;
  const { size } = engine.layers[0].attention;
  const { factors } = run.states[iteration - 1];
  const values = Int32Array.from([...range(0, task.modulus), solver.layout.empty]);
  const copies = (factor) => new Int32Array(values.length).fill(factors[factor][definition]);
  const sent = new Tokens(engine);
  const index = sent.index({ ...Object.fromEntries(FACTORS.map((name) => [name, copies(name)])), value: values });
  const { z } = solver.block.layers[0];
  const far = (vector, start) => {
    let sum = 0;
    for (let i = head.head * size; i < (head.head + 1) * size; i++)
      sum += (z[place * width + i] - (vector ? vector[start + i] : 0)) ** 2;
    return Math.sqrt(sum);
  };
  const distances = Array.from(index, (row) => far(sent.values, row * width));
  distances.push(Math.min(distances.pop(), far(null, 0))); // nothing arrives from an empty definition, or from the sink
  const order = range(0, distances.length).sort((a, b) => distances[a] - distances[b]);
  return { value: order[0] < task.modulus ? order[0] : EMPTY, times: distances[order[1]] / distances[order[0]] };
}

// A token in words: definitions by the variable they define, others by their equation, too.
function labelAt(run, place) {
  const { layout } = run.solver;
  let node = 0;
  while (node < layout.rhs.length - 1 && layout.rhs[node] < place) node += 1;
  const own = layout.rhs[node] === place;
  return own
    ? `the definition of ${layout.labels[place]}`
    : `“${layout.labels[place]}” in the equation of x${run.problem.nodes[node].name}`;
}

// Every head's attention from the right-hand side: the tokens of its equation, and the strongest one elsewhere.
function attentionOf(run, node) {
  const { engine, solver } = run;
  const { layout } = solver;
  const place = layout.rhs[node];
  const begin = node ? layout.rhs[node - 1] + 2 : 0;
  const heads = [];
  engine.layers.forEach(({ attention }, layer) => {
    const given = givenOf(run, layer);
    for (let head = 0; head < attention.heads; head++) {
      const { first, weights } = attention.pattern(given, head, place);
      const inside = Array.from({ length: place - begin + 1 }, (_, k) => weights[begin + k - first] ?? 0);
      let outside = null;
      for (let key = first; key < begin; key++)
        if (outside === null || weights[key - first] > weights[outside - first]) outside = key;
      const sink = attention.sink ? inside.pop() : null;
      if (sink !== null) inside.push(0);
      heads.push({
        layer,
        head,
        inside,
        sink,
        elsewhere: 1 - inside.reduce((a, b) => a + b, 0) - (sink ?? 0),
        strongest: outside === null ? null : labelAt(run, outside),
      });
    }
  });
  return { labels: layout.labels.slice(begin, place + 1), heads };
}
