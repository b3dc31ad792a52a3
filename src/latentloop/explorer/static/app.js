// The state of the page, and everything that can be done to it. Views read from here, and never write.
"use strict";

const STEP_MILLISECONDS = 800;

class App {
  constructor(models, opening, schema) {
    Object.assign(this, { models, schema, opening });
    this.task = makeTask(models[0].task);
    this.panes = [];
    this.changes = [];
    this.iteration = 0;
    this.selected = null;
    this.pane = 0;
    this.playing = false;
    this.speed = 1;
    this.views = [];
    this.timer = null;
    this.pending = false;
    this.answers = new Map();
    this.requests = 0;
  }

  // ---- the worker, or, where there is none, the same program in the page itself

  connect(program) {
    const described = this.models.map(({ data, ...description }) => ({ ...description, bytes: bytesOf(data).buffer }));
    const unheard = [{ type: "models", models: described }]; // sent before the worker has said anything
    const withoutWorker = () => {
      const kernel = new Kernel((message) => setTimeout(() => this.receive(message), 0));
      this.send = (message) => kernel.receive(message);
      this.notice("This browser runs no workers here: the page computes by itself, and large problems make it wait.");
      unheard.forEach(this.send);
    };
    try {
      const worker = new Worker(URL.createObjectURL(new Blob([program], { type: "text/javascript" })));
      let alive = false;
      worker.onmessage = ({ data }) => {
        alive = true;
        unheard.length = 0;
        this.receive(data);
      };
      worker.onerror = () => (alive ? this.notice("The worker failed: reload the page.") : withoutWorker());
      this.send = (message) => {
        if (!alive) unheard.push(message);
        worker.postMessage(message);
      };
      worker.postMessage(unheard[0]);
    } catch {
      withoutWorker();
    }
  }

  receive(message) {
    if (message.type === "search") return this.onSearch?.(message);
    const pane = this.panes[message.pane];
    if (message.type === "failed") {
      if (pane && message.id === pane.id) pane.error = message.message;
      else this.notice(message.message);
    } else if (message.type === "state") {
      pane?.receive(message);
    } else if (message.type === "why" || message.type === "trace") {
      this.answers.get(message.request)?.(message);
      this.answers.delete(message.request);
    }
    this.refresh();
  }

  // Ask the worker for something that has one answer.
  ask(type, message) {
    const request = (this.requests += 1);
    return new Promise((resolve) => {
      this.answers.set(request, (answer) => resolve(answer[type]));
      this.send({ type, request, ...message });
    });
  }

  notice(text) {
    const line = byId("notice");
    line.hidden = !text;
    setText(line, text ?? "");
  }

  // ---- the problem

  setProblem(problem, { changes = [], keepText = false } = {}) {
    this.problem = problem;
    const solved = problem.depths
      ? { values: problem.truth, depths: problem.depths }
      : solveProblem(this.task, problem);
    this.truth = solved.values;
    this.depths = solved.depths;
    this.depth = solved.depths.reduce((a, b) => Math.max(a, b), 0);
    this.changes = changes;
    this.selected = null;
    this.iteration = 0;
    if (!keepText) this.onProblem?.(problem);
    this.restart();
  }

  restart() {
    this.panes.forEach((pane) => pane.start());
    this.refresh();
  }

  setPanes(sources) {
    this.panes.slice(sources.length).forEach((pane) => this.send({ type: "drop", pane: pane.number }));
    this.panes = sources.map((source, number) => {
      const pane = this.panes[number] ?? new Pane(this, number);
      pane.source = source;
      return pane;
    });
    this.pane = Math.min(this.pane, sources.length - 1);
    byId("panes").replaceChildren(...this.panes.map(({ element }) => element));
  }

  get main() {
    return this.panes[this.pane];
  }

  // ---- the moment

  get last() {
    return this.panes.reduce((last, pane) => Math.max(last, pane.last), 0);
  }

  get computing() {
    return this.panes.some((pane) => !pane.halt && !pane.error);
  }

