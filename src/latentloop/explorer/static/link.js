// The problem and the moment in the address, so that a link leads back here. A broken link is told, and passed over.
"use strict";

const LONGEST_LINK = 400_000;

function linkOf(app) {
  const parts = new URLSearchParams();
  if (app.problem.labels) return "";
  parts.set("p", problemText(app.task, app.problem, ";").replaceAll(" ", ""));
  parts.set("t", String(app.iteration));
  if (app.selected !== null) parts.set("s", labelOf(app.problem, app.selected));
  if (app.changes.length)
    parts.set(
      "b",
      app.changes
        .map(
          ({ at, values }) =>
            `${at}:${values.map(([node, value]) => `${app.problem.nodes[node].name}=${value === EMPTY ? "" : value}`).join(",")}`,
        )
        .join(";"),
    );
  const second = app.panes[1]?.source;
  if (second && second.kind !== "recorded") parts.set("c", second.kind === "model" ? `m${second.model}` : "oracle");
  if (!second && app.models.length > 1) parts.set("c", "none");
  return `#${parts}`;
}

// Read what a link says; throws an Error of one line for what makes no sense.
function readLink(hash, app) {
  if (hash.length > LONGEST_LINK) throw new Error("it is too long");
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  if (!parts.has("p")) throw new Error("it has no problem");
  const problem = parseProblem(parts.get("p"), app.task);
  const byName = new Map(problem.nodes.map(({ name }, node) => [name, node]));
  const whole = (text, most, what) => {
    if (!/^[0-9]{1,6}$/.test(text) || Number(text) > most)
      throw new Error(`${what} must be 0 to ${most}, got ${quoted(text)}`);
    return Number(text);
  };
  const named = (text) => {
    const node = byName.get(whole(text.replace(/^x/, ""), app.task.names - 1, "a name"));
    if (node === undefined) throw new Error(`x${text.replace(/^x/, "")} is no variable of its problem`);
    return node;
  };
  const iteration = parts.has("t") ? whole(parts.get("t"), 100_000, "the iteration") : 0;
  const selected = parts.has("s") ? named(parts.get("s")) : null;
  const changes = (parts.get("b") ?? "")
    .split(";")
    .filter(Boolean)
    .map((change) => {
      const [at, list = ""] = change.split(":");
      return {
        at: whole(at, 10_000, "an iteration"),
        values: list
          .split(",")
          .filter(Boolean)
          .map((pair) => {
            const [name, value = ""] = pair.split("=");
            return [named(name), value === "" ? EMPTY : whole(value, app.task.modulus - 1, "a value")];
          }),
      };
    });
  const compare = parts.get("c");
  const known = compare === null || ["oracle", "none"].includes(compare) || /^m[0-9]$/.test(compare);
  if (!known || (compare?.[0] === "m" && !app.models[Number(compare[1])]))
    throw new Error(`it compares with ${quoted(compare)}, which this page does not have`);
  return { problem, iteration, selected, changes: changes.sort((a, b) => a.at - b.at), compare };
}
