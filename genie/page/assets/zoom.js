// Zoom of a time axis: buttons, keys, wheel with Ctrl, pinch, and a span drawn with the mouse. The view holds the span
// as `zoom`, in ns. Figures with the same axis share it. `end`: a function that gives the end of the whole axis.
const SPAN_MIN_NS = 100, DRAG_MIN_PX = 6;

function spanOf(end) {
  const [low, high] = view.get("zoom").split("-").map(Number);
  return high > low && low < end ? [Math.max(0, low), Math.min(end, high)] : [0, end];
}

function zoomable(id, end, axis, draw) {
  const figure = document.getElementById(id), bar = document.createElement("div"), said = document.createElement("output");
  const help = document.createElement("span");
  bar.className = "zoom";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Zoom");
  figure.tabIndex = 0;
  figure.setAttribute("role", "group");
  figure.setAttribute("aria-label", "Timelines; keys zoom and move");
  figure.setAttribute("aria-describedby", `${id}-help`);
  figure.classList.add("zoomable");

  function to(low, high) {
    const all = end(), long = Math.min(all, Math.max(high - low, Math.min(SPAN_MIN_NS, all)));
    const from = Math.max(0, Math.min(low, all - long));
    view.set({ zoom: long >= all ? "" : `${Math.round(from)}-${Math.round(from + long)}` });
  }
  // `at`: the share of the span that stays where it is.
  function scale(factor, at = 0.5) {
    const [low, high] = spanOf(end()), middle = low + at * (high - low);
    to(middle - at * (high - low) * factor, middle + (1 - at) * (high - low) * factor);
  }
  function shift(share) {
    const [low, high] = spanOf(end()), by = share * (high - low);
    to(low + by, high + by);
  }
  const whole = () => view.set({ zoom: "" });
  const actions = [
    ["−", "Zoom out", () => scale(2)], ["+", "Zoom in", () => scale(0.5)], ["◀", "Earlier", () => shift(-0.25)],
    ["▶", "Later", () => shift(0.25)], ["Whole", "Show the whole time", whole],
  ];
  for (const [mark, name, action] of actions) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = mark;
    button.setAttribute("aria-label", name);
    button.addEventListener("click", action);
    bar.append(button);
  }
  said.setAttribute("role", "status");
  help.id = `${id}-help`;
  help.className = "aside";
  help.textContent = "Drag over a span, or Ctrl and wheel. Keys here: + and −, arrows, 0 or Home. ↓ leads to the rows.";
  bar.append(said, help);
  figure.before(bar);

  // Around the slice that has the focus; it keeps the focus while it is drawn.
  const middle = () => {
    const { left, width } = document.activeElement.closest(".slice")?.getBoundingClientRect() || {};
    return left === undefined ? 0.5 : share(left + width / 2);
  };
  const marks = () => { const svg = figure.querySelector("svg"); return svg?.reach && document.activeElement === figure ? svg : null; };
  const into = () => { const svg = marks(); svg.reach(svg.first); };
  const keys = { "+": () => scale(0.5, middle()), "=": () => scale(0.5, middle()), "-": () => scale(2, middle()), ArrowDown: into, ArrowLeft: () => shift(-0.25), ArrowRight: () => shift(0.25), 0: whole, Home: whole };
  figure.addEventListener("keydown", event => {
    if (event.defaultPrevented || hasModifier(event) || !keys[event.key] || (event.key === "ArrowDown" && !marks())) return;
    event.preventDefault();
    keys[event.key]();
  });
  const share = x => {
    const { left, right } = axis();
    return Math.max(0, Math.min(1, (x - figure.getBoundingClientRect().left - left) / (right - left)));
  };
  figure.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    scale(Math.exp(event.deltaY / 300), share(event.clientX));
  }, { passive: false });
  addPointers(figure, share, to, scale, () => spanOf(end()));

  function show() {
    const [low, high] = spanOf(end()), all = end();
    said.textContent = high - low < all ? `${time(low)} to ${time(high)} of ${time(all)}` : `all ${time(all)}`;
    draw();
  }
  view.onChange(show, ["zoom"]);
  return show;
}

// One pointer marks a span; two pinch.
function addPointers(figure, share, to, scale, span) {
  const down = new Map();
  let mark = null, apart = 0;
  const between = () => { const [one, other] = [...down.values()]; return [Math.abs(one - other), share((one + other) / 2)]; };
  const end = () => { mark?.remove(); mark = null; };
  figure.addEventListener("pointerdown", event => {
    if (event.button !== 0 || event.target.closest("button, .choose")) return;
    down.set(event.pointerId, event.clientX);
    if (down.size === 1) figure.dataset.from = event.clientX;
    else { end(); apart = between()[0]; }
  });
  figure.addEventListener("pointermove", event => {
    if (!down.has(event.pointerId)) return;
    down.set(event.pointerId, event.clientX);
    if (down.size === 2) {
      const [now, middle] = between();
      if (apart > 20 && now > 20) scale(apart / now, middle);
      apart = now;
      return;
    }
    const from = Number(figure.dataset.from), box = figure.getBoundingClientRect();
    if (Math.abs(event.clientX - from) < DRAG_MIN_PX) return;
    if (!mark) {
      mark = document.createElement("div");
      mark.className = "span";
      figure.append(mark);
      figure.setPointerCapture(event.pointerId);
    }
    mark.style.left = `${Math.min(from, event.clientX) - box.left}px`;
    mark.style.width = `${Math.abs(event.clientX - from)}px`;
  });
  figure.addEventListener("pointerup", event => {
    const from = Number(figure.dataset.from), wasDrawn = mark !== null && down.size === 1;
    down.delete(event.pointerId);
    end();
    if (!wasDrawn) return;
    const [low, high] = span(), [a, b] = [share(Math.min(from, event.clientX)), share(Math.max(from, event.clientX))];
    if (b > a) to(low + a * (high - low), low + b * (high - low));
  });
  figure.addEventListener("pointercancel", event => { down.delete(event.pointerId); end(); });
}