  go(iteration, { playing = false } = {}) {
    if (!playing) this.pause();
    this.iteration = Math.max(0, Math.min(iteration, this.last));
    this.refresh();
    if (!playing) this.announce();
  }

  play() {
    if (this.iteration >= this.last && !this.computing) this.iteration = 0;
    this.playing = true;
    this.tick();
    this.refresh();
  }

  pause() {
    this.playing = false;
    clearTimeout(this.timer);
  }

  toggle() {
    if (this.playing) this.pause();
    else return this.play();
    this.refresh();
    this.announce();
  }

  tick() {
    clearTimeout(this.timer);
    this.timer = setTimeout(
      () => {
        if (!this.playing) return;
        if (this.wanted !== undefined) return this.tick();
        if (this.iteration < this.last) this.go(this.iteration + 1, { playing: true });
        if (this.iteration >= this.last && !this.computing) {
          this.pause();
          this.refresh();
          this.announce();
          return;
        }
        this.tick();
      },
      (this.panes.some((pane) => pane.writes) ? 0.2 : 1) * (STEP_MILLISECONDS / this.speed),
    );
  }

  announce() {
    const { right, wrong, empty } = this.main.counts(this.iteration);
    const { unit } = this.main;
    const moment = `${unit[0].toUpperCase()}${unit.slice(1)} ${this.iteration}`;
    setText(byId("announce"), `${moment}: ${right} right, ${wrong} wrong, ${empty} empty.`);
  }

  select(node, pane = this.pane) {
    this.selected = node;
    this.pane = pane;
    if (node !== null) this.onSelected?.(node);
    this.refresh();
  }

  // ---- breaking

  isChanged(iteration, node) {
    return this.changes.some(({ at, values }) => at === iteration && values.some(([changed]) => changed === node));
  }

  // Overwrite values at this iteration, and go on from there: what came after is computed anew.
  change(values) {
    const at = Math.min(this.iteration, this.main.last);
    const here = new Map(this.changes.find((change) => change.at === at)?.values ?? []);
    for (const [node, value] of values) here.set(node, value);
    this.changes = [...this.changes.filter((change) => change.at < at), { at, values: [...here] }];
    this.restartAt(at);
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.play();
  }

  undo() {
    this.changes = this.changes.slice(0, -1);
    this.restartAt(this.changes.at(-1)?.at ?? 0);
  }

  // Go back to an iteration as soon as it has been computed again.
  restartAt(iteration) {
    this.pause();
    this.restart();
    this.wanted = iteration;
    this.refresh();
  }

  // Wrong values for a share of all nodes, chosen at random: one at least.
  corrupt(share) {
    const count = Math.max(1, Math.round(share * this.problem.nodes.length));
    const nodes = Array.from(this.problem.nodes.keys());
    for (let k = 0; k < count; k++) {
      const pick = k + Math.floor(Math.random() * (nodes.length - k));
      [nodes[k], nodes[pick]] = [nodes[pick], nodes[k]];
    }
    this.change(nodes.slice(0, count).map((node) => [node, this.wrongValue(node)]));
  }

  wrongValue(node) {
    const shift = 1 + Math.floor(Math.random() * (this.task.modulus - 1));
    return (this.truth[node] + shift) % this.task.modulus;
  }

  // How the last break went: iterations until all values were right again, or null.
  repair(pane = this.main) {
    const change = this.changes.at(-1);
    if (!change || !pane.breakable || pane.last < change.at) return null;
    for (let at = change.at; at <= pane.last; at++)
      if (pane.values[at].every((value, node) => value === this.truth[node]))
        return { ...change, healed: at - change.at };
    return { ...change, healed: null, over: Boolean(pane.halt) };
  }

  // ---- drawing: once per frame at most

  refresh() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (this.wanted !== undefined && (this.last >= this.wanted || !this.computing)) {
        this.iteration = Math.min(this.wanted, this.last);
        this.wanted = undefined;
      }
      if (!this.main || !this.main.values.length) return;
      this.panes.forEach((pane) => pane.draw());
      this.views.forEach((view) => view());
    });
  }
}
