// A table of thousands of rows: only those in sight are nodes; sorted by any column, filtered, columns shown on demand.
const ROW = 26;
const PRINTED_ROWS = 400;

async function table(parent, view, input) {
  const node = section(parent, view), bar = make("div", node, null, { class: "bar" });
  const rows = await unpackRows(view), name = `${input.number}-${view.key}`;
  origins.set(name, { rows, columns: view.columns, meanings: view.meanings, context: input.context, machine: input.machine });
  const search = labelled(bar, "Filter", make("input", null, null, { type: "search", "aria-label": "filter rows" }));
  const all = labelled(bar, "All columns", make("input", null, null, { type: "checkbox" }));
  const count = make("span", bar, "", { class: "soft", role: "status" });
  if (rows.length < 4) search.parentElement.hidden = true;
  const scroll = make("div", node, null, { class: "scroll", tabindex: 0, role: "region", "aria-label": view.title });
  const grid = make("table", scroll), head = make("tr", make("thead", grid)), body = make("tbody", grid);
  const cut = make("p", node, "", { class: "soft" });
  const numeric = view.columns.map((_, at) => rows.some(row => typeof row[at] === "number" || (row[at] && typeof row[at] === "object")));
  let order = rows.map((_, at) => at), kept = order, sorted = null, down = false, marked = -1;
  const shownColumns = () => view.columns.map((column, at) => [column, at]).filter(([column]) => all.checked || (column.shown && !column.prose));

  function cell(line, row, index, column, at) {
    const text = column.text === null ? show(row[at], column.unit) : row[column.text];
    const node = make("td", line, null, { class: numeric[at] ? "number" : "", title: text });
    if (column.origin && row[at] !== null && row[at] !== "") originButton(node, text, name, index, column.key);
    else node.textContent = text;
  }
  function draw(everything) {
    const columns = shownColumns(), height = scroll.clientHeight || 480;
    const first = everything ? 0 : Math.max(0, Math.floor(scroll.scrollTop / ROW) - 8);
    const last = Math.min(kept.length, everything ? PRINTED_ROWS : first + Math.ceil(height / ROW) + 24);
    const lines = document.createDocumentFragment();
    const spacer = count => make("td", make("tr", lines), null, { colspan: columns.length, style: `height:${count * ROW}px;padding:0` });
    if (first) spacer(first);
    for (let place = first; place < last; place += 1) {
      const line = make("tr", lines, null, kept[place] === marked ? { class: "mark" } : {});
      for (const [column, at] of columns) cell(line, rows[kept[place]], kept[place], column, at);
    }
    if (last < kept.length && !everything) spacer(kept.length - last);
    body.replaceChildren(lines);
    cut.textContent = everything && last < kept.length ? `The first ${last} of ${kept.length} rows.` : "";
    cut.hidden = !cut.textContent;
  }
  function refresh() {
    const words = search.value.toLowerCase();
    const matches = row => row.some(value => value !== null && String(typeof value === "object" ? JSON.stringify(value) : value).toLowerCase().includes(words));
    kept = words ? order.filter(at => matches(rows[at])) : order;
    count.textContent = `${kept.length} of ${rows.length} rows${view.left_out ? `, ${view.left_out} more in JSON` : ""}`;
    head.replaceChildren();
    for (const [column, at] of shownColumns()) {
      const state = sorted === at ? (down ? "descending" : "ascending") : "none";
      const cell = make("th", head, null, { scope: "col", "aria-sort": state, class: numeric[at] ? "number" : "" });
      const button = make("button", cell, column.title + (sorted === at ? (down ? " ▼" : " ▲") : ""), { title: `${column.key}${column.unit ? ` [${column.unit}]` : ""}: sort` });
      button.onclick = () => { down = sorted === at ? !down : numeric[at]; sorted = at; sort(); head.children[[...head.children].findIndex(one => one.getAttribute("aria-sort") !== "none")]?.firstChild.focus(); };
    }
    draw();
  }
  function sort() {
    const value = at => { const found = rows[at][sorted]; return found && typeof found === "object" ? found.mean ?? null : found; };
    const empty = found => found === null || found === undefined || found === "";
    order = rows.map((_, at) => at).sort((a, b) => {
      const x = value(a), y = value(b);
      if (empty(x) || empty(y)) return empty(x) - empty(y) || a - b;
      return (down ? -1 : 1) * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y))) || a - b;
    });
    refresh();
  }
  scroll.onscroll = () => draw();
  search.oninput = () => { scroll.scrollTop = 0; refresh(); };
  all.onchange = refresh;
  addEventListener("beforeprint", () => draw(true));
  addEventListener("afterprint", () => draw());
  refresh();
  function mark(found) {
    marked = found;
    if (marked < 0) return false;
    search.value = "";
    refresh();
    scroll.scrollTop = Math.max(0, kept.indexOf(marked) * ROW - 60);
    draw();
    node.scrollIntoView({ block: "nearest" });
    return true;
  }
  return { key: view.key, mark: text => mark(rows.findIndex(row => row.includes(text))), markRow: mark };
}
