// The beginning: in a worker the kernel, in a page everything else.
"use strict";

function startWorker() {
  const kernel = new Kernel((message) => postMessage(message));
  onmessage = ({ data }) => kernel.receive(data);
}

function startPage() {
  const source = `<!doctype html>\n${document.documentElement.outerHTML}`; // before anything has changed
  const read = (id) => JSON.parse(byId(id).textContent);
  const opening = read("opening");
  const app = new App(read("models"), opening, read("schema"));
  globalThis.latentloop = app;
  byId("models").textContent = "[]"; // its text is in `source`, and large
  app.connect(byId("program").textContent);
  app.equation = (node) => (app.problem.labels ? app.problem.labels[node] : equationText(app.task, app.problem, node));
  const problemView = new ProblemView(app);
  const transport = new TransportView(app);
  const values = new ValuesView(app);
  const inspector = new Inspector(app);
  app.views = [
    () => problemView.draw(),
    () => transport.draw(),
    () => values.draw(),
    () => inspector.draw(),
    () => writeAddress(app),
  ];
  describeModels(app);
  chooseTheme();
  offerComparison(app);
  listenToTabs(app, values);
  listenToSaving(app, source);
  listenToKeys(app, problemView);
  begin(app, opening);
  addEventListener("hashchange", () => location.hash !== app.address && begin(app, { link: location.hash }));
}

// Show what a link or the opening says; a broken link is told, and the opening problem shown instead.
function begin(app, opening) {
  const hash = location.hash.length > 1 ? location.hash : (opening.link ?? "");
  app.setPanes([{ kind: "model", model: 0 }, ...(app.models.length > 1 ? [{ kind: "model", model: 1 }] : [])]);
  let asked = null;
  try {
    if (hash) asked = readLink(hash, app);
    if (app.misled) app.notice(null);
    app.misled = false;
  } catch (error) {
    app.misled = true;
    app.notice(`The link cannot be read: ${error.message}. Here is another problem.`);
  }
  if (asked?.compare) setComparison(app, asked.compare);
  app.showComparison();
  if (!hash && opening.run) return showRun(app, opening.run);
  const problem = asked?.problem ?? parseProblem(app.opening.problem ?? "20 = x7 ; 2 = x42 ; x7 + x42 = x23", app.task);
  app.setProblem(problem, { changes: asked?.changes ?? [] });
  if (asked) {
    app.wanted = asked.iteration;
    app.selected = asked.selected;
    if (asked.selected !== null) app.onAsk();
  } else if (!matchMedia("(prefers-reduced-motion: reduce)").matches) {
    app.play();
  }
}

function writeAddress(app) {
  if (app.playing || app.wanted !== undefined) return;
  const address = linkOf(app);
  if (address === app.address || address.length > 60_000) return;
  app.address = address;
  try {
    history.replaceState(null, "", address || location.pathname);
  } catch {
    // some browsers allow no changes of a file's address: the menu still copies the link
  }
}

function describeModels(app) {
  const [model] = app.models;
  const { model: block, method } = model.config;
  const name = `${block.positions.name}-L${block.layers}H${block.heads}D${block.width}`;
  byId("model-chip").replaceChildren(
    html("b", {}, model.title),
    ` · ${method.name} · ${name} · ${model.parameters.toLocaleString("en-US")} weights · ${model.trained}`,
  );
  setText(byId("about-modulus"), String(app.task.modulus));
  setText(
    byId("about-model"),
    app.models
      .map(
        ({ title, row, precision, sha256 }) =>
          `${title}: ${row.title}, weights in ${precision} precision, SHA-256 ${sha256.slice(0, 12)}.`,
      )
      .join(" "),
  );
}

function chooseTheme() {
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
}

// ---- two side by side

function setComparison(app, choice) {
  const [first] = app.panes;
  const second =
    choice === "oracle"
      ? { kind: "oracle" }
      : /^m[0-9]/.test(choice)
        ? { kind: "model", model: Number(choice.slice(1)) }
        : null;
  app.setPanes([first.source, ...(second ? [second] : [])]);
}

function offerComparison(app) {
  const choices = [
    ["", "nothing"],
    ...app.models.slice(1).map(({ title }, k) => [`m${k + 1}`, title]),
    ["oracle", "layer by layer (oracle)"],
    ["m0", `${app.models[0].title} again`],
  ];
  byId("compare").replaceChildren(...choices.map(([value, text]) => html("option", { value }, text)));
  byId("compare").addEventListener("change", (event) => {
    const { iteration } = app;
    setComparison(app, event.target.value);
    app.showComparison();
    app.restartAt(iteration);
  });
  byId("pane-select").addEventListener("change", (event) => app.select(app.selected, Number(event.target.value)));
  app.showComparison = () => {
    const second = app.panes[1]?.source;
    byId("compare").value = !second ? "" : second.kind === "oracle" ? "oracle" : `m${second.model}`;
    byId("compare").disabled = app.panes[0].source.kind === "recorded"; // which has no equations to solve
    byId("pane-choice").hidden = !second;
    byId("pane-select").replaceChildren(...app.panes.map((pane, k) => html("option", { value: k }, pane.title)));
  };
  app.views.push(() => (byId("pane-select").value = String(app.pane)));
  app.resetSource = () => {
    if (app.panes[0].source.kind !== "recorded") return;
    app.setPanes([{ kind: "model", model: 0 }]);
    app.showComparison();
  };
}

