// The view of a page: its filter, and what figures add to it, such as a zoom. The address holds it after the #, so that
// a link shows the same. Figures and tables read it by `view.get` and `shows`, and are called when it changes.
const FILTER = ["rank", "group", "link", "iteration"];
const view = (() => {
  let state = read();
  const listeners = [];
  function read() {
    const text = location.hash.slice(1);
    return text.includes("=") ? Object.fromEntries(new URLSearchParams(text)) : {};
  }
  function write() {
    const text = Object.entries(state).map(([key, value]) => `${key}=${encodeURIComponent(value).replaceAll("%2C", ",").replaceAll("%3E", ">")}`).join("&");
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }
  const tell = changed => listeners.forEach(([listener, keys]) => { if (changed.some(key => keys.includes(key))) listener(); });
  addEventListener("hashchange", () => {
    const before = state, after = read();
    state = after;
    tell([...new Set([...Object.keys(before), ...Object.keys(after)])].filter(key => before[key] !== after[key]));
  });
  return {
    get: key => state[key] ?? "",
    // Values by key; "" removes one.
    set(values) {
      const changed = Object.keys(values).filter(key => (state[key] ?? "") !== values[key]);
      if (!changed.length) return;
      for (const key of changed) if (values[key] === "") delete state[key]; else state[key] = String(values[key]);
      write();
      tell(changed);
    },
    onChange: (listener, keys = FILTER) => listeners.push([listener, keys]),
  };
})();

// "0-7,12" as a set of numbers; null where the text is something else.
// Whether a name has a part; `leaf1` is no part of `leaf10`.
function hasPart(name, part) {
  const isDigit = at => /\d/.test(name[at] ?? "");
  for (let at = name.indexOf(part); at >= 0; at = name.indexOf(part, at + 1)) {
    const end = at + part.length;
    if (!(isDigit(at) && isDigit(at - 1)) && !(isDigit(end - 1) && isDigit(end))) return true;
  }
  return false;
}

function ranksIn(text) {
  const ranks = new Set();
  for (const part of text.split(/[\s,;]+/).filter(it => it)) {
    const [, first, last] = part.match(/^(\d+)(?:[-–](\d+))?$/) || [];
    if (first === undefined || (last !== undefined && Number(last) - Number(first) > 1e6)) return null;
    for (let rank = Number(first); rank <= Number(last ?? first); rank += 1) ranks.add(rank);
  }
  return ranks;
}

// Whether something passes the filter. A rank also has to be in the chosen group.
const shows = (() => {
  const known = data.view || { ranks: "", members: {}, iterations: [] }, all = ranksIn(known.ranks);
  const groups = Object.fromEntries(Object.entries(known.members).map(([group, text]) => [group, ranksIn(text)]));
  let ranks, group, links, iteration, met; // `met`: groups with a rank of the filter
  function read() {
    ranks = view.get("rank") ? ranksIn(view.get("rank")) : null;
    group = view.get("group");
    links = view.get("link").split(",").map(it => it.trim()).filter(it => it);
    iteration = view.get("iteration");
    met = new Set(Object.keys(groups).filter(name => !ranks || [...groups[name]].some(number => ranks.has(number))));
  }
  read();
  view.onChange(read);
  const rank = number => (!ranks || ranks.has(number)) && (!group || !groups[group] || groups[group].has(number));
  return {
    rank,
    group: name => name === "" || ((!group || name === group) && (!groups[name] || met.has(name))),
    link: name => !links.length || links.some(it => hasPart(name.toLowerCase(), it.toLowerCase())),
    iteration: number => !iteration || String(number) === iteration,
    isWhole: () => !ranks && !group && !links.length && !iteration,
    limitsRanks: () => Boolean(ranks || group),
    words() {
      const shown = [...all].filter(rank).length;
      const parts = shown < all.size || ranks ? [`${shown} of ${all.size} ranks`] : all.size > 1 ? [`all ${all.size} ranks`] : [];
      if (group) parts.push(`group ${group}`);
      if (links.length) parts.push(`links with “${links.join("” or “")}”`);
      if (iteration) parts.push(`iteration ${iteration}`);
      return parts.join(", ");
    },
  };
})();

(() => {
  const form = document.getElementById("view");
  if (!form) return;
  const fields = [...form.elements].filter(field => field.name), said = document.getElementById("view-said");
  form.hidden = false;
  function show() {
    for (const field of fields) if (field !== document.activeElement || field.tagName === "SELECT" || field.value === "" || !view.get(field.name)) field.value = view.get(field.name);
    for (const field of fields) field.removeAttribute("aria-invalid");
    said.textContent = shows.words();
    for (const choice of document.querySelectorAll("select[data-follows]")) {
      const value = view.get(choice.dataset.follows), options = [...choice.options];
      const option = options.find(it => it.value === value) || (value === "" && options.find(it => it.defaultSelected));
      if (!option || option.selected) continue;
      option.selected = true;
      choice.dispatchEvent(new Event("change"));
    }
  }
  // A text that is not finished yet is refused when the field is left.
  function take(field, isLeft) {
    const text = field.value.trim();
    if (field.name === "rank" && !ranksIn(text)) {
      if (isLeft) field.setAttribute("aria-invalid", "true");
      if (isLeft) said.textContent = "Ranks are numbers and ranges, such as 0-7,12. The filter is as before.";
      return;
    }
    field.removeAttribute("aria-invalid");
    view.set({ [field.name]: text });
  }
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("reset", event => { event.preventDefault(); for (const field of fields) field.value = ""; view.set(Object.fromEntries(FILTER.map(key => [key, ""]))); show(); });
  for (const field of fields) {
    field.addEventListener("input", () => take(field, false));
    field.addEventListener("change", () => take(field, true));
  }
  view.onChange(() => {
    show();
    drawings.forEach(again => again());
  });
  addEventListener("DOMContentLoaded", show); // figures are drawn by then
})();

// The skip link moves the focus and leaves the address alone.
document.querySelector(".skip").addEventListener("click", event => { event.preventDefault(); document.getElementById("content").focus(); });
