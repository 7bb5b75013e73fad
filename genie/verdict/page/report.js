"use strict";
// Draws the figures of the report from the data in the page. The same figures are in the page as tables.
const data = JSON.parse(document.getElementById("data").textContent);
const WIDTH = 1072;
const colour = { wait: "#b9c5d4", wire: "#2f6db5", excess: "#cf3f4f", comp: "#d9dfe6", mem: "#c9d3c2", send: "#5a9bd5", recv: "#9bbfe0" };

function node(tag, attributes, parent, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

function canvas(id, height, label) {
  const place = document.getElementById(id);
  place.replaceChildren();
  const svg = node("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label });
  place.appendChild(svg);
  return svg;
}

function time(ns) {
  const size = Math.abs(ns);
  for (const [limit, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]])
    if (size >= limit) return `${Number((ns / limit).toPrecision(3))} ${unit}`;
  return `${Math.round(ns)} ns`;
}

function ticks(high, count) {
  const raw = high / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= raw);
  const result = [];
  for (let value = 0; value <= high * 1.0001; value += step) result.push(value);
  return result;
}

function timeAxis(svg, left, right, top, bottom, high) {
  for (const value of ticks(high, 8)) {
    const x = left + (value / high) * (right - left);
    node("line", { x1: x, x2: x, y1: top, y2: bottom, stroke: "#e6ebf0" }, svg);
    node("text", { x, y: bottom + 17, "text-anchor": "middle", class: "soft" }, svg, value ? time(value) : "0");
  }
}

function drawBandwidth() {
  const rows = data.iterations, left = 56, right = WIDTH - 16, top = 26, bottom = 218;
  const svg = canvas("bandwidth", 262, "Bus bandwidth of each iteration, measured over simulated");
  if (!rows.length) return;
  const high = Math.max(1.1, ...rows.map(r => r.ratio * 1.08));
  const step = (right - left) / rows.length;
  const y = value => bottom - (value / high) * (bottom - top);
  if (data.window) {
    const inside = rows.map((r, i) => [r.iteration, i]).filter(([n]) => n >= data.window[0] && n <= data.window[1]).map(([, i]) => i);
    const x = left + inside[0] * step, wide = inside.length * step;
    node("rect", { x, y: top, width: wide, height: bottom - top, fill: "#fbe9ea" }, svg);
    node("text", { x: x + 8, y: top - 8, fill: "#b3261e", style: "fill:#b3261e;font-weight:600" }, svg, data.windowLabel);
  }
  for (const value of ticks(high, 5)) {
    node("line", { x1: left, x2: right, y1: y(value), y2: y(value), stroke: value === 1 ? "#8893a1" : "#e6ebf0", "stroke-dasharray": value === 1 ? "5 4" : "none" }, svg);
    node("text", { x: left - 10, y: y(value) + 4, "text-anchor": "end", class: "soft" }, svg, value.toFixed(1));
  }
  let path = "";
  rows.forEach((row, i) => { path += `${i ? "L" : "M"}${left + i * step},${y(row.ratio)}L${left + (i + 1) * step},${y(row.ratio)}`; });
  node("path", { d: path, fill: "none", stroke: colour.wire, "stroke-width": 2.5 }, svg);
  const every = Math.ceil(rows.length / 30);
  rows.forEach((row, i) => {
    const x = left + (i + 0.5) * step;
    const tip = `iteration ${row.iteration}: ${row.ratio.toFixed(2)} of the simulated bus bandwidth\nmeasured ${row.measured.toPrecision(3)} GB/s, simulated ${row.simulated.toPrecision(3)} GB/s`;
    node("rect", { x: left + i * step, y: top, width: step, height: bottom - top, fill: "transparent", class: "point", "data-iteration": row.iteration, "data-ratio": row.ratio, "data-tip": tip }, svg);
    if (rows.length <= 120) node("circle", { cx: x, cy: y(row.ratio), r: 4, fill: colour.wire, "pointer-events": "none" }, svg);
    if (rows.length <= 24) node("text", { x, y: y(row.ratio) - 9, "text-anchor": "middle", "pointer-events": "none" }, svg, row.ratio.toFixed(2));
    if (i % every === 0) node("text", { x, y: bottom + 17, "text-anchor": "middle", class: "soft" }, svg, row.iteration);
  });
  node("text", { x: (left + right) / 2, y: bottom + 38, "text-anchor": "middle", class: "soft" }, svg, "iteration");
}

