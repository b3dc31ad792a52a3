// Linear algebra on typed arrays: rows of a matrix stand one after the other. Sums are in double precision.
"use strict";

// y[row] = W x[row] + bias for the given rows; W is [outputs, inputs], of which `from` .. `to` are computed.
// Four rows and two outputs at a time: numbers that were loaded once are used several times.
function linear(y, x, rows, weight, bias, inputs, from = 0, to = weight.length / inputs) {
  const outputs = to - from;
  const count = rows.length;
  let at = 0;
  for (; at + 4 <= count; at += 4) {
    const a = rows[at] * inputs;
    const b = rows[at + 1] * inputs;
    const c = rows[at + 2] * inputs;
    const d = rows[at + 3] * inputs;
    const ya = rows[at] * outputs - from;
    const yb = rows[at + 1] * outputs - from;
    const yc = rows[at + 2] * outputs - from;
    const yd = rows[at + 3] * outputs - from;
    let o = from;
    for (; o + 2 <= to; o += 2) {
      const w = o * inputs;
      const v = w + inputs;
      let a0 = bias[o],
        b0 = a0,
        c0 = a0,
        d0 = a0;
      let a1 = bias[o + 1],
        b1 = a1,
        c1 = a1,
        d1 = a1;
      for (let i = 0; i < inputs; i++) {
        const w0 = weight[w + i];
        const w1 = weight[v + i];
        const xa = x[a + i];
        const xb = x[b + i];
        const xc = x[c + i];
        const xd = x[d + i];
        a0 += w0 * xa;
        a1 += w1 * xa;
        b0 += w0 * xb;
        b1 += w1 * xb;
        c0 += w0 * xc;
        c1 += w1 * xc;
        d0 += w0 * xd;
        d1 += w1 * xd;
      }
      y[ya + o] = a0;
      y[yb + o] = b0;
      y[yc + o] = c0;
      y[yd + o] = d0;
      y[ya + o + 1] = a1;
      y[yb + o + 1] = b1;
      y[yc + o + 1] = c1;
      y[yd + o + 1] = d1;
    }
    for (; o < to; o++) {
      y[ya + o] = bias[o] + dot(weight, o * inputs, x, a, inputs);
      y[yb + o] = bias[o] + dot(weight, o * inputs, x, b, inputs);
      y[yc + o] = bias[o] + dot(weight, o * inputs, x, c, inputs);
      y[yd + o] = bias[o] + dot(weight, o * inputs, x, d, inputs);
    }
  }
  for (; at < count; at++) {
    const a = rows[at] * inputs;
    const ya = rows[at] * outputs - from;
    for (let o = from; o < to; o++) y[ya + o] = bias[o] + dot(weight, o * inputs, x, a, inputs);
  }
}

function dot(left, a, right, b, size) {
  let even = 0;
  let odd = 0;
  let i = 0;
  for (; i + 2 <= size; i += 2) {
    even += left[a + i] * right[b + i];
    odd += left[a + i + 1] * right[b + i + 1];
  }
  if (i < size) even += left[a + i] * right[b + i];
  return even + odd;
}

// LayerNorm of the given rows.
function layerNorm(y, x, rows, weight, bias, size) {
  for (const row of rows) {
    const start = row * size;
    let mean = 0;
    for (let i = 0; i < size; i++) mean += x[start + i];
    mean /= size;
    let variance = 0;
    for (let i = 0; i < size; i++) variance += (x[start + i] - mean) ** 2;
    const scale = 1 / Math.sqrt(variance / size + 1e-5);
    for (let i = 0; i < size; i++) y[start + i] = (x[start + i] - mean) * scale * weight[i] + bias[i];
  }
}

function argmax(numbers, start, size) {
  let best = start;
  for (let i = start + 1; i < start + size; i++) if (numbers[i] > numbers[best]) best = i;
  return best - start;
}

function softmax(numbers) {
  const top = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
  const weights = Float64Array.from(numbers, (number) => Math.exp(number - top));
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight) => weight / total);
}

function range(from, to) {
  return Int32Array.from({ length: Math.max(to - from, 0) }, (_, place) => from + place);
}

// ---- weights as they are inlined

const HALVES = { table: null };

// All 65,536 numbers of half precision.
function halfTable() {
  if (HALVES.table === null) {
    HALVES.table = Float32Array.from({ length: 65536 }, (_, bits) => {
      const sign = bits & 0x8000 ? -1 : 1;
      const exponent = (bits >> 10) & 31;
      const fraction = bits & 1023;
      if (exponent === 31) return fraction ? NaN : sign * Infinity;
      return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -24 * fraction;
    });
  }
  return HALVES.table;
}

function readTensors(tensors, bytes) {
  const read = new Map();
  for (const [name, { dtype, offset, shape }] of Object.entries(tensors)) {
    const size = shape.reduce((a, b) => a * b, 1);
    if (dtype === "F16") {
      const table = halfTable();
      read.set(
        name,
        Float32Array.from(new Uint16Array(bytes, offset, size), (bits) => table[bits]),
      );
    } else {
      read.set(name, new Float32Array(bytes.slice(offset, offset + 4 * size)));
    }
  }
  return read;
}
