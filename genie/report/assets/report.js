// Figures of a verdict, drawn from the data in the page; the page has them as tables too.
const LEAST = 640;

function drawBandwidth() {
  const rows = data.iterations, left = 56, right = widthOf("bandwidth", LEAST) - 16, top = 26, bottom = 218;
  const svg = canvas("bandwidth", 262, "Bus bandwidth of each iteration, measured over simulated", LEAST);
  const high = Math.max(1.1, ...rows.map(r => r.ratio * 1.08));
  const step = (right - left) / rows.length;
  const y = value => bottom - (value / high) * (bottom - top);
  if (data.window) {
    const inside = rows.map((r, i) => [r.iteration, i]).filter(([n]) => n >= data.window[0] && n <= data.window[1]).map(([, i]) => i);
    const x = left + inside[0] * step, wide = inside.length * step;
    node("rect", { x, y: top, width: wide, height: bottom - top, fill: "var(--blush)" }, svg);
    node("text", { x: x + 8, y: top - 8, class: "strong" }, svg, data.windowLabel);
  }
  for (const value of ticks(high, 5)) {
    node("line", { x1: left, x2: right, y1: y(value), y2: y(value), stroke: value === 1 ? "var(--mark)" : "var(--grid)", "stroke-dasharray": value === 1 ? "5 4" : "none" }, svg);
    node("text", { x: left - 10, y: y(value) + 4, "text-anchor": "end", class: "soft" }, svg, value.toFixed(2));
  }
  let path = "";
  rows.forEach((row, i) => { path += `${i ? "L" : "M"}${left + i * step},${y(row.ratio)}L${left + (i + 1) * step},${y(row.ratio)}`; });
  node("path", { d: path, fill: "none", stroke: "var(--wire)", "stroke-width": 2.5 }, svg);
  const every = Math.ceil(rows.length / 30);
  rows.forEach((row, i) => {
    if (view.get("iteration") && shows.iteration(row.iteration)) node("rect", { x: left + i * step, y: top, width: step, height: bottom - top, fill: "none", stroke: "var(--ink)", class: "chosen" }, svg);
    const x = left + (i + 0.5) * step;
    const tip = `iteration ${row.iteration}: ${row.ratio.toFixed(2)} of the simulated bus bandwidth\nmeasured ${row.measured.toPrecision(3)} GB/s, simulated ${row.simulated.toPrecision(3)} GB/s`;
    node("rect", { x: left + i * step, y: top, width: step, height: bottom - top, fill: "transparent", class: "point", "data-click": "", "data-iteration": row.iteration, "data-ratio": row.ratio, "data-tip": tip }, svg).addEventListener("click", () => view.set({ iteration: view.get("iteration") === String(row.iteration) ? "" : String(row.iteration) }));
    if (rows.length <= 120) node("circle", { cx: x, cy: y(row.ratio), r: 4, fill: "var(--wire)", "pointer-events": "none" }, svg);
    if (rows.length <= 24) node("text", { x, y: y(row.ratio) - 9, "text-anchor": "middle", "pointer-events": "none" }, svg, row.ratio.toFixed(2));
    if (i % every === 0) node("text", { x, y: bottom + 17, "text-anchor": "middle", class: "soft" }, svg, row.iteration);
  });
  node("text", { x: (left + right) / 2, y: bottom + 38, "text-anchor": "middle", class: "soft" }, svg, "iteration");
  byKeys(svg);
}

function drawParts(choice) {
  const bars = (data.parts.choices[choice] || []).map(([at, wait, wire, measured, last]) => ({ name: data.parts.bars[at][0], group: data.parts.bars[at][1], wait, wire, measured, last }));
  const rows = bars.filter(row => shows.group(row.group)), letters = Math.max(20, ...rows.map(row => row.name.length));
  const left = Math.min(420, 7 * letters + 20), right = widthOf("parts", LEAST) - 70, high = Math.max(1, ...rows.map(r => r.wait + Math.max(r.wire, r.measured)));
  const chosen = view.get("iteration"), note = document.getElementById("parts-note");
  note.textContent = chosen && !data.parts.choices[chosen] ? `The page has no room for iteration ${chosen} here.` : bars.length && !rows.length ? "No collective of the filter is drawn here; the table may have some." : "";
  const tall = 30, svg = canvas("parts", rows.length * tall + 34, "Wait, wire and excess of each collective", LEAST);
  const x = value => left + (value / high) * (right - left);
  timeAxis(svg, left, right, 4, rows.length * tall + 4, high);
  rows.forEach((row, i) => {
    const y = i * tall + 8, wire = Math.min(row.wire, row.measured), excess = row.measured - row.wire;
    node("text", { x: left - 12, y: y + 15, "text-anchor": "end" }, svg, row.name);
    const tip = `${row.name}\nwait ${time(row.wait)} (mean over ranks${row.last >= 0 ? `; rank ${row.last} came last` : ""})\nwire ${time(row.wire)} in the twin\nexcess ${time(excess)}${row.wire ? ` (${(100 * excess / row.wire).toFixed(0)} % of wire)` : ""}`;
    const group = node("g", { "data-tip": tip, "data-click": "", class: "part" }, svg);
    group.addEventListener("click", () => view.set({ group: view.get("group") === row.group ? "" : row.group }));
    node("rect", { x: left, y, width: Math.max(0, x(row.wait) - left), height: 20, fill: "var(--wait)" }, group);
    node("rect", { x: x(row.wait), y, width: Math.max(0, x(wire) - left), height: 20, fill: "var(--wire)" }, group);
    if (excess > 0) node("rect", { x: x(row.wait + wire), y, width: x(excess) - left, height: 20, fill: "var(--excess)" }, group);
    if (excess < 0) node("rect", { x: x(row.wait + wire), y: y + 0.5, width: x(-excess) - left, height: 19, fill: "none", stroke: "var(--wire)", "stroke-dasharray": "3 3" }, group);
    const share = row.wire ? Math.round(100 * excess / row.wire) : 0;
    if (row.wire) node("text", { x: x(row.wait + Math.max(row.wire, row.measured)) + 7, y: y + 15, class: "soft" }, svg, `${share > 0 ? "+" : share < 0 ? "−" : ""}${Math.abs(share)} %`);
  });
  byKeys(svg);
}

