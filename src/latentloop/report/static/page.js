"use strict";
(() => {
  const root = document.documentElement;
  const plots = [...document.querySelectorAll(".plot")];
  const data = [...document.querySelectorAll("script.figure-data")].map((element) => JSON.parse(element.textContent));
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  // What a figure does not say itself, in the colors of the page.
  function template() {
    const style = getComputedStyle(root);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = {
      gridcolor: color("--line"), linecolor: color("--line"), zerolinecolor: color("--line"), automargin: true,
      title: { standoff: 10 },
    };
    const scale = dark()
      ? [[0, "#1d232a"], [0.5, "#2f6fb3"], [1, "#d6ecff"]]
      : [[0, "#f4f8fc"], [0.5, "#5b9bd5"], [1, "#0b2f57"]];
    const bar = { colorbar: { outlinewidth: 0, thickness: 12, tickcolor: color("--line") } };
    return {
      layout: {
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: color("--ink"), size: 13, family: getComputedStyle(document.body).fontFamily },
        colorway: dark()
          ? ["#7fb4f0", "#f0a35e", "#5fce8c", "#e58bc1", "#c9b458", "#9a8cf0", "#63cfd6"]
          : ["#1f5fa8", "#c8641b", "#1a7f45", "#a8327f", "#8a6d00", "#5b49c2", "#0b7f88"],
        colorscale: { sequential: scale },
        hoverlabel: { bgcolor: color("--panel"), bordercolor: color("--line"), font: { color: color("--ink") } },
        legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
        xaxis: axis, yaxis: axis,
        margin: { l: 56, r: 16, t: 32, b: 48 },
      },
      data: { heatmap: [{ ...bar, colorscale: scale }], contour: [bar], histogram2d: [{ ...bar, colorscale: scale }] },
    };
  }

  function draw(element) {
    const { data: traces, layout } = data[element.dataset.figure];
    element.dataset.drawn = "yes";
    return Plotly.react(
      element,
      structuredClone(traces), // plotly.js writes into what it is given
      { height: Number(element.dataset.height), ...structuredClone(layout), template: template(), autosize: true },
      {
        responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
        modeBarButtonsToRemove: ["sendDataToCloud", "lasso2d", "select2d", "autoScale2d"],
      },
    );
  }

  const redraw = () => plots.filter((element) => element.dataset.drawn).forEach(draw);
  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) {
          near.unobserve(target);
          draw(target);
        }
      }
    },
    { rootMargin: "800px" },
  );
  for (const element of plots) {
    element.style.minHeight = `${element.dataset.height}px`;
    near.observe(element);
  }
  addEventListener("beforeprint", () => plots.filter((element) => !element.dataset.drawn).forEach(draw));
  system.addEventListener("change", redraw);

  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    redraw();
  });
})();
