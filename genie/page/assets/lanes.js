// Swim lanes: rows of one or more lanes each, with slices on one time axis that can be zoomed.
// `rows`: [{ name, strong, rank, isAside }], without those aside; `lanes`: names of each row's lanes, with the CSS class of their slices. The part of a
// collective before all members arrived is waiting. Rows and slices that the filter leaves out are not drawn.
const ROWS_TALL = 32, THIN_PX = 0.5, ALONE_PX = 1.5;

// Slices as genie/page/lanes.py packs them, once for each drawing.
function unpacked(drawing) {
  if (drawing.slices) return drawing.slices;
  const { unit, words } = drawing;
  drawing.slices = drawing.lanes.flatMap(([lane, row, numbers]) => {
    const found = [];
    for (let at = 0, ended = 0; at < numbers.length; at += 4) {
      const start = ended + numbers[at], stop = start + numbers[at + 1], [kind, name, group] = words[numbers[at + 3]];
      ended = stop;
      found.push({ lane, row, kind, name, group, start: start * unit, stop: stop * unit, there: (start + numbers[at + 2]) * unit });
    }
    return found;
  });
  return drawing.slices;
}

const laneAxis = (id, lanes) => {
  const width = widthOf(id), narrow = width < 640, named = !narrow || lanes.every(lane => lane.name.length < 6);
  return { left: !named ? 66 : narrow ? 92 : 118, right: width - 12, named };
};

function drawLanes(id, label, rows, lanes, drawing) {
  const { left, right, named } = laneAxis(id, lanes), [low, high] = spanOf(Math.max(1, drawing.end));
  const shown = rows.map((row, at) => ({ ...row, at })).filter(row => !row.isAside && (row.rank === undefined || shows.rank(row.rank)));
  const isLow = shown.length > ROWS_TALL, step = isLow ? 8 : 17, thick = isLow ? 7 : 13, tall = lanes.length * step + (isLow ? 4 : 6);
  const svg = canvas(id, shown.length * tall + 34, label), place = new Map(shown.map((row, at) => [row.at, at]));
  timeAxis(svg, left, right, 2, shown.length * tall + 2, high, low);
  const click = row => row.rank !== undefined && document.getElementById("view") ? { "data-click": "" } : {}, marks = [];
  shown.forEach((row, i) => {
    const y = i * tall + 4;
    const name = node("text", { x: 0, y: y + tall / 2 + 1, class: `row${row.strong ? " strong" : ""}`, "data-row": row.at, ...click(row) }, svg, row.name);
    marks.push(...lanes.map(() => [name]));
    if (named && !isLow) lanes.forEach((lane, k) => node("text", { x: left - 8, y: y + 12 + k * 16, "text-anchor": "end", class: "soft small" }, svg, lane.name));
  });
  if (shown.every(row => row.rank === undefined) && rows.some(row => row.rank !== undefined)) node("text", { x: left, y: shown.length * tall + 14, class: "soft" }, svg, "no rank of the filter is drawn here");
  chooseRows(svg, rows);
  const x = ns => left + (Math.max(low, Math.min(high, ns)) - low) / (high - low) * (right - left), reached = new Map(), thin = new Map();
  for (const slice of unpacked(drawing)) {
    const row = place.get(slice.row);
    if (row === undefined || slice.stop < low || slice.start > high || !shows.group(slice.group)) continue;
    const x0 = x(slice.start), x1 = x(slice.stop), lane = slice.row * lanes.length + slice.lane;
    // Where several slices share a pixel, the first one is drawn.
    if (x1 - x0 < THIN_PX && x0 < (reached.get(lane) ?? -1) + THIN_PX) continue;
    reached.set(lane, Math.max(x1, x0 + THIN_PX));
    if (x1 - x0 < ALONE_PX) {
      const y = row * tall + 4 + slice.lane * step + thick / 2, colour = slice.kind === "coll" ? lanes[slice.lane].colour || "var(--wire)" : `var(--${slice.kind})`;
      thin.set(colour, `${thin.get(colour) || ""}M${x0.toFixed(1)},${y}h${Math.max(0.6, x1 - x0).toFixed(1)}`);
      continue;
    }
    marks[row * lanes.length + slice.lane].push(drawSlice(svg, slice, rows[slice.row], lanes[slice.lane], click(rows[slice.row]), row * tall + 4 + slice.lane * step, thick, x0, x1, x(Math.min(slice.there, slice.stop))));
  }
  // Slices too thin to point at: one path of each colour, so that many ranks are drawn quickly.
  for (const [colour, d] of thin) node("path", { d, fill: "none", stroke: colour, "stroke-width": thick, class: "thin", "data-tip": "several short nodes: zoom in to tell them apart" }, svg);
  byKeys(svg, () => marks, marks[0]?.[0]);
}

// A click on a row's name or on one of its slices chooses its rank; another click chooses all again.
function chooseRows(svg, rows) {
  if (!document.getElementById("view")) return;
  svg.addEventListener("click", event => {
    const rank = rows[event.target.closest("[data-row]")?.dataset.row]?.rank;
    if (rank !== undefined) view.set({ rank: view.get("rank") === String(rank) ? "" : String(rank) });
  });
}

function drawSlice(svg, slice, row, lane, click, y, height, x0, x1, x2) {
  const isColl = slice.kind === "coll", look = { "data-tip": "", "data-row": slice.row, class: `slice ${lane.slices}`, ...click };
  const group = isColl ? node("g", look, svg) : node("rect", { ...look, x: x0, y, width: Math.max(0.6, x1 - x0), height, fill: `var(--${slice.kind})` }, svg);
  group.tip = () => `${row.name}, ${lane.name}: ${slice.name}\n${time(slice.start)} to ${time(slice.stop)}, ${time(slice.stop - slice.start)}${isColl ? `, of which waiting ${time(slice.there - slice.start)}` : ""}${slice.group ? `\ngroup ${slice.group}` : ""}`;
  if (!isColl) return group;
  node("rect", { x: x0, y, width: Math.max(0, x2 - x0), height, fill: "var(--wait)" }, group);
  node("rect", { x: x2, y, width: Math.max(0.6, x1 - x2), height, fill: lane.colour || "var(--wire)" }, group);
  return group;
}
