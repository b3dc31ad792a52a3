// What runs in the worker: runs of models, one iteration at a time so that messages get through, and the search for failures.
"use strict";

const REPORT_EVERY = 150; // milliseconds between reports of a search

class Kernel {
  constructor(post) {
    this.post = post;
    this.descriptions = [];
    this.engines = [];
    this.runs = new Map();
    this.search = null;
    this.waiting = false;
  }

  receive(message) {
    try {
      this[`on_${message.type}`](message);
    } catch (error) {
      this.post({ type: "failed", id: message.id, pane: message.pane, message: error.message });
    }
  }

  on_models({ models }) {
    this.descriptions = models;
  }

  engine(number) {
    if (!this.engines[number]) {
      const { bytes, ...description } = this.descriptions[number];
      const tensors = readTensors(description.tensors, bytes);
      this.engines[number] = new Engine({ ...description, tensors, task: makeTask(description.task) });
    }
    return this.engines[number];
  }

  on_run({ id, pane, model, problem, changes, cap }) {
    const run = new Run(this.engine(model), problem, changes, cap);
    this.runs.set(pane, { id, run });
    this.post({ type: "state", id, pane, iteration: 0, values: run.values[0] });
    this.pump();
  }

  on_drop({ pane }) {
    this.runs.delete(pane);
  }

  on_why({ id, request, pane, node, iteration }) {
    const { run } = this.runs.get(pane);
    this.post({ type: "why", id, request, pane, why: explain(run, node, iteration) });
  }

  on_trace({ id, request, pane }) {
    const { run } = this.runs.get(pane);
    this.post({ type: "trace", id, request, pane, trace: fullTrace(run) });
  }

  on_search({ id, model, settings, seed }) {
    this.search = {
      id,
      engine: this.engine(model),
      task: this.engine(0).task, // problems are the page's: the model that is asked may have another language
      settings,
      seed: BigInt(seed),
      tried: 0,
      started: Date.now(),
      told: Date.now(),
      run: null,
    };
    this.pump();
  }

  on_stop() {
    if (this.search) this.report(this.search, null);
    this.search = null;
  }

  pump() {
    if (this.waiting) return;
    const going = [...this.runs.entries()].filter(([, { run }]) => !run.halt);
    if (!going.length && !this.search) return;
    this.waiting = true;
    setTimeout(() => {
      this.waiting = false;
      for (const [pane, job] of going) if (this.runs.get(pane) === job) this.advance(pane, job);
      if (!going.length && this.search) this.searchOn(this.search);
      this.pump();
    }, 0);
  }

  advance(pane, { id, run }) {
    try {
      run.step();
    } catch (error) {
      run.halt = { reason: "failed", at: run.iteration };
      this.post({ type: "failed", id, pane, message: error.message });
      return;
    }
    const written = run.writer ? run.writer.flat.spell(run.writer.tokens.at(-1)) : null;
    const margins = run.margins.at(-1) ?? null;
    this.post({
      type: "state",
      id,
      pane,
      iteration: run.iteration,
      values: run.values.at(-1),
      margins,
      written,
      halt: run.halt,
    });
  }

  // A search ends with what stops it: a problem too long for absolute positions, or in another language.
  searchOn(search) {
    try {
      this.tryAnother(search);
    } catch (error) {
      this.search = null;
      this.report(search, null, error.message);
    }
  }

  // A few milliseconds of the search: sample, solve, compare with the oracle.
  tryAnother(search) {
    const end = Date.now() + 40;
    const { engine, task } = search;
    do {
      if (search.run === null) {
        search.problem = sampleProblem(task, { ...search.settings, seed: search.seed });
        search.run = new Run(engine, translate(search.problem, task, engine.task));
      }
      search.run.step();
      if (search.run.halt) {
        search.tried += 1;
        const truth = solveProblem(task, search.problem).values;
        if (search.run.values.at(-1).some((value, node) => value !== truth[node])) {
          this.report(search, search.problem);
          this.search = null;
          return;
        }
        search.run = null;
        search.seed += 1n;
      }
    } while (Date.now() < end);
    if (Date.now() - search.told > REPORT_EVERY) this.report(search, undefined);
  }

  report(search, found, error = null) {
    search.told = Date.now();
    const seconds = (search.told - search.started) / 1000;
    this.post({
      type: "search",
      id: search.id,
      tried: search.tried,
      seconds,
      seed: String(search.seed),
      found,
      error,
      over: found !== undefined,
    });
  }
}
