// A pane: who solves the problem (a model, the oracle, or a recorded run), the states so far, and its graph.
"use strict";

class Pane {
  constructor(app, number) {
    Object.assign(this, { app, number, source: null, id: 0 });
    this.caption = html("p", { class: "caption" });
    this.written = html("div", { class: "written mono", hidden: true, "aria-label": "The chain of thought so far" });
    this.graph = new GraphView((node) => app.select(node, this.number));
    this.graph.onRebuilt = () => this.draw();
    this.element = html("div", { class: "pane" }, this.caption, this.written, this.graph.element);
  }

  get description() {
    return this.source.kind === "model" ? this.app.models[this.source.model] : null;
  }

  get title() {
    return {
      model: () => this.description.title,
      oracle: () => "layer by layer (oracle)",
      recorded: () => this.source.document.model.name,
    }[this.source.kind]();
  }

  // Whether values can be set by hand: where what is carried is a discrete state.
  get breakable() {
    return this.source.kind === "oracle" || (this.source.kind === "model" && this.description.row.carries === "state");
  }

  get writes() {
    if (this.source.kind === "recorded") return Boolean(this.source.document.written?.length);
    return this.source.kind === "model" && this.description.row.carries === "tokens";
  }

  // What a step of it is.
  get unit() {
    return this.writes ? "token" : "iteration";
  }

  // Begin anew on the app's problem, with its changes.
  start() {
    const { app } = this;
    this.id += 1;
    Object.assign(this, { values: [], margins: [], tokens: [], halt: null, error: null });
    if (this.graph.problem !== app.problem) this.graph.show(app.problem, app.depths);
    if (this.source.kind === "model") this.startModel();
    else if (this.source.kind === "oracle") this.startOracle();
    else this.startRecorded(this.source.document);
    this.draw();
  }

  startModel() {
    const { app, description } = this;
    try {
      const own = translate(app.problem, app.task, this.source.model === 0 ? app.task : makeTask(description.task));
      const changes = this.breakable ? app.changes : [];
      app.send({ type: "run", id: this.id, pane: this.number, model: this.source.model, problem: own, changes });
    } catch (error) {
      this.error = `${this.title} cannot read this problem: ${error.message}`;
      this.values = [new Int16Array(app.problem.nodes.length).fill(EMPTY)];
    }
  }

  startOracle() {
    const { app } = this;
    const changes = new Map(app.changes.map(({ at, values }) => [at, values]));
    const last = app.changes.reduce((latest, { at }) => Math.max(latest, at), 0);
    const overwrite = (state, at) => {
      for (const [node, value] of changes.get(at) ?? []) state[node] = value;
      return state;
    };
    this.values = [overwrite(new Int16Array(app.problem.nodes.length).fill(EMPTY), 0)];
    while (!this.halt) {
      const at = this.values.length;
      this.values.push(overwrite(updateState(app.task, app.problem, this.values.at(-1)), at));
      const same = this.values[at].every((value, node) => value === this.values[at - 1][node]);
      if (same && at > last) this.halt = { reason: "fixpoint", at };
    }
  }

  startRecorded({ states, margins, written, halt }) {
    this.values = states.map((state) => Int16Array.from(state, (value) => value ?? EMPTY));
    this.margins = margins ?? [];
    this.tokens = written ?? [];
    this.halt = halt;
  }

  receive({ id, iteration, values, margins, written, halt }) {
    if (id !== this.id) return;
    this.values[iteration] = values;
    if (margins) this.margins[iteration - 1] = margins;
    if (written !== null && written !== undefined) this.tokens[iteration - 1] = written;
    this.halt = halt ?? null;
  }

  get last() {
    return Math.max(this.values.length - 1, 0);
  }

  at(iteration) {
    return this.values[Math.min(iteration, this.last)];
  }

  // Whether a value was set by hand at an iteration.
  brokenAt(iteration, node) {
    if (this.source.kind === "recorded")
      return (this.source.document.changes ?? []).some(
        ({ at, values }) => at === iteration && values.some(([n]) => n === node),
      );
    return this.breakable && this.app.isChanged(iteration, node);
  }

  // The classes of a value at an iteration.
  kinds(iteration, node) {
    const value = this.at(iteration)[node];
    const { truth } = this.app;
    const kinds = [value === EMPTY ? "empty" : truth === null ? "plain" : value === truth[node] ? "right" : "wrong"];
    if (iteration <= this.last && this.brokenAt(iteration, node)) kinds.push("broken");
    else if (iteration > 0 && iteration <= this.last && this.values[iteration - 1][node] !== value)
      kinds.push("changed");
    return kinds;
  }

  counts(iteration) {
    const { truth } = this.app;
    const counts = { empty: 0, right: 0, wrong: 0 };
    this.at(iteration).forEach(
      (value, node) =>
        (counts[value === EMPTY ? "empty" : truth === null || value === truth[node] ? "right" : "wrong"] += 1),
    );
    return counts;
  }

  draw() {
    const { app } = this;
    if (!this.values.length || this.graph.problem !== app.problem) return;
    const iteration = app.iteration;
    const state = this.at(iteration);
    const looks = Array.from(state, (value, node) => {
      const kinds = this.kinds(iteration, node);
      const said = value === EMPTY ? "empty" : `${value}, ${kinds[0]}`;
      return {
        text: value === EMPTY ? "" : String(value),
        kinds,
        spoken: `${labelOf(app.problem, node)}: ${said}${kinds[1] ? `, ${kinds[1]}` : ""}`,
      };
    });
    this.graph.update(looks, app.selected);
    this.drawCaption();
  }

  drawCaption() {
    const { app } = this;
    if (this.error) {
      this.caption.replaceChildren(html("span", { class: "bad" }, this.error));
      return;
    }
    const counts = this.counts(app.iteration);
    const parts = [
      ["good", counts.right, "right"],
      ["bad", counts.wrong, "wrong"],
      ["", counts.empty, "empty"],
    ]
      .filter(([, count]) => count)
      .map(([kind, count, word], k) => html("span", { class: kind }, `${k ? " · " : ""}${count} ${word}`));
    this.caption.replaceChildren(html("b", {}, this.title), ` · ${this.iterationWords()} · `, ...parts);
    this.written.hidden = !this.tokens.length;
    if (this.tokens.length) {
      setText(this.written, this.tokens.slice(0, app.iteration).join(" "));
      this.written.scrollTop = this.written.scrollHeight;
    }
  }

  iterationWords() {
    const now = Math.min(this.app.iteration, this.last);
    return this.halt && now === this.last ? `stopped after ${plural(this.halt.at, this.unit)}` : `${this.unit} ${now}`;
  }
}
