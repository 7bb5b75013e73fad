// What ranks did, and the order in which the page is drawn.
const STATES = [["computing", "--comp"], ["waiting for the network", "--wire"], ["waiting for other ranks", "--wait"]];

function drawRanks() {
  const rows = data.lanes.ranks.map(rank => ({ name: `rank ${rank}` }));
  rows.push({ name: "critical", strong: true });
  const lanes = [{ name: "compute", slices: "compute" }, { name: "network", slices: "network" }];
  drawLanes("lanes-figure", "Swim lanes of ranks", rows, lanes, data.lanes.slices, data.lanes.end);
}

// One path for each state, of all ranks' strips; the tip is found by where it is.
function drawStrips() {
  const strips = data.lanes.strips, id = "strips", width = widthOf(id), left = 92, right = width - 12, bins = strips[0].length;
  const tall = strips.length > 64 ? 5 : 10, svg = canvas(id, strips.length * tall + 30, "What all ranks did");
  timeAxis(svg, left, right, 2, strips.length * tall + 4, data.lanes.end);
  const x = bin => left + bin / bins * (right - left), d = STATES.map(() => "");
  strips.forEach((strip, row) => {
    const y = (row + 0.5) * tall + 3;
    for (let from = 0; from < bins;) {
      let to = from + 1;
      while (to < bins && strip[to] === strip[from]) to += 1;
      if (strip[from] < STATES.length) d[strip[from]] += `M${x(from).toFixed(1)},${y}H${x(to).toFixed(1)}`;
      from = to;
    }
  });
  STATES.forEach(([, colour], state) => node("path", { d: d[state], fill: "none", stroke: `var(${colour})`, "stroke-width": tall > 5 ? tall - 1 : tall }, svg));
  const every = Math.ceil(18 / tall), name = row => { const [first, last] = data.lanes.strip_ranks[row]; return first === last ? `rank ${first}` : `ranks ${first} to ${last}`; };
  for (let row = 0; row < strips.length; row += every) node("text", { x: left - 8, y: (row + 0.5) * tall + 7, "text-anchor": "end", class: "soft small" }, svg, name(row).replace("ranks ", "").replace(" to ", "–"));
  const area = node("rect", { x: left, y: 3, width: right - left, height: strips.length * tall, fill: "transparent", "data-tip": "", class: "strip" }, svg);
  area.tip = event => {
    const box = svg.getBoundingClientRect();
    const row = Math.max(0, Math.min(strips.length - 1, Math.floor((event.clientY - box.top - 3) / tall)));
    const bin = Math.max(0, Math.min(bins - 1, Math.floor((event.clientX - box.left - left) / (right - left) * bins)));
    const state = STATES[strips[row][bin]];
    return `${name(row)} at ${time((bin + 0.5) / bins * data.lanes.end)}: ${state ? state[0] : "idle"}`;
  };
}

if (data.topology) { drawn(drawTopology, "topology-metric"); joinTable(); }
if (data.queues && data.queues.links.length) { joinBoxes(); drawn(drawQueues); }
if (document.getElementById("flows-choice")) drawn(drawFlows, "flows-choice");
if (data.lanes.strips) drawn(drawStrips);
drawn(drawRanks);
