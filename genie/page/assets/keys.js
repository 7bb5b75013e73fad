// Figures by keyboard. A drawing is one stop of the Tab key. Arrows lead from mark to mark, Enter and Space do what a
// click does. A mark has the name of its tooltip from when it is reached, so that thousands need none before.
const SAME_ROW_PX = 4, RING_PX = 2;
const labelOf = mark => (mark.tip ? mark.tip(mark.place?.()) : mark.dataset.tip ?? mark.textContent).replaceAll("\n", "; ");
const hasModifier = event => event.ctrlKey || event.metaKey || event.altKey;

// Rows of a drawing's marks from above, each from the left.
function rowsOf(svg) {
  const placed = [...svg.querySelectorAll("[data-tip]")].map(mark => {
    const { x, y, width, height } = mark.getBBox();
    return { mark, x: x + width / 2, y: y + height / 2 };
  });
  const rows = [];
  for (const it of placed.sort((one, other) => one.y - other.y)) {
    if (!rows.length || it.y > rows.at(-1)[0].y + SAME_ROW_PX) rows.push([]);
    rows.at(-1).push(it);
  }
  return rows.map(row => row.sort((one, other) => one.x - other.x).map(it => it.mark));
}

// `rows`: gives the marks of each row, where a drawing orders them itself; one may stand in several rows. It is called
// when a key needs it. Marks with data-click answer to clicks. A figure that can be zoomed is itself the stop of the Tab
// key, and the arrow down leads into it.
function byKeys(svg, rows = () => rowsOf(svg), first = svg.querySelector("[data-tip]")) {
  const figure = svg.closest(".zoomable");
  let known = null;
  const all = () => (known ||= rows());
  if (!first) return;
  svg.setAttribute("role", "group");
  svg.first = first;
  svg.reach = mark => { nameMark(svg, mark, figure ? -1 : 0); mark.focus(); };
  svg.addEventListener("keydown", event => { if (!hasModifier(event)) move(svg, all(), figure, event); });
  if (!figure) nameMark(svg, first, 0);
  if (!svg.held) return;
  const held = all().flat().find(mark => labelOf(mark) === svg.held);
  if (held || !figure) svg.reach(held || first);
  else figure.focus();
}

function nameMark(svg, mark, tab) {
  svg.querySelector('[tabindex="0"]')?.setAttribute("tabindex", -1);
  give(mark, { tabindex: tab, role: mark.dataset.click === undefined ? "img" : "button", "aria-label": labelOf(mark) });
}

function move(svg, rows, figure, event) {
  const mark = event.target, at = rows.findIndex(row => row.includes(mark)), steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 };
  if (at < 0) return;
  const isList = rows.length === 1 || rows.every(row => row.length === 1), row = isList ? rows.flat() : rows[at];
  let next;
  if (event.key === "Enter" || event.key === " ") mark.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  else if (event.key === "Home") next = row[0];
  else if (event.key === "End") next = row.at(-1);
  else if (event.key === "Escape" && figure) figure.focus();
  else if (!steps[event.key]) return;
  else if (isList || /Left|Right/.test(event.key)) {
    next = row[row.indexOf(mark) + steps[event.key]];
    if (!next && figure) return; // the figure moves its time
  } else {
    for (let k = at + steps[event.key]; rows[k] && (!next || next === mark); k += steps[event.key]) next = nearest(rows[k], mark) || next;
    if (figure && steps[event.key] < 0 && (!next || next === mark)) figure.focus();
  }
  event.preventDefault();
  if (next) svg.reach(next);
}

// The mark of a row above or below another mark; of several, the one whose middle is nearest.
function nearest(row, mark) {
  const middleOf = ({ x, width }) => x + width / 2, middle = middleOf(mark.getBBox());
  const away = it => { const box = it.getBBox(); return Math.max(box.x - middle, middle - box.x - box.width, 0) + Math.abs(middleOf(box) - middle) / 1e4; };
  return row.length ? row.reduce((best, it) => away(it) < away(best) ? it : best) : null;
}

// A drawing that listens to these itself would be a stop of the Tab key.
document.addEventListener("focusin", event => {
  const svg = event.target.ownerSVGElement;
  if (svg?.reach && event.target.matches(":focus-visible")) ring(svg, event.target);
});
document.addEventListener("focusout", event => event.target.ownerSVGElement?.querySelector(".ring")?.remove());

// Around a mark; over it where it is a line.
function ring(svg, mark) {
  const line = mark.querySelector("path"), { x, y, width, height } = mark.getBBox(), low = [x, y].map(it => Math.max(1, it - RING_PX));
  if (line) node("path", { d: line.getAttribute("d"), class: "ring line" }, svg);
  else node("rect", { x: low[0], y: low[1], width: x + width + RING_PX - low[0], height: y + height + RING_PX - low[1], class: "ring" }, svg);
}

// An area whose tooltip depends on the place: keys move a point over its columns and rows.
function byPlace(svg, area, columns, rows = 1) {
  const at = [0, 0], last = [columns - 1, rows - 1], page = Math.ceil(columns / 10);
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], PageUp: [-page, 0], PageDown: [page, 0], Home: [-columns, 0], End: [columns, 0], ...(rows > 1 ? { ArrowUp: [0, -1], ArrowDown: [0, 1] } : {}) };
  area.place = () => {
    const { left, top, width, height } = area.getBoundingClientRect();
    return { clientX: left + (at[0] + 0.5) / columns * width, clientY: top + (at[1] + 0.5) / rows * height };
  };
  function say() {
    const words = area.tip(area.place());
    give(area, { "aria-valuenow": at[0], "aria-valuetext": words.replaceAll("\n", "; ") });
    return words;
  }
  svg.setAttribute("role", "group");
  give(area, { tabindex: 0, role: "slider", "aria-label": svg.getAttribute("aria-label"), "aria-valuemin": 0, "aria-valuenow": 0, "aria-valuemax": last[0] });
  area.addEventListener("focus", () => { say(); if (area.matches(":focus-visible")) mark(); });
  area.addEventListener("keydown", event => {
    if (!steps[event.key] || hasModifier(event)) return;
    event.preventDefault();
    steps[event.key].forEach((step, k) => { at[k] = Math.max(0, Math.min(last[k], at[k] + step)); });
    const { clientX, clientY } = area.place();
    showTip(say(), clientX, clientY);
    mark();
  });
  function mark() {
    const { x, y, width, height } = area.getBBox();
    svg.querySelector(".ring")?.remove();
    node("circle", { cx: x + (at[0] + 0.5) / columns * width, cy: y + (at[1] + 0.5) / rows * height, r: 5, class: "ring" }, svg);
  }
  if (svg.held) area.focus();
}

// Drawings that are in the page already: marks of one line, which is an element, are a row.
for (const svg of document.querySelectorAll("svg")) {
  const lines = new Map();
  for (const mark of svg.querySelectorAll("[data-tip]")) lines.set(mark.parentNode, [...(lines.get(mark.parentNode) || []), mark]);
  byKeys(svg, () => [...lines.values()]);
}