const WORLDS = [{ name: "live", slices: "live" }, { name: "twin", slices: "twin", colour: "var(--twin)" }];

function drawWorlds(choice) {
  const kept = data.lanes[choice];
  if (!kept) return;
  const rows = data.lane_ranks.map(rank => ({ name: `rank ${rank}`, rank, strong: data.accused.includes(rank) }));
  drawLanes("lanes", "Timelines of the live run and its twin", rows, WORLDS, kept);
  const missing = view.get("iteration") && !data.lanes[view.get("iteration")];
  document.getElementById("lanes-note").textContent = missing ? `The page has no room for iteration ${view.get("iteration")}: this is iteration ${choice}.` : "";
}

// From this excess on a cell has its full colour, with text in the colour for that. Weaker cells stay weak enough for ink.
const FULL_EXCESS = 0.6, WEAK = { excess: 75, wire: 45 };

function shade(excess) {
  if (excess === null) return "var(--nothing)";
  const strength = Math.abs(excess) >= FULL_EXCESS ? 100 : Math.round((excess > 0 ? WEAK.excess : WEAK.wire) * Math.abs(excess) / FULL_EXCESS);
  return `color-mix(in srgb, var(${excess > 0 ? "--excess" : "--wire"}) ${strength}%, var(--even))`;
}

function drawPairs() {
  const ranks = data.pairs.ranks, count = ranks.length, left = 96, top = 44, cell = Math.max(3, Math.min(44, 640 / count));
  const across = left + count * cell + 48;
  const svg = canvas("pairs", top + count * cell + 14, "Excess of the transfers from each rank to each rank", across + 170);
  const every = Math.ceil(count / 16);
  node("text", { x: left, y: 14, class: "soft" }, svg, "to rank");
  node("text", { x: 0, y: top + 14, class: "soft" }, svg, "from");
  ranks.forEach((rank, i) => {
    const strong = data.accused.includes(rank), style = strong ? "strong" : "";
    const crowded = !strong && ranks.some((other, j) => data.accused.includes(other) && Math.abs(i - j) * cell < 22);
    if ((i % every === 0 && !crowded) || strong) {
      node("text", { x: left + (i + 0.5) * cell, y: top - 8, "text-anchor": "middle", class: style }, svg, rank);
      node("text", { x: left - 10, y: top + (i + 0.5) * cell + 4, "text-anchor": "end", class: style }, svg, rank);
    }
    ranks.forEach((to, j) => {
      const excess = data.pairs.excess[i][j];
      const count = data.pairs.count[i][j];
      const words = excess === null ? (count ? `too little to judge, over ${count} transfers` : "nothing sent") : `${(100 * excess).toFixed(0)} % longer than similar messages, over ${count} transfers`;
      node("rect", { x: left + j * cell, y: top + i * cell, width: cell - (cell > 8 ? 2 : 0), height: cell - (cell > 8 ? 2 : 0), fill: excess === null && count ? "var(--little)" : shade(excess), class: shows.limitsRanks() && !shows.rank(rank) && !shows.rank(to) ? "pair faint" : "pair", "data-tip": `rank ${rank} to rank ${to}: ${words}` }, svg);
      if (cell >= 34 && excess !== null) node("text", { x: left + (j + 0.5) * cell - 1, y: top + (i + 0.5) * cell + 3, "text-anchor": "middle", "pointer-events": "none", style: `font-size:11.5px;${Math.abs(excess) >= FULL_EXCESS ? `fill:var(--on-${excess > 0 ? "excess" : "wire"})` : ""}` }, svg, Math.round(100 * excess) || 0);
    });
  });
  ["−60 % and less", "as the twin says", "+30 %", "+60 % and more"].forEach((text, i) => {
    node("rect", { x: across, y: top + i * 26, width: 18, height: 18, fill: shade([-0.6, 0, 0.3, 0.6][i]) , stroke: "var(--line)" }, svg);
    node("text", { x: across + 28, y: top + i * 26 + 14 }, svg, text);
  });
  byKeys(svg);
}

// A job without collectives or payload does not have this figure.
const has = id => document.getElementById(id) !== null;
if (has("bandwidth")) drawn(drawBandwidth);
if (has("pairs")) drawn(drawPairs);
if (has("parts")) drawn(drawParts, "parts-choice");
const laneChoice = document.getElementById("lanes-choice");
const showWorlds = zoomable("lanes", () => Math.max(1, data.lanes[laneChoice.value].end), () => laneAxis("lanes", WORLDS), () => drawWorlds(laneChoice.value));
drawn(showWorlds, "lanes-choice");