// ---- tabs, keys, menu

function listenToTabs(app, values) {
  const show = (name) => {
    for (const each of ["values", "why"]) {
      byId(`tab-${each}`).setAttribute("aria-selected", String(each === name));
      byId(`${each}-panel`).hidden = each !== name;
    }
    app.refresh();
  };
  for (const each of ["values", "why"]) byId(`tab-${each}`).addEventListener("click", () => show(each));
  app.onAsk = () => show("why");
  app.onValues = () => show("values");
  app.onSelected = (node) => {
    values.reveal(node);
    app.onAsk();
  };
}

function listenToKeys(app, problemView) {
  const move = (by) => {
    const count = app.problem.nodes.length;
    const node = app.selected === null ? 0 : (app.selected + by + count) % count;
    app.select(node);
    app.main.graph.focus(node);
  };
  const actions = {
    " ": () => app.toggle(),
    ArrowLeft: () => app.go(app.iteration - 1),
    ArrowRight: () => app.go(app.iteration + 1),
    Home: () => app.go(0),
    End: () => app.go(app.last),
    ArrowUp: () => move(-1),
    ArrowDown: () => move(1),
    w: () => app.onAsk(),
    v: () => app.onValues(),
    n: () => problemView.next(),
    f: () => problemView.search(),
    t: () => byId("theme").click(),
    b: () =>
      app.selected !== null &&
      app.main.breakable &&
      app.truth &&
      app.change([[app.selected, app.wrongValue(app.selected)]]),
    u: () => app.changes.length && app.undo(),
    "+": () => app.main.graph.zoom(1.3),
    "-": () => app.main.graph.zoom(1 / 1.3),
    0: () => app.main.graph.fit(),
    "?": () => byId("about").showModal(),
    Escape: () => app.select(null),
  };
  byId("help").addEventListener("click", () => byId("about").showModal());
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("about").open) return;
    if (event.target.closest("input, textarea, select")) return;
    if (event.key === " " && event.target.closest("button")) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function listenToSaving(app, source) {
  const menu = byId("save-menu");
  const open = (shown) => {
    menu.hidden = !shown;
    byId("save-button").setAttribute("aria-expanded", String(shown));
    if (shown) menu.querySelector("button").focus();
  };
  byId("save-button").addEventListener("click", () => open(menu.hidden));
  addEventListener("click", (event) => event.target.closest(".menu") || open(false));
  menu.addEventListener("keydown", (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key !== "Escape" && !by) return;
    event.stopPropagation(); // outside of the menu these keys are the graph's
    event.preventDefault();
    if (by) {
      const items = [...menu.querySelectorAll("button")];
      items.at((items.indexOf(document.activeElement) + by) % items.length).focus();
      return;
    }
    open(false);
    byId("save-button").focus();
  });
  const action = (id, act) =>
    byId(id).addEventListener("click", async () => {
      open(false);
      await act();
    });
  action("copy-link", async () => {
    const link = location.href.split("#")[0] + linkOf(app);
    try {
      await navigator.clipboard.writeText(link);
      setText(byId("announce"), "The link was copied.");
    } catch {
      app.notice(`Copy this link: ${link}`);
    }
  });
  action("save-json", async () =>
    download("run.json", JSON.stringify(await runDocument(app), null, 1), "application/json"),
  );
  action(
    "save-png",
    () =>
      new Promise((done) =>
        graphPicture(app).toBlob((blob) => {
          download("graph.png", blob, "image/png");
          done();
        }),
      ),
  );
  action("save-page", () => download("moment.html", standalonePage(app, source), "text/html"));
  action("open-run", () => byId("run-file").click());
  byId("run-file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (file) await openRun(app, file);
  });
}

const LARGEST_RUN = 2 ** 26;

async function openRun(app, file) {
  try {
    if (file.size > LARGEST_RUN) throw new Error(`it has more than ${LARGEST_RUN} bytes`);
    showRun(app, checkRun(JSON.parse(await file.text()), app.schema));
    app.notice(null);
  } catch (error) {
    app.notice(`${file.name} is no run that this page can show: ${error.message}`);
  }
}

function showRun(app, document) {
  app.pause();
  app.setPanes([{ kind: "recorded", document }]);
  app.showComparison();
  app.setProblem(recordedProblem(document));
  app.play();
}

if (typeof document === "undefined") startWorker();
else startPage();
