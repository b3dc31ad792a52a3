// Elements in a few words. Text only ever becomes text: nothing that was typed or loaded is read as HTML.
"use strict";

const byId = (id) => document.getElementById(id);

function fillIn(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function html(tag, properties = {}, ...children) {
  return fillIn(document.createElement(tag), properties, children);
}

function svg(tag, properties = {}, ...children) {
  return fillIn(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;
}

function percent(share) {
  if (share > 0.9995 && share < 1) return "99.9+ %";
  return share >= 0.0995
    ? `${(100 * share).toFixed(1)} %`
    : share >= 1e-4
      ? `${(100 * share).toPrecision(2)} %`
      : share > 0
        ? `${share.toExponential(0)}`
        : "0";
}
