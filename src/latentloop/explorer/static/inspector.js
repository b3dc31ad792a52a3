// Why: the reasons of one value in words, with a mark for each that the oracle has checked.
"use strict";

// How clearly something arrived: the margin of a read-out, or how much farther the next value's vector is.
function clearness({ margin, times }) {
  if (times === undefined) return `margin ${margin.toFixed(1)}`;
  return `any other value is ${times < 100 ? times.toFixed(1) : "over 100"} times as far`;
}

class Inspector {
  constructor(app) {
    this.app = app;
    this.panel = byId("why-panel");
    this.asked = "";
    this.shown = null;
  }

  draw() {
    const { app } = this;
    if (this.panel.hidden) return;
    const key = [
      app.selected,
      app.iteration,
      app.pane,
      app.main.id,
      app.main.last > app.iteration || app.main.halt,
    ].join("/");
    if (key === this.asked) return;
    this.asked = key;
    this.update(key);
  }

  async update(key) {
    const { app } = this;
    const node = app.selected;
    if (node === null)
      return this.say(
        html(
          "p",
          { class: "quiet" },
          "Click a node, or a value in the table: this page then says where its operands were looked up, what arrived, and how clearly the result was decided.",
        ),
      );
    const head = this.head(node);
    const iteration = Math.min(app.iteration, app.main.last);
    if (app.main.source.kind === "recorded") return this.say(head, ...this.recorded(node, iteration));
    if (app.main.brokenAt(iteration, node))
      return this.say(
        head,
        html("p", { class: "finding broken" }, `You set this value. Step on to see what the model makes of it.`),
      );
    if (iteration === 0)
      return this.say(
        head,
        html(
          "p",
          { class: "quiet" },
          "Before the first iteration nothing is known: every value is empty. Step on, and ask again.",
        ),
      );
    if (app.main.source.kind === "oracle")
      return this.say(
        head,
        html(
          "p",
          { class: "quiet" },
          "The oracle applies each equation to the values of the iteration before. It has no attention to show.",
        ),
      );
    if (app.main.writes)
      return this.say(
        head,
        html(
          "p",
          { class: "quiet" },
          "A chain of thought carries no state from which this value was decided: its tokens, above the graph, are its reasons.",
        ),
      );
    const why = await app.ask("why", { id: app.main.id, pane: app.pane, node, iteration });
    if (this.asked === key) this.say(head, ...this.reasons(why));
  }

  say(...parts) {
    this.panel.replaceChildren(html("div", { class: "why" }, ...parts));
  }

  head(node) {
    const { app } = this;
    const iteration = Math.min(app.iteration, app.main.last);
    const value = app.main.at(iteration)[node];
    const truth = app.truth === null ? "" : `, true: ${app.truth[node]}`;
    const line = html(
      "p",
      { class: "asked" },
      html("code", {}, app.equation(node)),
      html(
        "span",
        { class: "quiet" },
        `${value === EMPTY ? "empty" : value} after ${app.main.unit} ${iteration}${truth} · depth ${app.depths[node]}`,
      ),
    );
    return html("div", {}, line, app.main.breakable ? this.setter(node) : null);
  }

  setter(node) {
    const { app } = this;
    const now = app.main.at(app.iteration)[node];
    const options = [html("option", { value: EMPTY }, "empty")];
    for (let value = 0; value < app.task.modulus; value++)
      options.push(
        html(
          "option",
          { value, selected: value === (now === EMPTY ? 0 : (now + 1) % app.task.modulus) },
          String(value),
        ),
      );
    const choice = html("select", { id: "set-value", "aria-label": "Value to set" }, options);
    return html(
      "p",
      { class: "setter" },
      html("span", { class: "quiet" }, "Set it to"),
      choice,
      html(
        "button",
        { type: "button", id: "set-button", onclick: () => app.change([[node, Number(choice.value)]]) },
        "Break it",
      ),
    );
  }

  // ---- the reasons of a model that runs here

