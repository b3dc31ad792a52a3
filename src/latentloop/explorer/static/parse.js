// Problems as people write them; the messages are those of `latentloop solve`, with the line each belongs to.
"use strict";

const MAX_CHARACTERS = 64 * MAX_NODES;
const MAX_FAN_IN = 3;
const NAME = /^x(0|[1-9][0-9]*)$/;
const NUMBER = /^-?[0-9]+$/;
const LINE_ENDS = /\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]/;
const PYTHON_SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const AROUND = new RegExp(`^${PYTHON_SPACE}+|${PYTHON_SPACE}+$`, "g");

class ProblemError extends Error {
  constructor(message, line = null) {
    super(message);
    this.line = line;
  }
}

// Read one problem; its equations are sorted into generations.
function parseProblem(text, task) {
  const length = text.length > 2 * MAX_CHARACTERS ? text.length : [...text].length;
  if (length > MAX_CHARACTERS)
    throw new ProblemError(`the text has ${length} characters, more than the ${MAX_CHARACTERS} a problem may have`);
  const equations = [];
  text.split(LINE_ENDS).forEach((content, line) => {
    for (const part of content.split("#", 1)[0].split(";")) {
      const source = part.replace(AROUND, "");
      if (source) equations.push({ number: equations.length + 1, source, line });
    }
  });
  if (equations.length === 0)
    throw new ProblemError("the problem is empty: write equations such as '20 = x7 ; 2 = x42 ; x7 + x42 = x23'", 0);
  if (equations.length > MAX_NODES)
    throw new ProblemError(`the problem has ${equations.length} equations, and ${MAX_NODES} is the limit`);
  for (const equation of equations) readEquation(equation, task);
  return arrange(equations);
}

// A problem of one model for another one, which numbers its operations in its own way and may know fewer names.
function translate(problem, from, to) {
  if (from === to) return problem;
  if (from.modulus !== to.modulus)
    throw new ProblemError(`it computes modulo ${to.modulus}, and the problem is one modulo ${from.modulus}`);
  return parseProblem(problemText(from, problem), to);
}

function fail(equation, message) {
  return new ProblemError(`equation ${equation.number} (${quoted(equation.source, 60)}): ${message}`, equation.line);
}

// Python's repr of a string, in so many characters at most.
function quoted(text, most = 20) {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const named = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", [mark]: `\\${mark}` };
  const escaped = Array.from(text, (character) => {
    if (named[character]) return named[character];
    if (character === " " || !/[\p{C}\p{Z}]/u.test(character)) return character;
    const code = character.codePointAt(0);
    const digits = code < 256 ? 2 : code < 65536 ? 4 : 8;
    return `\\${{ 2: "x", 4: "u", 8: "U" }[digits]}${code.toString(16).padStart(digits, "0")}`;
  }).join("");
  const whole = [...`${mark}${escaped}${mark}`];
  return whole.length <= most + 2 ? whole.join("") : `${whole.slice(0, most - 3).join("")}...${mark}`;
}

function readEquation(equation, task) {
  const { source } = equation;
  const sides = source.split(/->|=/);
  if (sides.length !== 2)
    throw fail(equation, `expected one '=' or '->' between expression and variable, found ${sides.length - 1}`);
  const [left, right] = sides.map((side) => side.match(/[A-Za-z0-9_]+|[^A-Za-z0-9_ \t\n\r\f\v]+/gu) ?? []);
  if (!left.length || !right.length)
    throw fail(equation, `nothing stands on the ${left.length ? "right" : "left"} of the '='`);
  if (NUMBER.test(right.join("")) || (right.length > 1 && left.length === 1 && NAME.test(left[0])))
    throw fail(equation, "the variable stands on the right: write '20 = x7', not 'x7 = 20'");
  if (/[()[\]{}]/.test(source)) throw fail(equation, "there are no brackets: operations apply from left to right");
  if (right.length !== 1) throw fail(equation, `expected one variable on the right, got ${quoted(right.join(" "))}`);
  equation.target = readName(equation, right[0], task);
  equation.operands = [];
  equation.operations = [];
  equation.value = EMPTY;

  const literal = left.join("");
  if (NUMBER.test(left.at(-1)) && (left.length === 1 || (left.length === 2 && left[0] === "-"))) {
    if (literal.length > 9 || Number(literal) < 0 || Number(literal) >= task.modulus)
      throw fail(equation, `the value must be 0 to ${task.modulus - 1}, got ${literal.slice(0, 20)}`);
    equation.value = Number(literal);
    return;
  }
  const operands = left.filter((_, place) => place % 2 === 0);
  const operations = left.filter((_, place) => place % 2 === 1);
  if (isOperator(operands[0], task))
    throw fail(equation, `the expression begins with ${quoted(operands[0])}: expected a variable`);
  for (const operation of operations) {
    if (task.operations.includes(operation === "×" ? "*" : operation)) continue;
    const wrong = /^[\p{L}\p{N}_]/u.test(operation) ? "an operator is missing before" : "unknown operator";
    throw fail(equation, `${wrong} ${quoted(operation)}: use one of ${task.operations.join(" ")}`);
  }
  if (operands.length === operations.length)
    throw fail(equation, `nothing stands after the last ${quoted(operations.at(-1))}`);
  if (operands.length > MAX_FAN_IN)
    throw fail(equation, `at most ${MAX_FAN_IN} operands are allowed, got ${operands.length}`);
  equation.operands = operands.map((word) => readName(equation, word, task));
  equation.operations = operations.map((word) => task.operations.indexOf(word === "×" ? "*" : word));
}

