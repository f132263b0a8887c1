// How a number was made: its formula, the row's own values, the terms that add up, the machine's figures and sources.
const dialog = document.getElementById("origin");
// "input-table" -> what opens the origin of a cell
const origins = new Map();

function cellName(row, columns) {
  const keys = ["name", "dimension", "deployment", "plan", "module", "metric", "op"];
  const at = keys.map(key => columns.findIndex(column => column.key === key)).find(place => place >= 0 && row[place]);
  return at === undefined ? "" : String(row[at]);
}

function openOrigin(table, index, key) {
  const made = origins.get(table);
  if (!made || !made.rows[index]) return false;
  const at = made.columns.findIndex(column => column.key === key && column.origin);
  if (at < 0) return false;
  drawOrigin(made, made.rows[index], made.columns[at], at);
  history.replaceState(null, "", `#${table}-${index}-${key}`);
  if (!dialog.open) dialog.showModal();
  return true;
}

function drawOrigin(made, row, column, at) {
  const valueOf = key => { const place = made.columns.findIndex(other => other.key === key); return place < 0 ? null : row[place]; };
  const unitOf = key => (made.columns.find(other => other.key === key) || { unit: "" }).unit;
  const origin = column.origin;
  dialog.replaceChildren();
  const close = make("button", dialog, "Close", { class: "close", type: "button" });
  close.onclick = () => dialog.close();
  make("h2", dialog, `${column.title || column.key}: ${cellName(row, made.columns)}`, { id: "origin-title" });
  make("p", dialog, column.text === null ? show(row[at], column.unit, 6) : row[column.text], { class: "big" });
  make("h3", dialog, "Formula");
  make("p", dialog, origin.formula, { class: "formula" });
  if (origin.terms && valueOf(origin.terms)) drawTerms(valueOf(origin.terms), origin.terms, made.meanings || {});
  drawInputs(origin.inputs.map(key => [key, valueOf(key), unitOf(key)]));
  if (origin.figures.length) drawFigures(String(valueOf("hardware") || made.machine || ""), origin.figures, String(valueOf("dtype") || ""), String(valueOf("family") || ""));
  if (origin.context && Object.keys(made.context).length) drawInputs(Object.entries(made.context).map(([key, value]) => [key, Array.isArray(value) ? value.join(", ") : value, ""]), "Conditions of the measurement");
  make("p", dialog, "Each such number has an address of its own: the one that the browser shows now.", { class: "soft" });
}

const unitOfKey = key => (key.endsWith("_bytes") ? "iB" : key.endsWith("_s") ? "s" : "");

function drawTerms(terms, key, meanings) {
  const shares = key === "interval_shares", unit = shares ? "fraction" : unitOfKey(key) || "s";
  const entries = Object.entries(terms).filter(([, value]) => typeof value === "number" && value > 0).sort((a, b) => b[1] - a[1]);
  const whole = d3.sum(entries, ([, value]) => value);
  make("h3", dialog, shares ? "Shares of the variance" : `Terms, together ${show(whole, unit)}`);
  const body = make("tbody", make("table", dialog));
  for (const [name, value] of entries) {
    const line = make("tr", body);
    make("td", line, name.replaceAll("_", " "));
    make("td", line, shares ? show(value, "fraction") : `${show(value, unit)}, ${show(value / whole, "fraction")}`, { class: "number" });
    make("span", make("td", line, null, { style: "width:30%" }), null, { class: "meter", style: `width:${100 * value / (shares ? 1 : whole)}%` });
    make("td", line, meanings[name] || "");
  }
}

function drawInputs(inputs, title = "From") {
  const known = inputs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  if (!known.length) return;
  make("h3", dialog, title);
  const body = make("tbody", make("table", dialog));
  for (const [key, value, unit] of known) {
    const line = make("tr", body);
    make("td", line, key.replaceAll("_", " "));
    const cell = make("td", line);
    if (value && typeof value === "object") {
      for (const [name, item] of Object.entries(value)) if (typeof item !== "object") make("div", cell, `${name.replaceAll("_", " ")} ${show(item, key.endsWith("_s") && name !== "samples" ? "s" : unitOfKey(name))}`);
    } else cell.textContent = show(value, unit, 6);
  }
}

function drawFigures(name, groups, dtype, family) {
  const machine = data.machines.machines[name] || (Object.keys(data.machines.machines).length === 1 ? Object.values(data.machines.machines)[0] : null);
  if (!machine) return;
  const wanted = machine.figures.filter(figure => groups.includes(figure.group) || (groups.includes("latency") && figure.group === `latency ${family}`));
  const chosen = wanted.filter(figure => figure.group !== "peak" || !dtype || figure.key === dtype);
  if (!chosen.length) return;
  make("h3", dialog, `Figures of ${machine.title}`);
  const grid = make("table", dialog), head = make("tr", make("thead", grid)), body = make("tbody", grid), notes = [];
  for (const title of ["figure", "datasheet or constant", "sustained", "source"]) make("th", head, title);
  const mark = number => { if (number === undefined) return ""; if (!notes.includes(number)) notes.push(number); return `[${notes.indexOf(number) + 1}]`; };
  for (const figure of chosen) {
    const line = make("tr", body);
    make("td", line, [figure.group, figure.key, figure.engine].filter(Boolean).join(" "));
    make("td", line, show(figure.value, figure.unit), { class: "number" });
    make("td", line, figure.sustained ? show(figure.sustained, figure.unit) : "", { class: "number" });
    make("td", line, [mark(figure.source), mark(figure.sustained_source)].filter(Boolean).join(" "));
  }
  if (!notes.length) return;
  const list = make("ol", dialog);
  for (const number of notes) make("li", list, data.machines.sources[number]);
}

dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });

function openAddress() {
  const found = /^#(\d+-[^-]+)-(\d+)-(\w+)$/.exec(decodeURIComponent(location.hash));
  return found ? openOrigin(found[1], Number(found[2]), found[3]) : false;
}
addEventListener("hashchange", openAddress);

// a number that opens its origin, by mouse or keyboard
function originButton(parent, text, table, index, key) {
  const button = make("button", parent, text, { class: "origin", type: "button", "data-origin": `${table}-${index}-${key}`, title: "How it was made" });
  button.onclick = event => { event.stopPropagation(); openOrigin(table, index, key); };
  return button;
}
