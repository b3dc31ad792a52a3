// The model: embeddings, the recurrent block, read-outs. What has not changed since the last iteration is not computed again.
"use strict";

const SAME = 1e-6; // mixed values closer than this, relative to their size, are equal in single precision

// The distinct tokens of a problem, each once: embeddings, and the first layer's queries, keys and values.
class Tokens {
  constructor(engine) {
    this.engine = engine;
    this.numbers = new Map();
    this.count = 0;
    this.room = 0;
    this.columns = ["x", "normed", "queries", "keys", "values"];
  }

  // Which token stands at each place of a state; tokens that are new are added.
  index(factors) {
    const { task, width } = this.engine;
    const [, variable, operation, value] = FACTORS.map((factor) => factors[factor]);
    const index = new Int32Array(factors.syntax.length);
    const added = [];
    for (let place = 0; place < index.length; place++) {
      let code = factors.syntax[place] * (task.names + 1) + variable[place];
      code = (code * (task.operations.length + 1) + operation[place]) * (task.modulus + 2) + value[place];
      let number = this.numbers.get(code);
      if (number === undefined) {
        number = this.numbers.size;
        this.numbers.set(code, number);
        added.push(place);
      }
      index[place] = number;
    }
    this.grow(this.numbers.size, width);
    added.forEach((place) => this.engine.embed(this.x, index[place], factors, place));
    const rows = range(this.count, this.numbers.size);
    this.count = this.numbers.size;
    this.engine.layers[0].projected(this, rows);
    return index;
  }

  grow(count, width) {
    if (count <= this.room) return;
    this.room = Math.ceil(count * 1.5);
    for (const name of this.columns) {
      const grown = new Float32Array(this.room * width);
      if (this[name]) grown.set(this[name]);
      this[name] = grown;
    }
  }
}

class Layer {
  constructor(engine, number) {
    const { tensors, config } = engine;
    const name = `layers.${number}`;
    const pair = (part) => ({
      weight: tensors.get(`${name}.${part}.weight`),
      bias: tensors.get(`${name}.${part}.bias`),
    });
    this.width = engine.width;
    this.norm = pair("attention_norm");
    this.attention = new Attention(engine, number);
    this.mlps = [];
    for (let k = 0; tensors.has(`${name}.mlps.${k}.into.weight`); k++)
      this.mlps.push({ norm: pair(`mlps.${k}.norm`), into: pair(`mlps.${k}.into`), out: pair(`mlps.${k}.out`) });
    this.hidden = config.model.mlp_ratio * this.width;
  }

  // LayerNorm and projections of some rows of x, into buffers of the same rows.
  projected(buffers, rows, queryRows = rows) {
    const { width } = this;
    const { weight, bias } = this.attention.project;
    layerNorm(buffers.normed, buffers.x, rows, this.norm.weight, this.norm.bias, width);
    linear(buffers.queries, buffers.normed, queryRows, weight, bias, width, 0, width);
    linear(buffers.keys, buffers.normed, rows, weight, bias, width, width, 2 * width);
    linear(buffers.values, buffers.normed, rows, weight, bias, width, 2 * width, 3 * width);
  }

  // Add attention's output and the MLPs to some rows; keep the stream halfway through the MLPs, too.
  finish(x, buffers, rows, spare, half) {
    const { width } = this;
    const { normed, z } = buffers;
    linear(normed, z, rows, this.attention.out.weight, this.attention.out.bias, width);
    add(x, buffers.x, normed, rows, width);
    this.mlps.forEach((mlp, number) => {
      if (half && number === this.mlps.length >> 1) copyRows(half, x, rows, width);
      layerNorm(normed, x, rows, mlp.norm.weight, mlp.norm.bias, width);
      linear(spare, normed, rows, mlp.into.weight, mlp.into.bias, width);
      for (const row of rows)
        for (let i = row * this.hidden; i < (row + 1) * this.hidden; i++) if (spare[i] < 0) spare[i] = 0;
      linear(normed, spare, rows, mlp.out.weight, mlp.out.bias, this.hidden);
      add(x, x, normed, rows, width);
    });
  }
}

function add(sum, left, right, rows, size) {
  for (const row of rows) for (let i = row * size; i < (row + 1) * size; i++) sum[i] = left[i] + right[i];
}

function copyRows(to, from, rows, size) {
  for (const row of rows) for (let i = row * size; i < (row + 1) * size; i++) to[i] = from[i];
}

// One application of the block to a sequence, with everything it computed: the next application starts from there.
class Block {
  constructor(engine, length) {
    const { width, layers } = engine;
    const room = () => new Float32Array(length * width);
    Object.assign(this, { engine, length, fresh: true });
    this.layers = layers.map(() => ({
      x: room(),
      normed: room(),
      queries: room(),
      keys: room(),
      values: room(),
      z: room(),
      kept: room(),
    }));
    this.output = room();
    this.half = room();
    this.hidden = room();
    this.spare = new Float32Array(length * Math.max(...layers.map((layer) => layer.hidden)));
    this.tokens = null;
    this.places = null;
  }