function isOperator(word, task) {
  return word === "×" || task.all_operations.includes(word);
}

function readName(equation, word, task) {
  if (NAME.test(word) && word.length < 9 && Number(word.slice(1)) < task.names) return Number(word.slice(1));
  if (isOperator(word, task)) throw fail(equation, `expected a variable, got the operator '${word}'`);
  if (NUMBER.test(word))
    throw fail(
      equation,
      `a number stands alone on its left-hand side: give ${word.slice(0, 20)} a variable of its own`,
    );
  throw fail(equation, `the name ${quoted(word)} is not one of x0 .. x${task.names - 1}`);
}

// Check equations against each other and sort them into generations.
function arrange(equations) {
  const defined = new Map();
  for (const equation of equations) {
    const earlier = defined.get(equation.target);
    if (earlier) throw fail(equation, `x${equation.target} is defined twice, first by equation ${earlier.number}`);
    defined.set(equation.target, equation);
  }
  for (const equation of equations)
    for (const operand of equation.operands)
      if (!defined.has(operand))
        throw fail(equation, `x${operand} is not defined: add an equation with 'x${operand}' on its right`);
  const depths = findDepths(defined);
  const ordered = [...equations].sort((a, b) => depths.get(a.target) - depths.get(b.target));
  const place = new Map(ordered.map((equation, node) => [equation.target, node]));
  return {
    nodes: ordered.map((equation) => ({
      name: equation.target,
      parents: equation.operands.map((operand) => place.get(operand)),
      operations: equation.operations,
      constant: equation.value,
      line: equation.line,
    })),
  };
}

// Peel off what depends on nothing left; what cannot be peeled holds a cycle.
function findDepths(defined) {
  const waiting = new Map();
  const users = new Map([...defined.keys()].map((name) => [name, []]));
  for (const [name, equation] of defined) {
    const operands = new Set(equation.operands);
    waiting.set(name, operands.size);
    for (const operand of operands) users.get(operand).push(name);
  }
  const depths = new Map();
  let layer = [...defined.keys()].filter((name) => waiting.get(name) === 0);
  for (let depth = 1; layer.length; depth++) {
    const following = [];
    for (const name of layer) {
      depths.set(name, depth);
      for (const user of users.get(name)) {
        waiting.set(user, waiting.get(user) - 1);
        if (waiting.get(user) === 0) following.push(user);
      }
    }
    layer = following;
  }
  if (depths.size < defined.size) throw cycleError(defined, depths);
  return depths;
}

function cycleError(defined, known) {
  const path = [[...defined.keys()].find((name) => !known.has(name))];
  const seen = new Set(path);
  for (;;) {
    const following = defined.get(path.at(-1)).operands.find((operand) => !known.has(operand));
    path.push(following);
    if (seen.has(following)) break;
    seen.add(following);
  }
  const loop = path
    .slice(path.indexOf(path.at(-1)))
    .reverse()
    .map((name) => `x${name}`);
  const shown = loop.length <= 12 ? loop : [...loop.slice(0, 6), `... ${loop.length - 11} more ...`, ...loop.slice(-5)];
  return fail(defined.get(path.at(-1)), `the equations form a cycle: ${shown.join(" -> ")}`);
}