  reasons(why) {
    const { app } = this;
    const word = (value) => (value === EMPTY ? "empty" : String(value));
    const steps = [];
    for (const { name, held, lookup, arrived } of why.operands) {
      if (lookup) steps.push(this.lookupStep(name, lookup, held === EMPTY));
      if (arrived)
        steps.push(
          this.step(
            arrived.value === held,
            `${word(arrived.value)} arrived for x${name}`,
            `x${name} held ${word(held)} before; ${clearness(arrived)}`,
          ),
        );
    }
    const source = app.problem.nodes[why.node];
    if (why.partial && why.partial.expected !== EMPTY && why.operands.length > 2) {
      const [a, b] = why.operands;
      const operation = app.task.operations[source.operations[0]];
      steps.push(
        this.step(
          why.partial.value === why.partial.expected,
          `${a.held} ${operation} ${b.held} gives ${word(why.partial.value)}, halfway`,
          `modulo ${app.task.modulus}: ${why.partial.expected}; margin ${why.partial.margin.toFixed(1)}`,
        ),
      );
    }
    const sum = why.operands
      .map(({ held }, k) => (k ? `${app.task.operations[source.operations[k - 1]]} ` : "") + word(held))
      .join(" ");
    const entry = why.operands.length ? `${sum} gives ${word(why.value)}` : `${word(why.value)}, as written`;
    const detail = `the table has ${word(why.expected)}; probability ${percent(why.probability)}, margin ${why.margin.toFixed(1)} to ${word(why.next)}`;
    steps.push(this.step(why.value === why.expected, entry, detail));
    return [this.finding(why), html("ol", {}, steps), this.heat(why), this.heads(why)];
  }

  finding(why) {
    const { app } = this;
    const right = why.value === app.truth[why.node];
    const sound = why.value === why.expected;
    const lookups = why.operands.every(({ lookup, held }) => !lookup || lookup.right || held === EMPTY);
    const arrived = why.operands.every(({ arrived, held }) => !arrived || arrived.value === held);
    const reasons =
      lookups &&
      arrived &&
      (!why.partial ||
        why.partial.expected === EMPTY ||
        why.operands.length < 3 ||
        why.partial.value === why.partial.expected);
    if (right && sound && reasons) return html("p", { class: "finding good" }, "Right, and for the right reason.");
    if (right && sound)
      return html(
        "p",
        { class: "finding" },
        lookups ? "Right, though not every step can be read off." : "Right, though a look-up was not clear.",
      );
    if (right) return html("p", { class: "finding" }, "Right by chance: its operands give something else.");
    if (sound && why.value === EMPTY)
      return html("p", { class: "finding" }, "Empty, as it should be: an operand is not known yet.");
    if (sound) return html("p", { class: "finding" }, "Wrong only because an operand was: the step itself is right.");
    const culprit = why.operands.find(({ lookup }) => lookup && !lookup.right);
    return html(
      "p",
      { class: "finding bad" },
      culprit
        ? `Wrong: the look-up of x${culprit.name} went astray.`
        : arrived
          ? "Wrong: the operands arrived, and the arithmetic failed."
          : "Wrong: an operand did not arrive.",
    );
  }

  step(good, text, detail) {
    const kind = good === null ? "none" : good ? "good" : "bad";
    return html(
      "li",
      {},
      html(
        "span",
        {
          class: `sign ${kind}`,
          role: "img",
          "aria-label": { good: "right", bad: "wrong", none: "not checked" }[kind],
        },
        { good: "✓", bad: "×", none: "·" }[kind],
      ),
      html("div", {}, text, html("div", { class: "quiet" }, detail)),
    );
  }

  lookupStep(name, { layer, head, weight, rival, found, right }, unknown) {
    const other = rival ? `, the best wrong one (x${rival.name}'s) ${percent(rival.weight)}` : "";
    const detail = `its definition got ${percent(weight)} of the attention${other}; layer ${layer + 1}, head ${head + 1}`;
    const text = unknown ? `x${name} is still empty` : `x${name} was looked up at ${right ? "its definition" : found}`;
    const item = this.step(unknown ? null : right, text, detail);
    const bar = html("div", { class: "bar" }, html("i"), html("i", { class: "rival" }));
    bar.children[0].style.width = `${100 * weight}%`;
    bar.children[1].style.width = `${100 * (rival?.weight ?? 0)}%`;
    item.lastChild.insertBefore(bar, item.lastChild.lastChild);
    return item;
  }

