// The network: switches in rows by their distance to hosts, cables between them, hosts' cables as cells beneath.
const TIER = 118, ARCS = 110, BOX = 20, CELL_MAX = 14, HOSTS_MAX = 64;
const HALO = "paint-order: stroke; stroke: var(--ground); stroke-width: 6px";
const SHARES = [0, 0.1, 0.3, 0.5, 0.7, 0.9];
const inPercent = value => `${Math.round(100 * value)} %`;
const METRIC = {
  mean: inPercent, peak: inPercent, now_busy: inPercent, now_queue: amount, longest_queue_bytes: amount, marked: whole, pauses: whole, dropped: whole, trimmed: whole,
};

// Lower ends of the steps 1 to 6; step 0 is nothing at all.
function stepsOf(metric) {
  if (metric === "mean" || metric === "peak" || metric === "now_busy") return SHARES;
  const high = Math.max(1, metric === "now_queue" ? frames().queue_max : data.topology.links[metric].reduce((most, value) => Math.max(most, value), 0));
  return [0, 1, 2, 3, 4, 5].map(sixth => high * sixth / 6);
}

function stepOf(metric, steps, link) {
  const value = isOverTime(metric) ? valueNow(metric, link) : data.topology.links[metric][link];
  if (!value || (metric in { mean: 0, peak: 0, now_busy: 0 } && value < 0.001)) return 0;
  let step = 0;
  while (step < 6 && value >= steps[step]) step += 1;
  return step;
}

function linkTip(link) {
  const of = data.topology.links, lines = [of.link[link].replace("; the busiest is ", "\nthe busiest is ")];
  const mean = of.mean[link], peak = of.peak[link];
  if (isOverTime(document.getElementById("topology-metric").value)) lines.push(`${frameWords()}: ${percent(valueNow("now_busy", link))} busy${data.packets ? `, longest queue ${amount(valueNow("now_queue", link))}` : ""}`);
  lines.push(`rate ${rate(of.rate_bps[link])}`);
  lines.push(mean === null ? "unlimited: no utilisation" : `${percent(mean)} busy on average${peak === null ? "" : `, ${percent(peak)} at most`}`);
  lines.push(`${amount(of.size_bytes[link])} sent`);
  if (data.packets) {
    const none = (count, name) => `${count ? whole(count) : "no"} ${name}${count === 1 ? "" : "s"}`;
    lines.push(`longest queue ${amount(of.longest_queue_bytes[link])}`);
    lines.push(`${none(of.marked[link], "mark")}, ${none(of.pauses[link], "pause")}${of.paused_ns[link] ? ` (${time(of.paused_ns[link])})` : ""}, ${none(of.dropped[link], "drop")}${of.trimmed[link] ? `, ${whole(of.trimmed[link])} trimmed` : ""}`);
  }
  return lines.join("\n");
}

// A link passes the filter by its name; the cable of a host also by the ranks of this host.
const ranksOfHost = new Map();
data.hosts.forEach((host, rank) => ranksOfHost.set(host, [...(ranksOfHost.get(host) || []), rank]));
function isLinkShown(link) {
  const name = data.topology.links.link[link], hosts = shows.limitsRanks() ? name.split("->").filter(end => ranksOfHost.has(end)) : [];
  return shows.link(name) && (!hosts.length || hosts.some(host => ranksOfHost.get(host).some(shows.rank)));
}
function chooseLink(link) {
  const name = data.topology.links.link[link];
  view.set({ link: view.get("link") === name ? "" : name });
}

// Colours and widths for another time, without a new drawing.
function recolour(metric) {
  const steps = stepsOf(metric);
  for (const group of document.querySelectorAll("#topology-figure .link")) {
    const step = stepOf(metric, steps, Number(group.dataset.link)), line = group.querySelector(".seen");
    group.style.setProperty("--heat", `var(--heat-${step})`);
    line?.setAttribute("stroke-width", lineWidth(step));
    line?.classList.toggle("low", step < 2);
  }
}
const lineWidth = step => (data.topology.trunks.length > 600 ? 0.6 : 1) * (1.1 + step * 0.35);

