// Time: play, pause, step, the scrubber with what was right at each iteration, and the verdict when it stops.
"use strict";

class TransportView {
  constructor(app) {
    this.app = app;
    const click = (id, action) => byId(id).addEventListener("click", action);
    click("first", () => app.go(0));
    click("back", () => app.go(app.iteration - 1));
    click("play", () => app.toggle());
    click("step", () => app.go(app.iteration + 1));
    click("last", () => app.go(app.last));
    byId("scrubber").addEventListener("input", (event) => app.go(Number(event.target.value)));
    byId("speed").addEventListener("change", (event) => (app.speed = Number(event.target.value)));
  }

  draw() {
    const { app } = this;
    const play = byId("play");
    play.classList.toggle("playing", app.playing);
    play.setAttribute("aria-label", app.playing ? "Pause" : "Play");
    const scrubber = byId("scrubber");
    scrubber.max = String(Math.max(app.last, 1));
    scrubber.value = String(app.iteration);
    byId("back").disabled = byId("first").disabled = app.iteration === 0;
    byId("step").disabled = byId("last").disabled = app.iteration >= app.last;
    byId("clock").replaceChildren(
      `${app.main.unit} `,
      html("b", {}, String(app.iteration)),
      ` of ${app.last}${app.computing ? " …" : ""}`,
    );
    this.drawProgress();
    this.drawVerdict();
  }

  // A column for each iteration: right from below, wrong from above.
  drawProgress() {
    const { app } = this;
    const pane = app.main;
    const count = app.problem.nodes.length;
    const columns = Math.max(app.last, 1) + 1;
    const key = [pane.number, pane.id, pane.last, app.last, app.problem.nodes.length].join("/");
    if (this.key !== key) {
      this.key = key;
      const bars = { right: "", wrong: "", broken: "" };
      for (let t = 0; t <= pane.last; t++) {
        const { right, wrong } = pane.counts(t);
        const bar = (from, to) => `M${t} ${from}h1V${to}h-1z`;
        if (right) bars.right += bar(1 - right / count, 1);
        if (wrong) bars.wrong += bar(0, wrong / count);
      }
      for (const { at } of app.changes) bars.broken += `M${at} 0h.18v1h-.18z`;
      byId("progress").setAttribute("viewBox", `0 0 ${columns} 1`);
      this.now = svg("path", { class: "now" });
      byId("progress").replaceChildren(
        ...Object.entries(bars).map(([kind, d]) => svg("path", { class: kind, d })),
        this.now,
      );
    }
    this.now.setAttribute("d", `M${app.iteration + 0.04} 0.02h0.92v0.96h-0.92z`);
  }

  drawVerdict() {
    const { app } = this;
    const { sign, kind, title, detail } = this.verdict(app.main);
    const key = [sign, kind, title, detail].join("/");
    if (key === this.said) return;
    this.said = key;
    byId("verdict").replaceChildren(
      html("span", { class: `sign ${kind}`, "aria-hidden": true }, sign),
      html("strong", {}, title),
      html("span", { class: "quiet" }, detail),
    );
  }

  // Why it stopped, and whether it was right to.
  verdict(pane) {
    const { app } = this;
    if (pane.error) return { sign: "!", kind: "bad", title: "No answer", detail: pane.error };
    const { right, wrong, empty } = pane.counts(pane.last);
    const all = right + wrong + empty;
    const rest =
      app.truth === null
        ? ""
        : right === all
          ? `all ${plural(all, "value")} right`
          : `${right} of ${plural(all, "value")} right`;
    if (!pane.halt)
      return {
        sign: "…",
        kind: "",
        title: "Thinking",
        detail: `${plural(pane.last, pane.unit)} so far, depth ${app.depth}`,
      };
    const { reason, at, length, approximate } = pane.halt;
    const words = {
      fixpoint: [
        `Fixed point after ${plural(at, "iteration")}`,
        `iteration ${at} changed nothing${approximate ? " that is read" : ""}`,
      ],
      cycle: [`Cycle after ${plural(at, "iteration")}`, `the last ${length} states would repeat for ever`],
      cap: [`Stopped at the cap of ${plural(at, pane.unit)}`, pane.writes ? "no end in sight" : "it had not come to rest"],
      fixed: [`Stopped after ${plural(at, "iteration")}`, "the number it was trained with"],
      end: [`Wrote ${plural(at, "token")}`, "and then the token that ends"],
    }[reason] ?? [`Stopped after ${at}`, reason];
    const good = right === all;
    return {
      sign: good ? "✓" : "×",
      kind: app.truth === null ? "" : good ? "good" : "bad",
      title: words[0],
      detail: `${[rest, words[1]].filter(Boolean).join("; ")}. Depth ${app.depth}.`,
    };
  }
}