function drawParts(choice) {
  const rows = data.parts[choice] || [], left = 250, right = WIDTH - 70, high = Math.max(1, ...rows.map(r => r.wait + Math.max(r.wire, r.measured)));
  const tall = 30, svg = canvas("parts", rows.length * tall + 34, "Wait, wire and excess of each collective");
  const x = value => left + (value / high) * (right - left);
  timeAxis(svg, left, right, 4, rows.length * tall + 4, high);
  rows.forEach((row, i) => {
    const y = i * tall + 8, wire = Math.min(row.wire, row.measured), excess = row.measured - row.wire;
    node("text", { x: left - 12, y: y + 15, "text-anchor": "end" }, svg, row.name);
    const tip = `${row.name}\nwait ${time(row.wait)} (mean over ranks${row.last >= 0 ? `; rank ${row.last} came last` : ""})\nwire ${time(row.wire)} in the twin\nexcess ${time(excess)}${row.wire ? ` (${(100 * excess / row.wire).toFixed(0)} % of wire)` : ""}`;
    const group = node("g", { "data-tip": tip, class: "part" }, svg);
    node("rect", { x: left, y, width: Math.max(0, x(row.wait) - left), height: 20, fill: colour.wait }, group);
    node("rect", { x: x(row.wait), y, width: Math.max(0, x(wire) - left), height: 20, fill: colour.wire }, group);
    if (excess > 0) node("rect", { x: x(row.wait + wire), y, width: x(excess) - left, height: 20, fill: colour.excess }, group);
    if (excess < 0) node("rect", { x: x(row.wait + wire), y: y + 0.5, width: x(-excess) - left, height: 19, fill: "none", stroke: colour.wire, "stroke-dasharray": "3 3" }, group);
    const share = row.wire ? Math.round(100 * excess / row.wire) : 0;
    if (row.wire) node("text", { x: x(row.wait + Math.max(row.wire, row.measured)) + 7, y: y + 15, class: "soft" }, svg, `${share > 0 ? "+" : share < 0 ? "−" : ""}${Math.abs(share)} %`);
  });
}

function drawLanes(choice) {
  const lanes = data.lanes[choice];
  const place = document.getElementById("lanes");
  if (!lanes) { place.textContent = "Choose one of the iterations that are kept with their lanes."; return; }
  const left = 118, right = WIDTH - 12, tall = 40, high = Math.max(1, lanes.end);
  const svg = canvas("lanes", data.lane_ranks.length * tall + 34, "Swim lanes of both worlds on one origin");
  timeAxis(svg, left, right, 2, data.lane_ranks.length * tall + 2, high);
  data.lane_ranks.forEach((rank, i) => {
    const y = i * tall + 4, accused = data.accused.includes(rank);
    node("text", { x: 0, y: y + 21, style: accused ? "font-weight:700;fill:#b3261e" : "" }, svg, `rank ${rank}`);
    node("text", { x: left - 8, y: y + 12, "text-anchor": "end", class: "soft", style: "font-size:11px" }, svg, "live");
    node("text", { x: left - 8, y: y + 28, "text-anchor": "end", class: "soft", style: "font-size:11px" }, svg, "twin");
  });
  for (const [world, row, kind, start, end, there, name] of lanes.slices) {
    const y = row * tall + 4 + (world ? 17 : 0), x0 = left + (start / high) * (right - left), x1 = left + (end / high) * (right - left);
    const worldName = world ? "twin" : "live", coll = kind === "coll";
    const tip = `rank ${data.lane_ranks[row]}, ${worldName}: ${name}\n${time(start)} to ${time(end)}, ${time(end - start)}${coll ? `, of which waiting ${time(there - start)}` : ""}`;
    const group = node("g", { "data-tip": tip, class: `slice ${worldName}` }, svg);
    if (!coll) { node("rect", { x: x0, y, width: Math.max(0.6, x1 - x0), height: 13, fill: colour[kind] || colour.comp }, group); continue; }
    const x2 = left + (Math.min(there, end) / high) * (right - left);
    node("rect", { x: x0, y, width: Math.max(0, x2 - x0), height: 13, fill: colour.wait }, group);
    node("rect", { x: x2, y, width: Math.max(0.6, x1 - x2), height: 13, fill: world ? "#7aa7d9" : colour.wire }, group);
  }
}