function linkGroup(parent, link, step) {
  const group = node("g", { class: isLinkShown(link) ? "link" : "link faint", "data-tip": "", "data-click": "", "data-link": link, "data-name": data.topology.links.link[link], style: `--heat: var(--heat-${step})` }, parent);
  group.tip = () => linkTip(link);
  return group;
}

// Where the switches of each row stand. Rows are [y, places of the middles, width of a box].
function places(width, top, arcs) {
  const rows = data.topology.tiers.map(([, names], tier) => {
    const slot = width / names.length;
    return { slot, x: names.map((_, at) => (at + 0.5) * slot), box: Math.max(1.5, Math.min(104, slot - Math.min(10, slot * 0.3))) };
  });
  let y = top;
  for (let tier = rows.length - 1; tier >= 0; tier -= 1) {
    if (arcs[tier]) y += ARCS;
    rows[tier].y = y;
    y += TIER;
  }
  return rows;
}

function trunkPath(rows, [tier, at, otherTier, otherAt], lane) {
  const a = rows[tier], b = rows[otherTier], x0 = a.x[at], x1 = b.x[otherAt];
  if (tier === otherTier) {
    const rise = 24 + 1.7 * ARCS * Math.sqrt(Math.abs(x1 - x0) / a.x[a.x.length - 1]) + lane * 6 + (x1 < x0 ? 5 : 0);
    return `M${x0},${a.y}Q${(x0 + x1) / 2},${a.y - rise} ${x1},${a.y}`;
  }
  const up = otherTier > tier;
  return beside(x0, up ? a.y : a.y + BOX, x1, up ? b.y + BOX : b.y, lane);
}

// A line to the right of where it would lead, so that the other direction has room.
function beside(x0, y0, x1, y1, lane = 0) {
  const long = Math.hypot(x1 - x0, y1 - y0), off = 2 + 4 * lane, dx = -(y1 - y0) / long * off, dy = (x1 - x0) / long * off;
  return `M${(x0 + dx).toFixed(1)},${(y0 + dy).toFixed(1)}L${(x1 + dx).toFixed(1)},${(y1 + dy).toFixed(1)}`;
}

// Cells in a block under a switch or a server: as many columns as there is room for.
function block(svg, cables, middle, slot, y, metric, steps) {
  const cell = Math.max(1.5, Math.min(cables.length === 1 ? 4 * CELL_MAX : CELL_MAX, slot - 2)), most = Math.max(1, Math.min(Math.floor((slot - 4) / cell), Math.ceil(Math.sqrt(cables.length * 4))));
  const columns = Math.ceil(cables.length / Math.ceil(cables.length / most));
  const gap = cell > 5 ? 2 : 0.3, high = cables.length > 1 && cell > 5 ? cell - gap : 10, used = Math.min(columns, cables.length);
  cables.forEach(([name, up, down], at) => {
    const x = middle - used * cell / 2 + (at % columns) * cell + gap / 2, top = y + Math.floor(at / columns) * (high + gap);
    const half = (cell - gap) / 2;
    for (const [link, left] of [[up, x], [down, x + half]])
      node("rect", { x: left.toFixed(2), y: top, width: half.toFixed(2), height: high }, linkGroup(svg, link, stepOf(metric, steps, link)));
  });
  return Math.ceil(cables.length / columns) * (high + gap);
}

// Lines are crowded where they meet: of those within reach the nearest is meant.
function nearestLine(event) {
  const awayFrom = path => {
    const [x0, y0, x1, y1] = path.getAttribute("d").match(/-?[\d.]+/g).map(Number), box = path.ownerSVGElement.getBoundingClientRect();
    return path.getAttribute("d").includes("L") ? Math.abs((x1 - x0) * (event.clientY - box.top - y0) - (y1 - y0) * (event.clientX - box.left - x0)) / Math.hypot(x1 - x0, y1 - y0) : 2;
  };
  const near = document.elementsFromPoint(event.clientX, event.clientY).filter(it => it.classList.contains("reach"));
  return near.reduce((best, path) => best && awayFrom(best) <= awayFrom(path) ? best : path, null);
}

