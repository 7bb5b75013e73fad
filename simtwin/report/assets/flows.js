// Slowdown of flows: percentiles by size, and the distribution of all.
const CDF_STEPS = 40;
const OF_PERCENTILE = [["median", "--one"], ["95th percentile", "--two"], ["99th percentile", "--five"]];

// From 1, unless all is far above, or below where something is, to `high`: logarithmic where that is far.
function slowdownAxis(low, high, from, to, from1 = true) {
  const least = Math.min(from1 ? 1 : low * 0.9, low), far = high / least > 8;
  const scale = value => far ? Math.log(value / least) / Math.log(high / least) : (value - least) / (high - least);
  const values = [];
  if (far) for (let power = 1; power <= high; power *= 10) values.push(...[1, 2, 5].map(m => m * power).filter(value => value >= least && value <= high));
  else { const step = ticks(high - least, 5)[1]; for (let value = Math.ceil(least / step) * step; value <= high * 1.0001; value += step) values.push(value); }
  return { at: value => from + scale(value) * (to - from), values };
}

const slow = value => `${Number(value.toPrecision(3))}×`;

function drawFlowSizes(choice) {
  const rows = data.flows[choice].sizes, id = "flow-sizes", width = widthOf(id), left = 48, right = width - 10, top = 22, bottom = 240;
  const slot = (right - left) / rows.length, slanted = rows.some(row => row[0].length * 6.6 > slot - 6);
  const svg = canvas(id, slanted ? 296 : 264, "Slowdown by flow size");
  const all = rows.flatMap(row => row.slice(2)).filter(value => value !== null), inTurn = 2 + OF_PERCENTILE.length;
  const axis = slowdownAxis(Math.min(...all), Math.max(1.2, ...all) * 1.05, bottom, top);
  for (const value of axis.values) {
    node("line", { x1: left, x2: right, y1: axis.at(value), y2: axis.at(value), stroke: value === 1 ? "var(--mark)" : "var(--grid)" }, svg);
    node("text", { x: left - 8, y: axis.at(value) + 4, "text-anchor": "end", class: "soft small" }, svg, slow(value));
  }
  node("text", { x: 0, y: 10, class: "soft small" }, svg, "slowdown, by size of a flow");
  const x = at => left + (at + 0.5) * slot;
  OF_PERCENTILE.forEach(([, colour], k) => {
    if (rows.length > 1) node("path", { d: rows.map((row, at) => `${at ? "L" : "M"}${x(at).toFixed(1)},${axis.at(row[k + 2]).toFixed(1)}`).join(""), fill: "none", stroke: `var(${colour})`, "stroke-width": 1.8 }, svg);
    rows.forEach((row, at) => {
      const alone = OF_PERCENTILE.every((_, other) => other >= k || Math.abs(axis.at(row[other + 2]) - axis.at(row[k + 2])) > 12);
      if (slot > 90 && alone) node("text", { x: x(at) + 8, y: axis.at(row[k + 2]) - 5, class: "small", style: HALO }, svg, slow(row[k + 2]));
    });
    rows.forEach((row, at) => node("circle", { cx: x(at), cy: axis.at(row[k + 2]), r: 4, fill: `var(${colour})` }, svg));
  });
  rows.forEach((row, at) => {
    const y = axis.at(row[inTurn]);
    if (row[inTurn] > 1.005) node("line", { x1: x(at) - Math.min(40, slot / 2 - 2), x2: x(at) + 6, y1: y, y2: y, stroke: "var(--ink)", "stroke-dasharray": "4 3", class: "in-turn" }, svg);
  });
  rows.forEach((row, at) => {
    const group = node("g", { class: "flow-size", "data-tip": `${row[0]}: ${whole(row[1])} flow${row[1] === 1 ? "" : "s"}\n${OF_PERCENTILE.map(([name], k) => `${name} ${slow(row[k + 2])}`).join("\n")}${row[inTurn] > 1.005 ? `\none message after the other on an idle network ${slow(row[inTurn])}` : ""}` }, svg);
    node("rect", { x: left + at * slot, y: top, width: slot, height: bottom - top, fill: "transparent" }, group);
    const label = node("text", { x: x(at), y: bottom + 16, "text-anchor": slanted ? "end" : "middle", class: "soft small" }, svg, slanted ? row[0].split(" to ")[0] : row[0]);
    if (slanted) label.setAttribute("transform", `rotate(-40 ${x(at)} ${bottom + 12})`);
  });
  byKeys(svg);
}

function drawFlowCdf(choice) {
  const points = data.flows[choice].cdf, id = "flow-cdf", width = widthOf(id), left = 44, right = width - 14, top = 22, bottom = 240;
  const svg = canvas(id, 264, "Distribution of slowdowns");
  const axis = slowdownAxis(points[0][0], Math.max(1.2, points[points.length - 1][0] * 1.02), left, right, points[0][0] < 3), y = share => bottom - share * (bottom - top);
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    node("line", { x1: left, x2: right, y1: y(share), y2: y(share), stroke: "var(--grid)" }, svg);
    node("text", { x: left - 8, y: y(share) + 4, "text-anchor": "end", class: "soft small" }, svg, inPercent(share));
  }
  for (const value of axis.values) {
    node("line", { x1: axis.at(value), x2: axis.at(value), y1: top, y2: bottom, stroke: value === 1 ? "var(--mark)" : "var(--grid)" }, svg);
    node("text", { x: axis.at(value), y: bottom + 17, "text-anchor": "middle", class: "soft small" }, svg, slow(value));
  }
  node("text", { x: 0, y: 10, class: "soft small" }, svg, "share of flows with at most that slowdown");
  let d = `M${axis.at(points[0][0]).toFixed(1)},${bottom}`;
  for (const [value, share] of points) d += `H${axis.at(value).toFixed(1)}V${y(share).toFixed(1)}`;
  node("path", { d, fill: "none", stroke: "var(--one)", "stroke-width": 2 }, svg);
  const area = node("rect", { x: left, y: top, width: right - left, height: bottom - top, fill: "transparent", "data-tip": "", class: "cdf" }, svg);
  area.tip = event => {
    const from = event.clientX - svg.getBoundingClientRect().left, below = points.filter(([value]) => axis.at(value) <= from);
    if (!below.length) return `no flow has a slowdown below ${slow(points[0][0])}`;
    const [value, share] = below[below.length - 1];
    return `${percent(share)} of flows have a slowdown of at most ${slow(value)}`;
  };
  byPlace(svg, area, CDF_STEPS);
}

function drawFlows(choice) {
  drawFlowSizes(choice);
  drawFlowCdf(choice);
}