  // The rows of the first layer's input that differ from the last application's, from tokens or from vectors.
  enter(factors) {
    const { width } = this.engine;
    const first = this.layers[0];
    this.tokens ??= new Tokens(this.engine);
    const index = this.tokens.index(factors);
    const changed = range(0, this.length).filter((place) => this.fresh || index[place] !== this.places[place]);
    this.places = index;
    const columns = this.engine.positional ? ["x", "queries", "keys", "values"] : ["x"];
    for (const place of changed)
      for (const name of columns)
        first[name].set(this.tokens[name].subarray(index[place] * width, (index[place] + 1) * width), place * width);
    return changed;
  }

  // Apply all layers; the last one at the places that are read. Returns the places whose result is new.
  run(changed, read, projected) {
    const { engine } = this;
    const { width } = engine;
    const last = engine.layers.length - 1;
    let rows = changed;
    engine.layers.forEach((layer, number) => {
      const buffers = this.layers[number];
      const { attention } = layer;
      const asked = number === last ? read : range(0, this.length);
      if (number || !projected) layer.projected(buffers, rows);
      if (attention.encoding === "rope" && rows.length) {
        attention.rotate(buffers.queries, rows);
        attention.rotate(buffers.keys, rows);
      }
      const affected = this.affected(attention, rows, asked);
      attention.mix(buffers.z, this.given(number), affected);
      const moved = this.moved(buffers, affected, new Set(rows));
      copyRows(buffers.kept, buffers.z, moved, width);
      layer.finish(
        number === last ? this.output : this.layers[number + 1].x,
        buffers,
        moved,
        this.spare,
        number === last ? this.half : null,
      );
      rows = moved;
    });
    const { norm } = engine;
    layerNorm(this.hidden, this.output, rows, norm.weight, norm.bias, width);
    this.fresh = false;
    return rows;
  }

  // What the attention of a layer works on.
  given(number) {
    const buffers = this.layers[number];
    const { attention } = this.engine.layers[number];
    if (number || this.places === null || this.engine.positional) return { ...buffers, index: null, pairs: null };
    const { tokens } = this;
    tokens.pairs ??= range(0, attention.heads).reduce((all, head) => [...all, new Pairs(attention, tokens, head)], []);
    const pairs = tokens.count <= MOST_TABLED ? tokens.pairs : null;
    return { queries: tokens.queries, keys: tokens.keys, values: tokens.values, index: this.places, pairs };
  }

  // Places that see one of the rows that changed.
  affected(attention, rows, asked) {
    if (!rows.length) return rows;
    if (attention.window === Infinity) {
      const first = rows.reduce((a, b) => Math.min(a, b));
      return asked.filter((place) => place >= first);
    }
    const seen = new Uint8Array(this.length + attention.window);
    for (const row of rows) seen.fill(1, row, row + attention.window);
    return asked.filter((place) => seen[place]);
  }

  // Of these places, those whose own input or mixed values differ from what was last passed on.
  moved({ z, kept }, places, changed) {
    const { width } = this.engine;
    return places.filter((place) => {
      if (this.fresh || changed.has(place)) return true;
      for (let i = place * width; i < (place + 1) * width; i++)
        if (Math.abs(z[i] - kept[i]) > SAME * (1 + Math.abs(kept[i]))) return true;
      return false;
    });
  }
}

class Engine {
  constructor({ config, row, iterations, tensors, task }) {
    Object.assign(this, { config, tensors, task, carries: row.carries, iterations });
    this.width = config.model.width;
    this.method = config.method;
    this.encoding = config.model.positions.name;
    this.positional = !["nope", "local"].includes(this.encoding); // in the first layer
    this.norm = { weight: tensors.get("norm.weight"), bias: tensors.get("norm.bias") };
    this.layers = Array.from({ length: config.model.layers }, (_, number) => new Layer(this, number));
    this.readouts = new Map();
    for (const name of [...FACTORS, "token"]) {
      const weight = tensors.get(`readouts.${name}.weight`);
      if (weight)
        this.readouts.set(name, {
          weight,
          bias: tensors.get(`readouts.${name}.bias`),
          size: weight.length / this.width,
        });
    }
  }

  // Sum the embeddings of all factors at one place into a row of x.
  embed(x, row, symbols, place) {
    const { width } = this;
    const to = row * width;
    x.fill(0, to, to + width);
    for (const factor of Object.keys(symbols)) {
      const table = this.tensors.get(`embeddings.${factor}.weight`);
      const from = symbols[factor][place] * width;
      for (let i = 0; i < width; i++) x[to + i] += table[from + i];
    }
  }

  // AbPE: add the vector of each position to what enters the block, then a LayerNorm.
  enterPositions(x, rows) {
    if (this.encoding !== "abpe") return;
    const { width } = this;
    const table = this.tensors.get("positions.table.weight");
    const room = table.length / width;
    const last = rows.reduce((a, b) => Math.max(a, b), 0);
    if (last >= room)
      throw new Error(`the model has absolute positions for ${room} tokens, the sequence has ${last + 1}`);
    for (const row of rows) for (let i = row * width; i < (row + 1) * width; i++) x[i] += table[i];
    layerNorm(x, x, rows, this.tensors.get("positions.norm.weight"), this.tensors.get("positions.norm.bias"), width);
  }

