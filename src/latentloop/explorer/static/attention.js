// Causal attention of one layer, for all five encodings: queries at some places, keys and values at all places before.
"use strict";

const NEGLIGIBLE = 25; // exp(-25): four thousand such weights together are below the resolution of single precision
const MOST_TABLED = 4500; // distinct tokens whose scores are kept as a table of pairs

class Attention {
  constructor(engine, layer) {
    const { config, tensors } = engine;
    this.layer = layer;
    this.width = config.model.width;
    this.heads = layer || config.model.first_heads === null ? config.model.heads : config.model.first_heads;
    this.size = this.width / this.heads;
    const name = `layers.${layer}.attention`;
    this.project = { weight: tensors.get(`${name}.project.weight`), bias: tensors.get(`${name}.project.bias`) };
    this.out = { weight: tensors.get(`${name}.out.weight`), bias: tensors.get(`${name}.out.bias`) };
    const positions = config.model.positions;
    this.encoding = positions.name;
    this.sink = this.encoding === "local" && layer === 0;
    this.window = this.encoding === "local" && layer > 0 ? positions.window : Infinity;
    this.scale = ((this.encoding === "deberta" ? 3 : 1) * this.size) ** -0.5;
    if (this.window < Infinity) this.bias = tensors.get(`positions.tables.${layer - 1}`);
    if (this.encoding === "rope") this.base = positions.rope_base;
    if (this.encoding === "deberta") this.prepareDistances(positions, tensors);
  }

  // DeBERTa: vectors of each distance that meet queries (r^K) and keys (r^Q).
  prepareDistances({ window, relative_width: width }, tensors) {
    const rows = range(0, window);
    const table = new Float32Array(window * width);
    layerNorm(
      table,
      tensors.get("positions.table.weight"),
      rows,
      tensors.get("positions.norm.weight"),
      tensors.get("positions.norm.bias"),
      width,
    );
    this.distances = window;
    for (const kind of ["keys", "queries"]) {
      const name = `positions.${kind}.${this.layer}`;
      this[`relative_${kind}`] = new Float32Array(window * this.width);
      linear(this[`relative_${kind}`], table, rows, tensors.get(`${name}.weight`), tensors.get(`${name}.bias`), width);
    }
  }

  // RoPE: rotate each pair of units (i, i + half) of a head by position x rate.
  rotate(x, places) {
    const half = this.size / 2;
    for (const place of places) {
      for (let i = 0; i < half; i++) {
        const angle = place * Math.fround(this.base ** (-i / half));
        const cos = Math.cos(angle);
        const sin = Math.sin(angle);
        for (let head = 0; head < this.heads; head++) {
          const at = place * this.width + head * this.size + i;
          const left = x[at];
          const right = x[at + half];
          x[at] = left * cos - right * sin;
          x[at + half] = left * sin + right * cos;
        }
      }
    }
  }

  // Products of keys with every distance, for one head [place, distance].
  keyDistances(keys, head, places) {
    const product = new Float32Array(places * this.distances);
    for (let place = 0; place < places; place++)
      for (let distance = 0; distance < this.distances; distance++)
        product[place * this.distances + distance] = dot(
          keys,
          place * this.width + head * this.size,
          this.relative_queries,
          distance * this.width + head * this.size,
          this.size,
        );
    return product;
  }

  // Scores of one query with the keys first .. place, for one head; returns the first key. `given` holds queries and keys by
  // place, or by token with an index of which stands where; `pairs` then has the scores of all pairs of tokens.
  scores(scores, given, head, place) {
    const { queries, keys, index, pairs, distances } = given;
    const { width, size, scale } = this;
    const first = Math.max(0, place - this.window + 1);
    const shift = head * size;
    const asked = index ? index[place] : place;
    const start = asked * width + shift;
    if (pairs) {
      const row = pairs[head].row(asked);
      for (let key = first; key <= place; key++) scores[key - first] = row[index[key]];
    } else {
      for (let key = first; key <= place; key++)
        scores[key - first] = scale * dot(queries, start, keys, (index ? index[key] : key) * width + shift, size);
    }
    if (distances) {
      const near = new Float64Array(this.distances);
      for (let d = 0; d < this.distances; d++)
        near[d] = dot(queries, start, this.relative_keys, d * width + shift, size);
      for (let key = first; key <= place; key++) {
        const distance = Math.min(place - key, this.distances - 1);
        scores[key - first] += scale * (near[distance] + distances[head][key * this.distances + distance]);
      }
    }
    if (this.bias)
      for (let key = first; key <= place; key++) scores[key - first] += this.bias[head * this.window + place - key];
    if (this.sink) scores[place - first] = 0; // in place of its own key, a query has an attention sink
    return first;
  }