  // The distribution over values at each iteration: a column each, darker is likelier.
  heat(why) {
    const { app } = this;
    const columns = why.history.map((kept, k) => kept ?? (k === why.iteration - 1 ? why.probabilities : null));
    const rows = app.task.modulus + 1;
    const shown = columns.slice(0, app.main.last);
    const cells = [];
    shown.forEach((kept, k) =>
      kept?.forEach((probability, symbol) => {
        const row = symbol < app.task.modulus ? symbol : rows - 1;
        if (probability > 0.004 && symbol !== app.task.modulus)
          cells.push(
            svg("rect", { x: k, y: row, width: 0.92, height: 0.9, opacity: Math.max(0.12, probability).toFixed(3) }),
          );
      }),
    );
    const width = Math.max(shown.length, 1);
    if (app.truth)
      cells.push(
        svg("rect", {
          class: "truth",
          x: 0.02,
          y: app.truth[why.node],
          width: Math.max(shown.length - 0.06, 0.9),
          height: 0.9,
        }),
      );
    cells.push(svg("rect", { class: "now", x: why.iteration - 1, y: 0, width: 0.92, height: rows }));
    const picture = svg(
      "svg",
      {
        class: "heat",
        viewBox: `0 0 ${width} ${rows}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `Distribution over values at each iteration; now ${percent(why.probability)} for ${why.value === EMPTY ? "empty" : why.value}`,
      },
      cells,
    );
    picture.style.height = "150px";
    return html(
      "div",
      {},
      html("h3", {}, "Distribution over values, iteration by iteration"),
      html(
        "div",
        { class: "axis" },
        html("span", {}, "0 at the top, empty at the bottom"),
        html("span", {}, app.truth ? `outlined: the true one, ${app.truth[why.node]}` : ""),
      ),
      picture,
      html(
        "div",
        { class: "axis" },
        html("span", {}, "iteration 1"),
        html("span", {}, shown.length > 1 ? String(shown.length) : ""),
      ),
    );
  }

  heads({ heads: { labels, heads } }) {
    const level = (weight) => (weight > 0.6 ? "l3" : weight > 0.25 ? "l2" : weight > 0.05 ? "l1" : "l0");
    const cell = (weight, title = "") =>
      html(
        "td",
        { class: level(weight), title: title || percent(weight) },
        html("span", {}, weight > 0.05 ? String(Math.round(100 * weight)) : ""),
      );
    const rows = heads.map((head) =>
      html(
        "tr",
        {},
        html("th", { scope: "row" }, `${head.layer + 1}.${head.head + 1}`),
        ...head.inside.map((weight) => cell(weight)),
        cell(head.elsewhere, head.strongest ? `elsewhere, most at ${head.strongest}` : "elsewhere"),
        cell(head.sink ?? 0, "the attention sink"),
      ),
    );
    const sink = heads.some(({ sink }) => sink !== null);
    return html(
      "div",
      {},
      html("h3", {}, "Every head's attention from this token, in %"),
      html(
        "table",
        { class: "heads" },
        html(
          "thead",
          {},
          html(
            "tr",
            {},
            html("th", { scope: "col" }, "head"),
            ...labels.map((label) => html("th", { scope: "col", class: "mono" }, label)),
            html("th", { scope: "col" }, "other"),
            html("th", { scope: "col" }, sink ? "sink" : ""),
          ),
        ),
        html("tbody", {}, rows),
      ),
    );
  }

  // ---- what a recorded run says

  recorded(node, iteration) {
    const { document } = this.app.main.source;
    const parts = [];
    const margin = document.margins?.[iteration - 1]?.[node];
    if (typeof margin === "number") parts.push(html("p", {}, `Decided with a margin of ${margin.toFixed(2)}.`));
    const { operands, parents } = document.nodes[node];
    for (const { layer, head, queries, top } of document.attention ?? []) {
      (operands ?? []).forEach((place, k) => {
        const found = top[iteration - 1]?.[queries.indexOf(place)]?.[0];
        if (!found) return;
        const right = parents?.[k] === undefined ? null : document.nodes[parents[k]].position === found[0];
        parts.push(
          html(
            "ol",
            {},
            this.step(
              right,
              `${document.tokens?.[place] ?? `position ${place}`} was looked up at position ${found[0]} (${document.tokens?.[found[0]] ?? ""})`,
              `with ${percent(found[1])} of the attention (layer ${layer + 1}, head ${head + 1})`,
            ),
          ),
        );
      });
    }
    return parts.length
      ? parts
      : [html("p", { class: "quiet" }, "This run was recorded without reasons for this value.")];
  }
}