  // Auxiliary read-outs say what a vector holds: `lookup` the value that was looked up, `partial` the first result.
  auxiliary(name, x, place) {
    const weight = this.tensors.get(`auxiliary.${name}.1.weight`);
    if (!weight) return null;
    const { width } = this;
    const row = x.slice(place * width, (place + 1) * width);
    layerNorm(
      row,
      row,
      [0],
      this.tensors.get(`auxiliary.${name}.0.weight`),
      this.tensors.get(`auxiliary.${name}.0.bias`),
      width,
    );
    const logits = new Float32Array(weight.length / width);
    linear(logits, row, [0], weight, this.tensors.get(`auxiliary.${name}.1.bias`), width);
    return logits;
  }
}

// A latent model at work on one problem: one update after the other.
class Solver {
  constructor(engine, problem) {
    const { task } = engine;
    this.engine = engine;
    this.problem = problem;
    this.layout = encodeProblem(task, problem);
    this.block = new Block(engine, this.layout.length);
    const { length } = this.layout;
    this.pinned = engine.readouts.size === 1;
    this.read = this.pinned ? this.layout.rhs : range(0, length);
    this.logits = new Map([...engine.readouts].map(([name, { size }]) => [name, new Float32Array(length * size)]));
    this.decided = {};
    for (const name of engine.readouts.keys()) this.decided[name] = new Int32Array(length);
  }

  start(values = null) {
    const { factors } = this.layout;
    return { factors: values ? withValues(this.engine.task, this.layout, factors, values) : factors, hidden: null };
  }

  // Apply the block once, then decide: the likeliest symbol of each factor that is read.
  update(state) {
    const { engine, block, layout } = this;
    let changed;
    if (state.hidden) {
      block.places = null;
      block.fresh = true;
      changed = range(0, layout.length);
      block.layers[0].x.set(state.hidden);
      engine.enterPositions(block.layers[0].x, changed);
    } else {
      block.fresh ||= block.places === null;
      changed = block.enter(state.factors);
      engine.enterPositions(block.layers[0].x, changed);
    }
    const rows = block.run(changed, this.read, !state.hidden && engine.encoding !== "abpe");
    for (const [name, { weight, bias, size }] of engine.readouts) {
      const logits = this.logits.get(name);
      linear(logits, block.hidden, rows, weight, bias, engine.width);
      for (const place of rows) this.decided[name][place] = argmax(logits, place * size, size);
    }
    return { factors: this.next(state.factors), hidden: engine.carries === "hidden" ? block.hidden.slice() : null };
  }

  next(factors) {
    if (!this.pinned) return Object.fromEntries(FACTORS.map((name) => [name, this.decided[name].slice()]));
    const value = Int32Array.from(factors.value);
    for (const place of this.layout.rhs) value[place] = this.decided.value[place];
    return { ...factors, value };
  }

  values(state) {
    return readValues(this.engine.task, this.layout, state.factors);
  }

  valueLogits(node) {
    const { size } = this.engine.readouts.get("value");
    const place = this.layout.rhs[node];
    return this.logits.get("value").subarray(place * size, (place + 1) * size);
  }
}

// A chain-of-thought model at work: tokens, one after the other, with every key and value kept.
class Writer {
  constructor(engine, problem) {
    const { task, method } = engine;
    Object.assign(this, { engine, problem, tokens: [], flat: flatVocabulary(task), ended: false });
    this.prompt = flatPrompt(task, problem);
    this.limit = trajectoryLimit(problem, method.trajectory);
    const length = this.prompt.length + this.limit;
    this.blocks = Array.from({ length: engine.iterations }, () => new Block(engine, length));
    this.written = 0;
  }

  // Take in what is new, and write the likeliest next token.
  step() {
    const { engine } = this;
    const all = this.written ? this.tokens.slice(-1) : this.prompt;
    const rows = range(this.written, this.written + all.length);
    this.written += all.length;
    const { x } = this.blocks[0].layers[0];
    rows.forEach((row, k) => engine.embed(x, row, { token: all }, k));
    this.blocks.forEach((block, number) => {
      if (number) copyRows(block.layers[0].x, this.blocks[number - 1].hidden, rows, engine.width);
      engine.enterPositions(block.layers[0].x, rows);
      block.fresh = true;
      block.length = this.written;
      block.run(rows, rows, false);
    });
    const { weight, bias, size } = engine.readouts.get("token");
    const last = this.blocks.at(-1).hidden.slice((this.written - 1) * engine.width, this.written * engine.width);
    const logits = new Float32Array(size);
    linear(logits, last, [0], weight, bias, engine.width);
    const token = argmax(logits, 0, size);
    this.tokens.push(token);
    this.ended = token === this.flat.end;
    return token;
  }

  get done() {
    return this.ended || this.tokens.length >= this.limit;
  }

  values() {
    return readTrajectory(this.engine.task, this.problem, this.tokens);
  }
}
