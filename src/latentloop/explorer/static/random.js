// The random numbers of NumPy: a seed gives the same problem here and in `latentloop sample --seed`.
"use strict";

const MASK64 = (1n << 64n) - 1n;
const MASK128 = (1n << 128n) - 1n;
const PCG_MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;

// NumPy's SeedSequence(seed, spawn_key): entropy and key are hashed into a pool of four words.
function seedWords(seed, key, count) {
  const words = [];
  for (let rest = BigInt(seed); rest > 0n || words.length === 0; rest >>= 32n) words.push(Number(rest & 0xffffffffn));
  while (key.length > 0 && words.length < 4) words.push(0);
  words.push(...key);

  let hash = 0x43b0d7e5;
  const hashed = (value) => {
    value = (value ^ hash) >>> 0;
    hash = Math.imul(hash, 0x931e8875) >>> 0;
    value = Math.imul(value, hash) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  };
  const mixed = (x, y) => {
    const result = (Math.imul(x, 0xca01f9dd) - Math.imul(y, 0x4973f715)) >>> 0;
    return (result ^ (result >>> 16)) >>> 0;
  };
  const pool = [0, 1, 2, 3].map((place) => hashed(words[place] ?? 0));
  for (let from = 0; from < 4; from++)
    for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mixed(pool[to], hashed(pool[from]));
  for (let from = 4; from < words.length; from++)
    for (let to = 0; to < 4; to++) pool[to] = mixed(pool[to], hashed(words[from]));

  let out = 0x8b51f9dd;
  return Array.from({ length: count }, (_, place) => {
    let value = (pool[place % 4] ^ out) >>> 0;
    out = Math.imul(out, 0x58f38ded) >>> 0;
    value = Math.imul(value, out) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  });
}

// PCG64, as numpy.random.default_rng makes it, with the three kinds of numbers that the sampler draws.
class Random {
  constructor(seed, ...key) {
    const words = seedWords(seed, key, 8).map(BigInt);
    const wide = [0, 2, 4, 6].map((place) => words[place] | (words[place + 1] << 32n));
    this.increment = ((((wide[2] << 64n) | wide[3]) << 1n) | 1n) & MASK128;
    this.state = 0n;
    this.step();
    this.state = (this.state + ((wide[0] << 64n) | wide[1])) & MASK128;
    this.step();
    this.half = null;
  }

  step() {
    this.state = (this.state * PCG_MULTIPLIER + this.increment) & MASK128;
  }

  word() {
    if (this.half !== null) {
      const high = this.half;
      this.half = null;
      return high;
    }
    this.step();
    const folded = (this.state >> 64n) ^ (this.state & MASK64);
    const turn = this.state >> 122n;
    const value = ((folded >> turn) | (folded << (64n - turn))) & MASK64;
    this.half = Number(value >> 32n);
    return Number(value & 0xffffffffn);
  }

  // rng.random(count, float32)
  uniform(count) {
    return Float32Array.from({ length: count }, () => (this.word() >>> 8) / 16777216);
  }

  // rng.integers(low, high, count, dtype), high excluded, for dtypes of 8 and 16 bits: Lemire's method on parts of words.
  integers(low, high, count, bits) {
    const room = high - low;
    if (room === 1) return new Array(count).fill(low);
    const parts = 32 / bits;
    const top = 2 ** bits;
    let buffer = 0;
    let left = 0;
    const draw = () => {
      if (left === 0) {
        buffer = this.word();
        left = parts;
      } else {
        buffer = buffer >>> bits;
      }
      left -= 1;
      return (buffer & (top - 1)) * room;
    };
    const threshold = (top - room) % room;
    return Array.from({ length: count }, () => {
      let product = draw();
      while (product % top < threshold) product = draw();
      return low + Math.floor(product / top);
    });
  }
}
