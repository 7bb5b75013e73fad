// Queues over time, and on the same axis marks, pauses, drops and what congestion control lets senders send.
const LINES = ["--one", "--two", "--three", "--four", "--five", "--six"];

const HEADROOM = 10; // below a panel's title

function lineStyle(at) {
  return { stroke: `var(${LINES[at % LINES.length]})`, "stroke-dasharray": at < LINES.length ? "none" : "5 3" };
}

function chosenLinks() {
  const shown = [...document.querySelectorAll("#queue-links input")].filter(box => shows.link(data.queues.links[box.value].name));
  for (const box of document.querySelectorAll("#queue-links input")) box.parentNode.hidden = !shown.includes(box);
  const checked = shown.filter(box => box.checked);
  return (checked.length || !view.get("link") ? checked : shown).map(box => Number(box.value));
}

function panelsOf(drawn, chosen) {
  const links = chosen.map(at => ({ at, ...drawn.links[at] })), points = Math.round(drawn.end_ns / drawn.step_ns);
  const column = name => links.map(link => ({ at: link.at, values: link[name] }));
  const any = name => drawn.links.some(link => link[name].some(value => value > 0));
  const panels = [];
  if (any("longest_queue_bytes")) panels.push({ name: "queue", height: 200, base: 2, words: amount, series: column("longest_queue_bytes"), ecn: links.find(link => link.ecn)?.ecn });
  if (any("marked")) panels.push({ name: "marks", height: 70, words: whole, series: column("marked") });
  if (any("paused_ns")) panels.push({ name: "paused", height: 70, words: percent, high: 1,
    series: links.map(link => ({ at: link.at, values: link.paused_ns.map(ns => Math.min(1, ns / drawn.step_ns)) })) });
  if (any("dropped")) panels.push({ name: "drops", height: 60, words: whole, series: column("dropped") });
  panels.push({ name: "busy", height: panels.length ? 70 : 160, words: percent, high: 1, series: column("utilisation") });
  if (drawn.rates.length) panels.push({ name: "rates of pairs", height: 90, words: rate, range: drawn.rates, series: [] });
  return { panels, points };
}

function steppedPath(values, x, y) {
  let d = "", last = null;
  values.forEach((value, at) => {
    if (value === null) { last = null; return; }
    if (last === null) d += `M${x(at).toFixed(1)},${y(value).toFixed(1)}`;
    else if (value !== last) d += `V${y(value).toFixed(1)}`;
    d += `H${x(at + 1).toFixed(1)}`;
    last = value;
  });
  return d;
}

function drawQueues() {
  const drawn = data.queues, id = "queue-figure";
  if (!drawn || !drawn.links.length) return;
  const chosen = chosenLinks(), { panels, points } = panelsOf(drawn, chosen), width = widthOf(id), left = 78, right = width - 14;
  const tall = panels.reduce((sum, panel) => sum + panel.height + 26, 0), svg = canvas(id, tall + 24, "Queues, marks and pauses over time");
  const x = at => left + at / points * (right - left);
  timeAxis(svg, left, right, 8, tall - 4, drawn.end_ns);
  let top = 14;
  for (const panel of panels) {
    drawPanel(svg, panel, x, left, right, top);
    top += panel.height + 26;
  }
  const line = node("line", { y1: 8, y2: tall - 4, stroke: "var(--mark)", visibility: "hidden" }, svg);
  const area = node("rect", { x: left, y: 8, width: right - left, height: tall - 12, fill: "transparent", "data-tip": "", class: "times" }, svg);
  area.tip = event => {
    const box = svg.getBoundingClientRect(), at = Math.max(0, Math.min(points - 1, Math.floor((event.clientX - box.left - left) / (right - left) * points)));
    line.setAttribute("x1", x(at + 0.5)); line.setAttribute("x2", x(at + 0.5)); line.setAttribute("visibility", "visible");
    return [`${time(at * drawn.step_ns)} to ${time((at + 1) * drawn.step_ns)}`, ...chosen.map(number => queueWords(drawn.links[number], at)),
      ...(drawn.rates.length && drawn.rates[1][at] !== null ? [`pairs may send at ${rate(drawn.rates[0][at])} to ${rate(drawn.rates[2][at])}, median ${rate(drawn.rates[1][at])}`] : [])].join("\n");
  };
  for (const left of ["mouseleave", "blur"]) area.addEventListener(left, () => line.setAttribute("visibility", "hidden"));
  byPlace(svg, area, points);
}

function queueWords(link, at) {
  const said = [`${link.name}: ${percent(link.utilisation[at])} busy`];
  if (data.packets) said.push(`queue ${amount(link.longest_queue_bytes[at])}`);
  if (link.marked[at]) said.push(`${whole(link.marked[at])} marked`);
  if (link.paused_ns[at]) said.push(`paused ${time(link.paused_ns[at])}`);
  if (link.dropped[at]) said.push(`${whole(link.dropped[at])} dropped`);
  return said.join(", ");
}

function drawPanel(svg, panel, x, left, right, top) {
  const bottom = top + panel.height;
  const values = [...panel.series.flatMap(it => it.values), ...(panel.range ? panel.range[2].filter(value => value !== null) : [])];
  const high = panel.high || Math.max(1, values.reduce((most, value) => Math.max(most, value), 0)) * 1.05;
  const y = value => bottom - value / high * (panel.height - HEADROOM);
  for (const value of ticks(high, panel.height > 100 ? 5 : panel.height > 80 ? 3 : 2, panel.base)) {
    node("line", { x1: left, x2: right, y1: y(value), y2: y(value), stroke: "var(--grid)" }, svg);
    node("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end", class: "soft small" }, svg, value ? panel.words(value) : "0");
  }
  const title = node("text", { x: left + 4, y: top - 3, class: "small" }, svg, panel.name);
  title.style.cssText = "paint-order: stroke; stroke: var(--ground); stroke-width: 4px; font-weight: 600";
  for (const bytes of panel.ecn || [])
    if (bytes <= high) node("line", { x1: left, x2: right, y1: y(bytes), y2: y(bytes), stroke: "var(--alarm)", "stroke-dasharray": "2 4" }, svg);
  if (panel.ecn && right - left > 480) node("text", { x: right, y: top - 3, "text-anchor": "end", class: "soft small" }, svg, `dotted: marks some from ${amount(panel.ecn[0])}, all from ${amount(panel.ecn[1])}`);
  if (panel.range && right - left > 480) node("text", { x: right, y: top - 3, "text-anchor": "end", class: "soft small" }, svg, "what congestion control lets a pair send: median, least, greatest");
  if (panel.range) {
    const [low, middle, most] = panel.range;
    node("path", { d: steppedPath(low, x, y), fill: "none", stroke: "var(--wait)" }, svg);
    node("path", { d: steppedPath(most, x, y), fill: "none", stroke: "var(--wait)" }, svg);
    node("path", { d: steppedPath(middle, x, y), fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 }, svg);
  }
  for (const { at, values: line } of panel.series)
    node("path", { d: steppedPath(line, x, y), fill: "none", "stroke-width": 1.6, class: "line", ...lineStyle(at) }, svg);
}

function joinBoxes() {
  document.querySelectorAll("#queue-links label").forEach((label, at) => {
    label.querySelector("i").style.setProperty("--line-colour", lineStyle(at).stroke);
    if (at >= LINES.length) label.querySelector("i").style.background = `repeating-linear-gradient(90deg, ${lineStyle(at).stroke} 0 5px, transparent 5px 8px)`;
    label.querySelector("input").addEventListener("change", drawQueues);
  });
}