function pointed(event) {
  const group = event && nearestLine(event)?.parentNode;
  document.querySelectorAll(".link.shown").forEach(it => it !== group && it.classList.remove("shown"));
  if (group) group.classList.add("shown");
  return group;
}

function drawLine(svg, [d, link, step]) {
  const group = linkGroup(svg, link, step);
  group.tip = event => linkTip(Number((pointed(event) || group).dataset.link));
  group.addEventListener("mouseleave", () => pointed());
  node("path", { d, class: "reach" }, group);
  node("path", { d, class: step < 2 ? "seen low" : "seen", "stroke-width": lineWidth(step) }, group);
}

function drawTopology(metric) {
  const drawn = data.topology, id = "topology-figure", width = widthOf(id), steps = stepsOf(metric);
  const arcs = drawn.tiers.map(() => false);
  for (const [tier, , otherTier] of drawn.trunks) if (tier === otherTier) arcs[tier] = true;
  const svg = canvas(id, 10, "Links on the network, by tier"), rows = places(width, 24, arcs);
  const lanes = new Map(), trunks = drawn.trunks.map(trunk => {
    const pair = trunk.slice(0, 4).join();
    const lane = lanes.get(pair) || 0;
    lanes.set(pair, lane + 1);
    return [trunkPath(rows, trunk, lane), trunk[4], stepOf(metric, steps, trunk[4])];
  });
  svg.classList.toggle("dense", trunks.length > 600);
  svg.addEventListener("click", event => { const group = (event.detail && nearestLine(event)?.parentNode) || event.target.closest(".link"); if (group) chooseLink(Number(group.dataset.link)); });
  trunks.sort((one, other) => one[2] - other[2]);
  for (const trunk of trunks) drawLine(svg, trunk);
  drawn.tiers.forEach(([kind, names], tier) => drawTier(svg, rows[tier], kind, names, tier));
  let y = rows.length ? rows[0].y + BOX + 6 : 10, most = 0;
  if (oneByOne(width)) y = drawHosts(svg, rows[0], width, metric, steps);
  else {
    drawn.below.forEach((cables, at) => { most = Math.max(most, block(svg, cables, rows[0].x[at], rows[0].slot, y, metric, steps)); });
    if (most) node("text", { x: 0, y: y + most + 14, class: "soft small" }, svg, "cables of hosts");
    y += most ? most + 34 : 0;
  }
  if (drawn.inside.length) {
    const slot = width / drawn.inside.length;
    let deep = 0;
    drawn.inside.forEach(([, cables], at) => { deep = Math.max(deep, block(svg, cables, (at + 0.5) * slot, slot, y, metric, steps)); });
    const named = drawn.inside.every(([name]) => name.length * 7 < slot);
    if (named) drawn.inside.forEach(([name], at) => node("text", { x: (at + 0.5) * slot, y: y + deep + 14, "text-anchor": "middle", class: "small" }, svg, name));
    node("text", { x: 0, y: y + deep + (named ? 30 : 14), class: "soft small" }, svg, "cables inside servers");
    y += deep + 40;
  }
  svg.setAttribute("height", y);
  svg.setAttribute("viewBox", `0 0 ${width} ${y}`);
  byKeys(svg, undefined, svg.querySelector(".switch") || undefined);
  drawKey(metric, steps);
  if (hasFrames()) showSlider(metric);
}

// Few enough hosts have boxes of their own, and lines to their switches.
function oneByOne(width) {
  const names = new Set(data.topology.below.flatMap(cables => cables.map(([name]) => name)));
  return data.topology.one_by_one && names.size > 0 && names.size <= HOSTS_MAX && width / names.size >= 13;
}

