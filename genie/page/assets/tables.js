// Tables: sorted by their headings, filtered by the view, with cells that choose what they name.
// A column with data-key has a property of its rows; "row" chooses all properties that the row names.
(() => {
  const textOf = cell => cell.textContent.trim();

  // Of a cell, for sorting: its value, or the number that it is; null where it has neither.
  function numberOf(cell) {
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    const text = textOf(cell).replace(/,(?=\d{3})/g, "").replace("−", "-").replace(/\s?%$/, "");
    return text !== "" && Number.isFinite(Number(text)) ? Number(text) : null;
  }
  const isEmpty = cell => cell.dataset.value === undefined && /^[–-]?$/.test(textOf(cell));

  function sort(table, at, direction) {
    const body = table.tBodies[0], rows = [...body.rows], cells = new Map(rows.map(row => [row, row.cells[at]]));
    const filled = rows.filter(row => !isEmpty(cells.get(row))), numbers = new Map(filled.map(row => [row, numberOf(cells.get(row))]));
    const isNumeric = filled.every(row => numbers.get(row) !== null);
    const words = new Intl.Collator("en", { numeric: true });
    filled.sort((one, other) => direction * (isNumeric ? numbers.get(one) - numbers.get(other) : words.compare(textOf(cells.get(one)), textOf(cells.get(other)))));
    body.append(...filled, ...rows.filter(row => isEmpty(cells.get(row)))); // without a value: last, in either direction
  }

  function addSorting(table) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...heading.childNodes);
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const direction = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        for (const other of headings) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
        sort(table, at, direction);
        setStops(table);
      });
    });
  }

  const columnsOf = table => [...table.tHead.rows[0].cells].map((heading, at) => [heading.dataset.key, at]).filter(([key]) => key);
  const ranksOf = text => (text.match(/\d+/g) || []).map(Number);

  // Values of the properties that a row has, by property. The cell that stands for the row may have links in data-link.
  function valuesOf(row, columns) {
    const found = {};
    for (const [key, at] of columns) if (key === "row") {
      if (row.cells[at]?.dataset.link) found.link = [row.cells[at].dataset.link];
    } else if (row.cells[at]) {
      const text = textOf(row.cells[at]);
      if (text !== "" && text !== "–") (found[key] ||= []).push(text);
    }
    return found;
  }

  function isShown(found) {
    const some = (key, test) => !found[key] || found[key].some(test);
    return some("rank", text => ranksOf(text).some(shows.rank)) && some("group", shows.group) && some("link", shows.link) && some("iteration", shows.iteration);
  }

  function filter(table) {
    const columns = columnsOf(table);
    if (!columns.length) return;
    for (const row of table.tBodies[0].rows) row.hidden = !isShown(valuesOf(row, columns));
    const hidden = [...table.tBodies[0].rows].filter(row => row.hidden).length, all = table.tBodies[0].rows.length;
    let note = table.nextElementSibling?.classList.contains("filtered") ? table.nextElementSibling : null;
    if (!note && hidden) {
      note = document.createElement("p");
      note.className = "filtered why";
      table.after(note);
    }
    if (note) note.textContent = hidden ? `The filter shows ${all - hidden} of ${all} row${all === 1 ? "" : "s"}.` : "";
    setStops(table);
  }

  const choice = (key, text) => key === "rank" ? ranksOf(text).join() : text;
  function choose(values) {
    const isChosen = Object.entries(values).every(([key, value]) => view.get(key) === value);
    view.set(isChosen ? Object.fromEntries(Object.keys(values).map(key => [key, ""])) : values);
  }

  // What a row names, as [property, value]. A name that is a part of all links stands for them.
  function namedBy(row, columns, text) {
    const isPart = links => links.split(",").every(link => link.includes(text));
    const found = Object.entries(valuesOf(row, columns)).filter(([key]) => FILTER.includes(key));
    return found.map(([key, [first]]) => [key, key === "link" && isPart(first) ? text : choice(key, first)]);
  }

  // Cells become buttons. A table is one stop of the Tab key; arrows lead from row to row.
  function addChoices(table) {
    if (!document.getElementById("view")) return;
    const columns = columnsOf(table);
    for (const row of table.tBodies[0].rows)
      for (const [key, at] of columns) {
        const cell = row.cells[at], text = textOf(cell);
        if (text === "" || text === "–" || (key === "rank" && !ranksOf(text).length) || (key === "row" && !namedBy(row, columns, text).length) || cell.querySelector("button")) continue;
        const button = document.createElement("button");
        button.type = "button";
        button.className = "choose";
        button.tabIndex = -1;
        button.dataset.at = at;
        button.append(...cell.childNodes);
        cell.append(button);
        button.addEventListener("click", () => {
          if (key !== "row") { choose({ [key]: choice(key, text) }); return; }
          choose(Object.fromEntries(namedBy(row, columns, text)));
        });
      }
    table.tBodies[0].addEventListener("keydown", event => move(table, event));
    setStops(table);
  }

  const buttonsOf = (table, at) => [...table.querySelectorAll(`tbody tr:not([hidden]) .choose${at === undefined ? "" : `[data-at="${at}"]`}`)];

  // The first shown row has the buttons that Tab reaches.
  function setStops(table) {
    const first = table.querySelector("tbody tr:not([hidden])");
    for (const button of table.querySelectorAll('.choose[tabindex="0"]')) button.tabIndex = -1;
    for (const button of first?.querySelectorAll(".choose") || []) button.tabIndex = 0;
  }

  function move(table, event) {
    const button = event.target.closest(".choose");
    if (!button) return;
    const own = buttonsOf(table, button.dataset.at), at = own.indexOf(button);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: own.length - 1 }[event.key];
    if (next === undefined || !own[next]) return;
    event.preventDefault();
    own[next].focus();
  }

  // A folded table gets its buttons when it is opened.
  function prepare(table) {
    const folded = table.closest("details:not([open])");
    if (table.tBodies[0].rows.length > 1) addSorting(table);
    if (folded) folded.addEventListener("toggle", () => addChoices(table), { once: true });
    else addChoices(table);
    filter(table);
  }
  const tables = [...document.querySelectorAll("table")].filter(table => table.tHead);
  tables.forEach(prepare);
  view.onChange(() => tables.forEach(filter));
})();
