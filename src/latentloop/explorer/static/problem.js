// The left column: the problem as text with errors at their line, samples, breaking, searching, comparing.
"use strict";

const LINE_HEIGHT = 19;
const MOST_SAMPLED = 2048;

class ProblemView {
  constructor(app) {
    this.app = app;
    this.text = byId("problem");
    this.mirror = byId("mirror");
    this.text.maxLength = MAX_CHARACTERS + 1; // a longer paste is cut off, and refused as too long
    this.text.addEventListener("input", () => this.typed());
    this.text.addEventListener("scroll", () => this.marks(), { passive: true });
    this.error = null;
    app.onProblem = (problem) => this.show(problem);
    this.offerSamples();
    this.listen();
  }

  show(problem) {
    this.text.value = problem.labels ? problem.labels.join("\n") : problemText(this.app.task, problem, "\n");
    this.text.readOnly = Boolean(problem.labels);
    this.lines = problem.nodes.map((_, node) => node);
    this.fault(null);
  }

  typed() {
    clearTimeout(this.waiting);
    const later = this.text.value.length > 20_000 ? 400 : 0;
    this.waiting = setTimeout(() => this.read(), later);
  }

  read() {
    const { app } = this;
    try {
      const problem = parseProblem(this.text.value, app.task);
      this.lines = problem.nodes.map(({ line }) => line);
      this.fault(null);
      app.pause();
      app.setProblem(problem, { keepText: true });
      app.play();
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      this.fault(error);
    }
  }

  fault(error) {
    this.error = error;
    const line = byId("problem-error");
    line.hidden = error === null;
    setText(line, error === null ? "" : `${error.line === null ? "" : `Line ${error.line + 1}: `}${error.message}`);
    this.text.setAttribute("aria-invalid", String(error !== null));
    this.marks();
  }

  // Mark the line of an error, and that of the selected node.
  marks() {
    const mark = (line, kind) => {
      const element = html("div", { class: kind });
      element.style.top = `${8 + line * LINE_HEIGHT - this.text.scrollTop}px`;
      return element;
    };
    const marks = [];
    const { selected } = this.app;
    if (selected !== null && this.lines?.[selected] !== undefined) marks.push(mark(this.lines[selected], "selected"));
    if (this.error?.line !== null && this.error?.line !== undefined) marks.push(mark(this.error.line, "bad"));
    this.mirror.replaceChildren(...marks);
  }

  draw() {
    const { app } = this;
    this.marks();
    setText(
      byId("problem-facts"),
      `${plural(app.problem.nodes.length, "node")}, depth ${app.depth}, mod ${app.problem.modulus ?? app.task.modulus}`,
    );
    const able = app.main.breakable && app.truth !== null;
    for (const button of byId("break-buttons").children) button.disabled = !able;
    byId("unbreak").disabled = !app.changes.length;
    setText(
      byId("break-hint"),
      app.main.breakable
        ? "Make values wrong, now, and watch the repair. Or click a node."
        : `${app.main.title} carries no discrete state: there is nothing to set.`,
    );
    this.drawRepair();
  }

  drawRepair() {
    const { app } = this;
    const line = byId("repair");
    const repair = app.repair();
    line.hidden = repair === null;
    if (!repair) return;
    const broken = `${plural(repair.values.length, "value")} set at iteration ${repair.at}.`;
    const ending =
      repair.healed !== null
        ? `Healed after ${plural(repair.healed, "iteration")}; the depth is ${app.depth}.`
        : repair.over
          ? "Not healed when it stopped."
          : "Repairing …";
    setText(line, `${broken} ${ending}`);
  }

  // ---- samples

  offerSamples() {
    const { task } = this.app;
    const most = Math.min(task.names, MOST_SAMPLED);
    byId("sample-nodes").max = String(most);
    byId("sample-nodes").value = String(Math.min(24, most));
    byId("sample-family").replaceChildren(
      ...task.families.map(({ name, summary }) => html("option", { value: name, title: summary }, name)),
    );
    const names = Object.keys(task.tasks);
    const choices = names.length ? Object.entries(task.tasks) : [["own", task.operations]];
    byId("sample-task").replaceChildren(
      ...choices.map(([name, operations]) =>
        html("option", { value: operations.join(" "), title: name }, operations.join(" ")),
      ),
    );
    byId("sample-task").value = choices.at(-1)[1].join(" ");
  }

  settings() {
    const most = Math.min(this.app.task.names, MOST_SAMPLED);
    const nodes = Math.round(Number(byId("sample-nodes").value));
    if (!(nodes >= 1 && nodes <= most))
      throw new ProblemError(
        `the number of nodes must be 1 to ${most}, got ${byId("sample-nodes").value || "nothing"}`,
      );
    const seed = byId("sample-seed").value.trim();
    if (!/^[0-9]{1,20}$/.test(seed) || BigInt(seed) >= 2n ** 64n)
      throw new ProblemError(`the seed must be a whole number from 0 to 2^64 - 1, got ${quoted(seed)}`);
    return { nodes, family: byId("sample-family").value, operations: byId("sample-task").value.split(" "), seed };
  }

  sample() {
    const { app } = this;
    try {
      const settings = this.settings();
      app.pause();
      app.resetSource();
      app.setProblem(sampleProblem(app.task, settings));
      app.play();
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      this.fault(error);
    }
  }

  next() {
    const seed = byId("sample-seed").value.trim();
    if (/^[0-9]{1,19}$/.test(seed)) byId("sample-seed").value = String(BigInt(seed) + 1n);
    this.sample();
  }

  listen() {
    const { app } = this;
    byId("sampler").addEventListener("submit", (event) => {
      event.preventDefault();
      this.sample();
    });
    byId("sample-next").addEventListener("click", () => this.next());
    for (const button of document.querySelectorAll("[data-share]"))
      button.addEventListener("click", () => app.corrupt(Number(button.dataset.share)));
    byId("unbreak").addEventListener("click", () => app.undo());
    byId("search").addEventListener("click", () => this.search());
    app.onSearch = (message) => this.searched(message);
  }

  // ---- the search for a failure

  search() {
    const { app } = this;
    if (this.searching) {
      app.send({ type: "stop" });
      return;
    }
    try {
      const settings = this.settings();
      const model = app.main.source.model ?? 0;
      app.pause();
      this.searching = { settings, title: app.models[model].title };
      byId("search-report").hidden = false;
      setText(byId("search-report"), "Searching …");
      setText(byId("search"), "Stop");
      const seed = (BigInt(Math.floor(Math.random() * 2 ** 31)) << 20n).toString();
      app.send({ type: "search", id: 0, model, settings, seed });
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      this.fault(error);
    }
  }

  searched({ tried, seconds, seed, found, error, over }) {
    if (!this.searching) return;
    const { settings, title } = this.searching;
    const kind = `of ${plural(settings.nodes, "node")} (${settings.family})`;
    const all = `${plural(tried, "problem")} ${kind} tried in ${seconds.toFixed(0)} s`;
    const outcome = error
      ? `${title} cannot be asked: ${error}.`
      : found
        ? `${all}: ${title} gets this one wrong (seed ${seed}).`
        : over
          ? `${all}, all solved by ${title}.`
          : `${all}, none wrong so far …`;
    setText(byId("search-report"), outcome);
    if (!over) return;
    this.searching = null;
    setText(byId("search"), "Search");
    if (found) {
      byId("sample-seed").value = seed;
      this.app.resetSource();
      this.app.setProblem(found);
      this.app.play();
    }
  }
}
