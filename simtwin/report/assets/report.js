// What ranks did, and the order in which the page is drawn.
const STATES = [["computing", "--comp"], ["waiting for the network", "--wire"], ["waiting for other ranks", "--wait"]];

const LANES = [{ name: "compute", slices: "compute" }, { name: "network", slices: "network" }];

// The iteration of the filter, or the longest one where the page has no room for that.
const laneIteration = () => data.lanes.iterations[view.get("iteration")] ? view.get("iteration") : String(data.lanes.first);
const laneEnd = () => data.lanes.iterations[laneIteration()].end;

function drawRanks() {
  const iteration = laneIteration(), few = new Set(data.lanes.few), missing = view.get("iteration") && iteration !== view.get("iteration");
  const rows = data.lanes.ranks.map(rank => ({ name: `rank ${rank}`, rank, isAside: !shows.limitsRanks() && !few.has(rank) }));
  if (data.lanes.has_path) rows.push({ name: "critical", strong: true, isAside: iteration !== String(data.lanes.first) });
  document.getElementById("lanes-note").textContent = missing ? `The page has no room for iteration ${view.get("iteration")}: this is iteration ${iteration}.` : "";
  drawLanes("lanes-figure", "Swim lanes of ranks", rows, LANES, data.lanes.iterations[iteration]);
}

// One path for each state, of all ranks' strips; the tip is found by where it is.
function drawStrips() {
  const drawing = data.lanes.iterations[laneIteration()], isShown = ([first, last]) => { for (let rank = first; rank <= last; rank += 1) if (shows.rank(rank)) return true; return false; };
  const shown = data.lanes.strip_ranks.map((ranks, at) => [ranks, drawing.strips[at]]).filter(([ranks]) => isShown(ranks)), strips = shown.map(([, strip]) => strip);
  const id = "strips", width = widthOf(id), left = 92, right = width - 12, bins = drawing.strips[0].length, [low, high] = spanOf(drawing.end);
  const tall = strips.length > 64 ? 5 : 10, svg = canvas(id, strips.length * tall + 30, "What all ranks did");
  timeAxis(svg, left, right, 2, strips.length * tall + 4, high, low);
  const x = bin => left + (Math.max(low, Math.min(high, bin / bins * drawing.end)) - low) / (high - low) * (right - left), d = STATES.map(() => "");
  strips.forEach((strip, row) => {
    const y = (row + 0.5) * tall + 3;
    for (let from = 0; from < bins;) {
      let to = from + 1;
      while (to < bins && strip[to] === strip[from]) to += 1;
      if (strip[from] < STATES.length && x(to) > x(from)) d[strip[from]] += `M${x(from).toFixed(1)},${y}H${x(to).toFixed(1)}`;
      from = to;
    }
  });
  STATES.forEach(([, colour], state) => node("path", { d: d[state], fill: "none", stroke: `var(${colour})`, "stroke-width": tall > 5 ? tall - 1 : tall }, svg));
  const every = Math.ceil(18 / tall), name = row => { const [first, last] = shown[row][0]; return first === last ? `rank ${first}` : `ranks ${first} to ${last}`; };
  for (let row = 0; row < strips.length; row += every) node("text", { x: left - 8, y: (row + 0.5) * tall + 7, "text-anchor": "end", class: "soft small" }, svg, name(row).replace("ranks ", "").replace(" to ", "–"));
  const area = node("rect", { x: left, y: 3, width: right - left, height: strips.length * tall, fill: "transparent", "data-tip": "", class: "strip" }, svg);
  area.tip = event => {
    const box = svg.getBoundingClientRect();
    const row = Math.max(0, Math.min(strips.length - 1, Math.floor((event.clientY - box.top - 3) / tall)));
    const bin = Math.max(0, Math.min(bins - 1, Math.floor((low + (event.clientX - box.left - left) / (right - left) * (high - low)) / drawing.end * bins)));
    const state = STATES[strips[row][bin]];
    return `${name(row)} at ${time((bin + 0.5) / bins * drawing.end)}: ${state ? state[0] : "idle"}`;
  };
  if (strips.length) byPlace(svg, area, Math.max(1, Math.round((high - low) / drawing.end * bins)), strips.length);
}

if (data.topology) {
  joinTable();
  if (hasFrames()) addSlider();
  drawn(drawTopology, "topology-metric");
}
if (data.queues && data.queues.links.length) { joinBoxes(); drawn(drawQueues); }
if (document.getElementById("flows-choice")) drawn(drawFlows, "flows-choice");
drawn(zoomable("lanes-figure", laneEnd, () => laneAxis("lanes-figure", LANES), () => {
  if (data.lanes.strip_ranks.length) drawStrips();
  drawRanks();
}));
