// A run of the loop: states one after the other, until one repeats or the cap is reached; with values set by hand on the way.
"use strict";

const MOST_LOGITS = 2 ** 24; // logits that a run keeps, for distributions over values at every iteration

function sameState(a, b) {
  return FACTORS.every((name) => {
    const left = a.factors[name];
    const right = b.factors[name];
    if (left === right) return true;
    for (let i = 0; i < left.length; i++) if (left[i] !== right[i]) return false;
    return true;
  });
}

function stateHash(state) {
  let hash = 0x811c9dc5;
  for (const name of FACTORS)
    for (const number of state.factors[name]) hash = Math.imul(hash ^ number, 0x01000193) + (hash >>> 13);
  return hash >>> 0;
}

// Every entry of `changes` is {at, values: [[node, value], ...]}: after so many iterations these values are overwritten.
class Run {
  constructor(engine, problem, changes = [], cap = null) {
    Object.assign(this, { engine, problem, halt: null });
    this.changes = new Map(changes.map(({ at, values }) => [at, values]));
    this.last = changes.reduce((latest, { at }) => Math.max(latest, at), 0);
    this.cap = engine.iterations ?? this.last + (cap ?? problem.nodes.length + 2);
    this.logits = [];
    this.margins = [];
    if (engine.carries === "tokens") {
      this.writer = new Writer(engine, problem);
      this.values = [new Int16Array(problem.nodes.length).fill(EMPTY)];
      this.cap = this.writer.limit;
      return;
    }
    this.solver = new Solver(engine, problem);
    this.keepsLogits = problem.nodes.length * this.cap * (engine.task.modulus + 2) <= MOST_LOGITS;
    this.states = [this.changed(this.solver.start(), 0)];
    this.values = [this.solver.values(this.states[0])];
    this.hashes = new Map([[stateHash(this.states[0]), [0]]]);
  }

  get iteration() {
    return this.values.length - 1;
  }

  changed(state, at) {
    const values = this.changes.get(at);
    if (!values) return state;
    const known = this.solver.values(state);
    for (const [node, value] of values) known[node] = value;
    return { ...state, factors: withValues(this.engine.task, this.solver.layout, state.factors, known) };
  }

  // One iteration; for a chain of thought, one token.
  step() {
    if (this.writer) return this.write();
    const before = this.states.at(-1);
    const after = this.solver.update(before);
    const at = this.states.length;
    this.keep();
    const forced = this.changes.has(at);
    const state = this.changed(after, at);
    this.states.push(state);
    this.values.push(this.solver.values(state));
    if (forced) this.hashes.clear();
    const hash = stateHash(state);
    const earlier = (this.hashes.get(hash) ?? []).findLast((t) => sameState(this.states[t], state));
    this.hashes.set(hash, [...(this.hashes.get(hash) ?? []), at]);
    if (forced || at < this.last) return;
    this.halt = this.reason(at, earlier);
  }

  // Why it stops here, by the rules of latentloop.halting; null where it goes on.
  reason(at, earlier) {
    const { iterations, carries } = this.engine;
    if (iterations !== null) return at >= iterations ? { reason: "fixed", at } : null;
    if (earlier === at - 1) return { reason: "fixpoint", at, approximate: carries === "hidden" };
    if (earlier !== undefined && carries === "state")
      return { reason: "cycle", at, start: earlier, length: at - earlier };
    return at >= this.cap ? { reason: "cap", at } : null;
  }

  write() {
    this.writer.step();
    this.values.push(this.writer.values());
    if (this.writer.done) this.halt = { reason: this.writer.ended ? "end" : "cap", at: this.iteration };
  }

  // Keep how clear each decision was: the likeliest value's logit minus the next one's.
  keep() {
    const { size } = this.engine.readouts.get("value");
    const count = this.problem.nodes.length;
    const margins = new Float32Array(count);
    const kept = this.keepsLogits ? new Float32Array(count * size) : null;
    for (let node = 0; node < count; node++) {
      const logits = this.solver.valueLogits(node);
      margins[node] = marginOf(logits);
      if (kept) kept.set(logits, node * size);
    }
    this.margins.push(margins);
    this.logits.push(kept);
  }
}

function marginOf(logits) {
  let best = -Infinity;
  let next = -Infinity;
  for (const logit of logits) {
    if (logit > best) {
      next = best;
      best = logit;
    } else if (logit > next) {
      next = logit;
    }
  }
  return best - next;
}
