// Links over time: a slider over the frames of an iteration, a button that plays them, and a table of the busiest links.
// simtwin/report/over_time.py packs the frames. The view holds the time as `time`, in ns.
const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_", LEVEL_MAX = 4095;
const PLAY_MS = 250, CALM_MS = 1000, PLAY_STEPS = 120, BUSIEST_MAX = 10;

const hasFrames = () => Boolean(data.over_time && Object.keys(data.over_time).length);
const isOverTime = metric => metric.startsWith("now_");

// The frames of the filter's iteration, or of the first one.
function frames() {
  return data.over_time[view.get("iteration")] || data.over_time[firstFrames()];
}
const firstFrames = () => data.over_time[data.lanes.first] ? String(data.lanes.first) : Object.keys(data.over_time)[0];
const frameNow = () => Math.max(0, Math.min(frames().frames - 1, Math.floor(Number(view.get("time") || 0) / frames().step_ns)));

// Utilisation, or bytes in the queue, of a link at the slider's time.
function valueNow(metric, link) {
  const of = frames(), digits = of[metric === "now_busy" ? "busy" : "queue"][link], at = 2 * frameNow();
  if (!digits) return 0;
  const share = (DIGITS.indexOf(digits[at]) * 64 + DIGITS.indexOf(digits[at + 1])) / LEVEL_MAX;
  return metric === "now_busy" ? share : share * of.queue_max;
}

function frameWords() {
  const of = frames(), at = frameNow();
  return `${time(at * of.step_ns)} to ${time(Math.min(of.end_ns, (at + 1) * of.step_ns))}`;
}

// Brings the slider, its words and the table to the time of the view.
function showSlider(metric) {
  const of = frames(), slider = document.getElementById("topology-time"), now = document.getElementById("topology-now");
  const iteration = data.over_time[view.get("iteration")] ? view.get("iteration") : firstFrames();
  slider.max = of.frames - 1;
  slider.value = frameNow();
  const words = isOverTime(metric) ? `${frameWords()} of ${time(of.end_ns)}${Object.keys(data.over_time).length > 1 ? `, iteration ${iteration}` : ""}` : "the whole run; move the slider for a time";
  slider.setAttribute("aria-valuetext", words);
  now.textContent = words;
  document.getElementById("busiest").hidden = !isOverTime(metric);
  if (isOverTime(metric)) showBusiest(metric);
}

function showBusiest(metric) {
  const of = frames(), names = data.topology.links.link;
  const found = [...new Set([...Object.keys(of.busy), ...Object.keys(of.queue)])].map(Number).filter(isLinkShown)
    .map(link => ({ link, now_busy: valueNow("now_busy", link), now_queue: valueNow("now_queue", link) })).filter(it => it[metric] > 0);
  found.sort((one, other) => other[metric] - one[metric] || other.now_busy - one.now_busy || one.link - other.link);
  const table = document.createElement("table"), row = (parent, cells, tag) => {
    const line = parent.insertRow();
    cells.forEach((text, at) => { const cell = document.createElement(tag); cell.append(text); if (at && tag === "td") cell.className = "number"; if (tag === "th") cell.scope = "col"; line.append(cell); });
  };
  row(table.createTHead(), ["link", "utilisation", ...(data.packets ? ["longest queue"] : [])], "th");
  const body = table.createTBody();
  for (const it of found.slice(0, BUSIEST_MAX)) row(body, [linkButton(it.link), percent(it.now_busy), ...(data.packets ? [amount(it.now_queue)] : [])], "td");
  if (!found.length) row(body, ["no link at this time"], "td");
  document.querySelector("#busiest .wide").replaceChildren(table);
}

function linkButton(link) {
  const button = document.createElement("button"), name = data.topology.links.link[link];
  button.type = "button";
  button.className = "choose";
  button.textContent = name;
  button.addEventListener("click", () => chooseLink(link));
  joinButton(button, name);
  return button;
}

function addSlider() {
  const slider = document.getElementById("topology-time"), play = document.getElementById("topology-play"), choice = document.getElementById("topology-metric");
  let timer = null;
  slider.closest(".play").hidden = false;
  const show = () => {
    if (!isOverTime(choice.value)) {
      choice.value = "now_busy";
      choice.dispatchEvent(new Event("change"));
      return;
    }
    recolour(choice.value);
    showSlider(choice.value);
  };
  const to = frame => view.set({ time: String(frame * frames().step_ns) });
  slider.addEventListener("input", () => { const frame = Number(slider.value); if (frame === frameNow()) show(); to(frame); });
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; };
  play.addEventListener("click", () => {
    if (timer) { stop(); return; }
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches, step = Math.max(1, Math.ceil(frames().frames / PLAY_STEPS));
    if (frameNow() >= frames().frames - 1) to(0);
    show();
    play.textContent = "Pause";
    timer = setInterval(() => {
      to(Math.min(frameNow() + step, frames().frames - 1));
      if (frameNow() >= frames().frames - 1) stop();
    }, isCalm ? CALM_MS : PLAY_MS);
  });
  view.onChange(show, ["time"]);
  choice.addEventListener("change", () => { if (timer && !isOverTime(choice.value)) stop(); });
  if (view.get("time")) choice.value = "now_busy";
}