function drawHosts(svg, row, width, metric, steps) {
  const y = row.y + TIER, names = [...new Set(data.topology.below.flatMap(cables => cables.map(([name]) => name)))];
  const slot = width / names.length, x = new Map(names.map((name, at) => [name, (at + 0.5) * slot])), lines = [];
  data.topology.below.forEach((cables, at) => cables.forEach(([name, up, down]) => {
    const host = [x.get(name), y], leaf = [row.x[at], row.y + BOX];
    lines.push([beside(...host, ...leaf), up, stepOf(metric, steps, up)], [beside(...leaf, ...host), down, stepOf(metric, steps, down)]);
  }));
  lines.sort((one, other) => one[2] - other[2]);
  for (const line of lines) drawLine(svg, line);
  boxes(svg, names, { slot, x: names.map(name => x.get(name)), box: Math.min(64, slot - 4), y });
  node("text", { x: 0, y: y - 9, class: "soft small", style: HALO }, svg, "hosts");
  return y + BOX + 26;
}

function drawTier(svg, row, kind, names, tier) {
  node("text", { x: 0, y: row.y - 9, class: "soft small", style: HALO }, svg, `tier ${tier + 1}: ${names.length} × ${kind}`);
  boxes(svg, names, row);
}

// By one of the numbers in names, that at the end if it tells them apart, or by their place.
function numbersOf(names) {
  const found = names.map(name => name.match(/\d+/g) || [""]);
  const choices = [found.map(all => all[all.length - 1]), found.map(all => all[0])];
  return choices.find(numbers => new Set(numbers).size === names.length) || names.map((_, at) => String(at));
}

// Named as a whole, or by a number, where there is room.
function boxes(svg, names, row) {
  const fits = names.every(name => name.length * 7 + 6 < row.slot);
  const number = numbersOf(names);
  const short = !fits && number.every(text => text.length * 8 + 4 < row.slot);
  names.forEach((name, at) => {
    const group = node("g", { class: "switch", "data-tip": name }, svg), wide = fits ? Math.min(row.slot - 4, Math.max(row.box, name.length * 7 + 8)) : row.box;
    node("rect", { x: row.x[at] - wide / 2, y: row.y, width: wide, height: BOX, rx: row.box > 8 ? 4 : 0, "stroke-width": row.box > 4 ? 1 : 0.3 }, group);
    if (fits || short) node("text", { x: row.x[at], y: row.y + 14, "text-anchor": "middle", class: "small", "pointer-events": "none" }, group, fits ? name : number[at]);
  });
}

function drawKey(metric, steps) {
  const place = document.getElementById("topology-key"), words = METRIC[metric];
  place.replaceChildren();
  for (let step = 0; step <= 6; step += 1) {
    const item = document.createElement("span"), swatch = document.createElement("i");
    swatch.style.background = `var(--heat-${step})`;
    const low = words(steps[step - 1] || 0), above = words(steps[step] || 0);
    const text = step === 0 ? "none" : step === 1 ? `below ${above}` : step === 6 ? `${low} and more` : `${low.replace(" %", "")} to ${above}`;
    item.append(swatch, text);
    place.append(item);
  }
}

// A link of the table is shown in the drawing while its name is pointed at, or reached by keyboard.
function joinTable() {
  for (const button of document.querySelectorAll("#hottest td:first-child .choose")) {
    const name = button.textContent, link = data.topology.links.link.indexOf(name);
    if (link >= 0) { button.dataset.tip = ""; button.tip = () => linkTip(link); }
    joinButton(button, name);
  }
}

function joinButton(button, name) {
  const marks = () => document.querySelectorAll(`#topology-figure .link[data-name="${CSS.escape(name)}"]`);
  for (const [event, on] of [["mouseenter", true], ["focus", true], ["mouseleave", false], ["blur", false]])
    button.addEventListener(event, () => marks().forEach(mark => {
      mark.classList.toggle("shown", on);
      if (on) mark.parentNode.appendChild(mark);
    }));
}