function shade(excess) {
  if (excess === null) return "#f1f3f5";
  const strength = Math.min(1, Math.abs(excess) / 0.6), mix = (a, b) => Math.round(a + (b - a) * strength);
  const to = excess > 0 ? [190, 38, 55] : [38, 100, 170];
  return `rgb(${mix(247, to[0])},${mix(248, to[1])},${mix(250, to[2])})`;
}

function drawPairs() {
  const ranks = data.pairs.ranks, count = ranks.length, left = 96, top = 44, cell = Math.max(3, Math.min(44, 640 / count));
  const svg = canvas("pairs", top + count * cell + 14, "Excess of the transfers from each rank to each rank");
  const every = Math.ceil(count / 16), label = "fill:#b3261e;font-weight:700";
  node("text", { x: left, y: 14, class: "soft" }, svg, "to rank");
  node("text", { x: 0, y: top + 14, class: "soft" }, svg, "from");
  ranks.forEach((rank, i) => {
    const style = data.accused.includes(rank) ? label : "";
    const crowded = !style && ranks.some((other, j) => data.accused.includes(other) && Math.abs(i - j) * cell < 22);
    if ((i % every === 0 && !crowded) || style) {
      node("text", { x: left + (i + 0.5) * cell, y: top - 8, "text-anchor": "middle", style }, svg, rank);
      node("text", { x: left - 10, y: top + (i + 0.5) * cell + 4, "text-anchor": "end", style }, svg, rank);
    }
    ranks.forEach((to, j) => {
      const excess = data.pairs.excess[i][j];
      const count = data.pairs.count[i][j];
      const words = excess === null ? (count ? `too little to judge, over ${count} transfers` : "nothing sent") : `${(100 * excess).toFixed(0)} % longer than its like, over ${count} transfers`;
      node("rect", { x: left + j * cell, y: top + i * cell, width: cell - (cell > 8 ? 2 : 0), height: cell - (cell > 8 ? 2 : 0), fill: excess === null && count ? "#e3e6ea" : shade(excess), class: "pair", "data-tip": `rank ${rank} to rank ${to}: ${words}` }, svg);
      if (cell >= 34 && excess !== null) node("text", { x: left + (j + 0.5) * cell - 1, y: top + (i + 0.5) * cell + 3, "text-anchor": "middle", "pointer-events": "none", style: `font-size:11.5px;${excess > 0.35 ? "fill:#fff" : ""}` }, svg, Math.round(100 * excess) || 0);
    });
  });
  const x = left + count * cell + 48;
  ["−60 % and less", "as the twin says", "+30 %", "+60 % and more"].forEach((text, i) => {
    node("rect", { x, y: top + i * 26, width: 18, height: 18, fill: shade([-0.6, 0, 0.3, 0.6][i]) , stroke: "#dde3ea" }, svg);
    node("text", { x: x + 28, y: top + i * 26 + 14 }, svg, text);
  });
}

const tip = document.getElementById("tip");
document.addEventListener("mousemove", event => {
  const mark = event.target.closest && event.target.closest("[data-tip]");
  tip.style.visibility = mark ? "visible" : "hidden";
  if (!mark) return;
  tip.textContent = mark.getAttribute("data-tip");
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(innerWidth - width - 8, event.clientX + 14))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18}px`;
});

drawBandwidth();
drawPairs();
for (const [id, draw] of [["parts-choice", drawParts], ["lanes-choice", drawLanes]]) {
  const select = document.getElementById(id);
  select.addEventListener("change", () => draw(select.value));
  draw(select.value);
}
