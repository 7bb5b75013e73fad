// Swim lanes: rows of one or more lanes each, with slices on one time axis.
// `rows`: [{ name, strong }]; `lanes`: names of each row's lanes, with the CSS class of their slices; `slices`:
// [lane, row, kind, start, end, all there, name] in ns. The part of a collective before all members arrived is waiting.
function drawLanes(id, label, rows, lanes, slices, end) {
  const width = widthOf(id), narrow = width < 640;
  const named = !narrow || lanes.every(lane => lane.name.length < 6);
  const tall = lanes.length * 17 + 6, left = !named ? 66 : narrow ? 92 : 118, right = width - 12, high = Math.max(1, end);
  const svg = canvas(id, rows.length * tall + 34, label);
  timeAxis(svg, left, right, 2, rows.length * tall + 2, high);
  rows.forEach((row, i) => {
    const y = i * tall + 4;
    node("text", { x: 0, y: y + tall / 2 + 1, class: row.strong ? "strong" : "" }, svg, row.name);
    if (named) lanes.forEach((lane, k) => node("text", { x: left - 8, y: y + 12 + k * 16, "text-anchor": "end", class: "soft small" }, svg, lane.name));
  });
  for (const [lane, row, kind, start, stop, there, name] of slices) {
    const y = row * tall + 4 + lane * 17, x0 = left + (start / high) * (right - left), x1 = left + (stop / high) * (right - left);
    const coll = kind === "coll";
    const group = node("g", { "data-tip": "", class: `slice ${lanes[lane].slices}` }, svg);
    group.tip = () => `${rows[row].name}, ${lanes[lane].name}: ${name}\n${time(start)} to ${time(stop)}, ${time(stop - start)}${coll ? `, of which waiting ${time(there - start)}` : ""}`;
    if (!coll) { node("rect", { x: x0, y, width: Math.max(0.6, x1 - x0), height: 13, fill: `var(--${kind})` }, group); continue; }
    const x2 = left + (Math.min(there, stop) / high) * (right - left);
    node("rect", { x: x0, y, width: Math.max(0, x2 - x0), height: 13, fill: "var(--wait)" }, group);
    node("rect", { x: x2, y, width: Math.max(0.6, x1 - x2), height: 13, fill: lanes[lane].colour || "var(--wire)" }, group);
  }
}