  // Mixed values z of queries at some places, all heads.
  mix(z, given, places) {
    if (given.index) return this.mixTokens(z, given, places);
    const { values, keys } = given;
    const { width, size } = this;
    const longest = places.reduce((a, b) => Math.max(a, b), 0) + 1;
    const scores = new Float64Array(Math.min(longest, this.window));
    if (this.encoding === "deberta")
      given.distances = range(0, this.heads).reduce(
        (all, head) => [...all, this.keyDistances(keys, head, longest)],
        [],
      );
    for (let head = 0; head < this.heads; head++) {
      const shift = head * size;
      for (const place of places) {
        const first = this.scores(scores, given, head, place);
        const count = place - first + 1;
        let top = scores[0];
        for (let i = 1; i < count; i++) if (scores[i] > top) top = scores[i];
        const least = top - NEGLIGIBLE;
        const to = place * width + shift;
        z.fill(0, to, to + size);
        let total = 0;
        for (let i = 0; i < count; i++) {
          if (scores[i] < least) continue;
          const weight = Math.exp(scores[i] - top);
          total += weight;
          if (this.sink && i === count - 1) continue; // the sink's value is 0
          const from = (first + i) * width + shift;
          for (let k = 0; k < size; k++) z[to + k] += weight * values[from + k];
        }
        for (let k = 0; k < size; k++) z[to + k] /= total;
      }
    }
  }

  // The same where queries, keys and values depend on tokens alone: a token asks the same question wherever it stands, so
  // one pass over the keys gives its sums at all of its places. Weights are relative to the largest score so far.
  mixTokens(z, given, places) {
    const { queries, keys, values, index, pairs } = given;
    const { width, size, scale, sink } = this;
    const placesOf = new Map();
    for (const place of places) {
      if (!placesOf.has(index[place])) placesOf.set(index[place], []);
      placesOf.get(index[place]).push(place);
    }
    const sum = new Float64Array(size);
    for (let head = 0; head < this.heads; head++) {
      const shift = head * size;
      for (const [asked, own] of placesOf) {
        const row = pairs ? pairs[head].row(asked) : null;
        let top = -Infinity;
        let total = 0;
        let key = 0;
        sum.fill(0);
        for (const place of own) {
          for (const end = sink ? place : place + 1; key < end; key++) {
            const from = index[key] * width + shift;
            const score = row ? row[index[key]] : scale * dot(queries, asked * width + shift, keys, from, size);
            if (score < top - NEGLIGIBLE) continue;
            if (score > top) {
              const smaller = Math.exp(top - score);
              total *= smaller;
              for (let k = 0; k < size; k++) sum[k] *= smaller;
              top = score;
            }
            const weight = Math.exp(score - top);
            total += weight;
            for (let k = 0; k < size; k++) sum[k] += weight * values[from + k];
          }
          const highest = sink ? Math.max(top, 0) : top;
          const share = Math.exp(top - highest);
          const all = total * share + (sink ? Math.exp(-highest) : 0);
          for (let k = 0; k < size; k++) z[place * width + shift + k] = (sum[k] * share) / all;
        }
      }
    }
  }

  // What one query attends to, for one head: the first key, and the weights from there on.
  pattern(given, head, place) {
    const scores = new Float64Array(Math.min(place + 1, this.window));
    const first = this.scores(scores, given, head, place);
    return { first, weights: softmax(scores) };
  }
}

// Scores of all pairs of tokens of one head: rows are computed when they are first asked for, and grow with the tokens.
class Pairs {
  constructor(attention, tokens, head) {
    Object.assign(this, { attention, tokens, head, rows: [] });
  }

  row(asked) {
    const { width, size, scale } = this.attention;
    const { queries, keys, count } = this.tokens;
    const known = this.rows[asked] ?? { scores: new Float32Array(0), done: 0 };
    if (known.done < count) {
      if (known.scores.length < count) {
        const grown = new Float32Array(Math.ceil(count * 1.25));
        grown.set(known.scores);
        known.scores = grown;
      }
      const shift = this.head * size;
      const start = asked * width + shift;
      for (let key = known.done; key < count; key++)
        known.scores[key] = scale * dot(queries, start, keys, key * width + shift, size);
      known.done = count;
      this.rows[asked] = known;
    }
    return known.scores;
  }
}
