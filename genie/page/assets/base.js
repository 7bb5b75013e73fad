"use strict";
// Drawing functions of figures, whose data is in the page; the page has the figures as tables too.
const data = JSON.parse(document.getElementById("data").textContent);

function give(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
}

function node(tag, attributes, parent, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  give(element, attributes);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

// Clears a figure and returns its drawing, as wide as the page but not below `least`; narrower windows scroll it.
// `held`: the name of the mark that had the focus, which keys.js gives to the same mark again.
function canvas(id, height, label, least = NARROWEST) {
  const place = document.getElementById(id), active = document.activeElement;
  const held = active.ownerSVGElement && place.contains(active) ? labelOf(active) : "";
  place.replaceChildren();
  if (held) showTip("");
  const width = widthOf(id, least);
  const svg = node("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.held = held;
  place.appendChild(svg);
  return svg;
}

const NARROWEST = 240;

function widthOf(id, least = NARROWEST) {
  return Math.max(least, Math.floor(document.getElementById(id).clientWidth));
}

function scaled(value, units, unit) {
  for (const [limit, name] of units) if (Math.abs(value) >= limit) return `${Number((value / limit).toPrecision(3))} ${name}`;
  return `${Number(value.toPrecision(3))} ${unit}`;
}

const time = ns => Math.abs(ns) < 1e3 ? `${Math.round(ns)} ns` : scaled(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]], "ns");
const amount = bytes => scaled(bytes, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]], "B");
const rate = bps => bps ? scaled(bps, [[1e12, "Tb/s"], [1e9, "Gb/s"], [1e6, "Mb/s"], [1e3, "kb/s"]], "b/s") : "unlimited";
const percent = fraction => `${Number((100 * fraction).toPrecision(fraction < 0.01 ? 1 : fraction < 0.0995 ? 2 : 3))} %`;
const whole = count => count.toLocaleString("en");

// Round values from 0 up to `high`, about `count` of them. `base`: 2 for bytes, whose round values are powers of two.
function ticks(high, count, base = 10) {
  const raw = high / count;
  let step;
  if (base === 2) step = 2 ** Math.max(0, Math.ceil(Math.log2(raw)));
  else {
    const power = 10 ** Math.floor(Math.log10(raw));
    step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= raw * 0.9999);
  }
  const result = [];
  for (let value = 0; value <= high * 1.0001; value += step) result.push(value);
  return result;
}

// From `low` to `high` in ns; two ticks that are close to each other are told apart by their digits.
function timeAxis(svg, left, right, top, bottom, high, low = 0) {
  const values = ticks(high - low, Math.max(2, Math.min(8, Math.floor((right - left) / 90)))), step = values[1] || high - low;
  const digits = Math.max(3, Math.ceil(Math.log10(Math.max(high, 1) / step)) + 1);
  for (let value = Math.ceil(low / step) * step; value <= high * 1.0001; value += step) {
    const x = left + (value - low) / (high - low) * (right - left), unit = high >= 1e9 ? [1e9, "s"] : high >= 1e6 ? [1e6, "ms"] : high >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    node("line", { x1: x, x2: x, y1: top, y2: bottom, stroke: "var(--grid)" }, svg);
    const words = low ? `${Number((value / unit[0]).toPrecision(digits))} ${unit[1]}` : value ? time(value) : "0";
    node("text", { x, y: bottom + 17, "text-anchor": x > right - 24 ? "end" : x < left + 24 && low ? "start" : "middle", class: "soft" }, svg, words);
  }
}

// Tooltips of elements with data-tip, or with a function `tip` that returns the text; shown on hover or keyboard focus.
const tip = document.getElementById("tip");
function showTip(text, x, y) {
  tip.style.visibility = text ? "visible" : "hidden";
  if (!text) return;
  tip.textContent = text;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(innerWidth - width - 8, x + 14))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18}px`;
}
function tipOf(target, event) {
  const mark = target.closest && target.closest("[data-tip]");
  return mark && (mark.tip ? mark.tip(event) : mark.getAttribute("data-tip"));
}
document.addEventListener("mousemove", event => showTip(tipOf(event.target, event), event.clientX, event.clientY));
document.addEventListener("focusin", event => {
  const { left, bottom } = event.target.getBoundingClientRect(), at = event.target.place?.() || { clientX: left, clientY: bottom - 12 };
  showTip(event.target.matches(":focus-visible") && tipOf(event.target, event.target.place && at), at.clientX, at.clientY);
});
document.addEventListener("focusout", () => showTip(""));
document.addEventListener("keydown", event => { if (event.key === "Escape") showTip(""); });

// Draws now, whenever one of the choices changes, and when the window's width changes.
const drawings = [];
function drawn(draw, ...choices) {
  const fields = choices.map(id => document.getElementById(id));
  const again = () => draw(...fields.map(field => field.value));
  for (const field of fields) field.addEventListener("change", again);
  drawings.push(again);
  again();
}
let drawnFor = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === drawnFor) return;
  drawnFor = innerWidth;
  drawings.forEach(again => again());
});
