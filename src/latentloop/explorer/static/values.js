// Values by iteration beside the truth: only the rows in sight are drawn, and as many iterations as fit.
"use strict";

const ROW_HEIGHT = 27;

class ValuesView {
  constructor(app) {
    this.app = app;
    this.panel = byId("values-panel");
    this.head = html("div", { class: "gridhead", role: "row" });
    this.body = html("div", { class: "grid", role: "rowgroup" });
    this.table = html("div", { role: "table", "aria-label": "Values by iteration" }, this.head, this.body);
    this.panel.replaceChildren(this.table);
    this.panel.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.panel);
  }

  draw() {
    const { app, panel } = this;
    if (panel.hidden || !app.main?.values?.length) return;
    const pane = app.main;
    const room = Math.max(1, Math.floor((panel.clientWidth - 20 - 132 - 36) / 32));
    const last = Math.max(Math.min(app.iteration, pane.last), Math.min(room - 1, pane.last));
    const shown = Array.from(range(Math.max(0, last - room + 1), last + 1));
    const columns = `minmax(0, 1fr) repeat(${shown.length}, 32px) 36px`;
    this.head.replaceChildren(
      html(
        "div",
        { role: "presentation" },
        html("span", { role: "columnheader" }, "equation"),
        ...shown.map((t) => html("span", { role: "columnheader", class: t === app.iteration ? "now" : "" }, String(t))),
        html("span", { role: "columnheader" }, "true"),
      ),
    );
    this.head.firstChild.style.gridTemplateColumns = columns;
    this.head.firstChild.firstChild.style.textAlign = "left";

    const count = app.problem.nodes.length;
    const first = Math.max(0, Math.min(Math.floor(panel.scrollTop / ROW_HEIGHT) - 4, count));
    const end = Math.min(count, first + Math.ceil((panel.clientHeight || 500) / ROW_HEIGHT) + 8);
    this.table.setAttribute("aria-rowcount", String(count + 1));
    this.body.style.paddingTop = `${first * ROW_HEIGHT}px`;
    this.body.style.paddingBottom = `${(count - end) * ROW_HEIGHT}px`;
    this.body.replaceChildren(...Array.from(range(first, end), (node) => this.row(pane, node, shown, columns)));
  }

  row(pane, node, shown, columns) {
    const { app } = this;
    const cells = shown.map((t) => {
      const value = pane.at(t)[node];
      const kinds = pane.kinds(t, node);
      const now = t === app.iteration ? " now" : "";
      return html(
        "span",
        {
          class: `cell ${kinds.join(" ")}${now}`,
          role: "cell",
          "data-at": t,
          "aria-label": `${value === EMPTY ? "empty" : value}, ${kinds.join(", ")}`,
        },
        value === EMPTY ? "·" : String(value),
      );
    });
    const row = html(
      "div",
      {
        class: `line${node === app.selected ? " selected" : ""}`,
        role: "row",
        "aria-rowindex": node + 2,
        onclick: (event) => {
          const at = event.target.dataset.at;
          if (at !== undefined) app.go(Number(at));
          app.select(node);
          if (at !== undefined) app.onAsk?.();
        },
      },
      html("span", { class: "equation mono", role: "rowheader", title: app.equation(node) }, app.equation(node)),
      ...cells,
      html("span", { class: "cell true", role: "cell" }, app.truth === null ? "?" : String(app.truth[node])),
    );
    row.style.gridTemplateColumns = columns;
    return row;
  }

  reveal(node) {
    const top = node * ROW_HEIGHT;
    const { panel } = this;
    if (top < panel.scrollTop || top > panel.scrollTop + panel.clientHeight - 3 * ROW_HEIGHT)
      panel.scrollTop = top - panel.clientHeight / 2;
  }
}
