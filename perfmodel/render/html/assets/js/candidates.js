// Candidates with sliders: Amdahl's law, the joint gain, and the payback, as perfmodel.investment computes them.
const LARGEST = 100;

// perfmodel.investment.amdahl: total over what is left; changes of one part multiply, as perfmodel.investment.effect
const saved = row => row.target_time_s * (1 - 1 / row.speedup);
const amdahl = (total, rows) => total / (total - d3.sum(rows, saved));

// perfmodel.investment.economics: Economics.payback_days and .net_value over a year without discount
function payback(money, speedup, days) {
  const yearly = money.gpus * money.price * money.hours * (1 - 1 / speedup), cost = days * money.day;
  return { yearly, days: yearly > 0 ? cost / (yearly / 365) : Infinity, net: yearly - cost };
}

function candidates(parent, view) {
  const node = section(parent, view), result = make("p", node, "", { class: "result", "data-result": "joint", role: "status" });
  const worth = make("p", node, "", { class: "result", "data-result": "payback", role: "status" });
  const grid = make("table", make("div", node, null, { class: "scroll" })), head = make("tr", make("thead", grid)), body = make("tbody", grid);
  for (const [title, kind] of [["use", ""], ["change", ""], ["touches", "number"], ["its speedup", ""], ["days", ""], ["overall", "number"], ["saves", "number"], ["saves a day", "number"]]) make("th", head, title, { class: kind });
  const rows = view.rows.map(row => ({ ...row, speedup: row.speedup ?? Infinity, used: false }));
  rows.forEach((row, at) => {
    const line = make("tr", body), use = make("input", make("td", line), null, { type: "checkbox", "aria-label": `use ${row.name}` });
    make("td", line, row.name, { title: row.name, class: "what" });
    make("td", line, show(row.target_time_s, "s"), { class: "number" });
    const cell = make("td", line), slider = make("input", cell, null, { type: "range", min: 0, max: 1000, value: 1000 * Math.log(Math.min(Math.max(row.speedup, 1), LARGEST)) / Math.log(LARGEST), "aria-label": `speedup of ${row.name}` }), text = make("span", cell, "");
    const days = make("input", make("td", line), null, { type: "number", min: .1, step: .5, value: row.days, class: "short", "aria-label": `days of ${row.name}` });
    const overall = make("td", line, "", { class: "number" }), gain = make("td", line, "", { class: "number" }), daily = make("td", line, "", { class: "number" });
    row.box = use;
    row.used = at === 0;
    use.checked = row.used;
    row.update = () => { text.textContent = ` ${Number.isFinite(row.speedup) ? `${digits(row.speedup)} x` : "taken out"}`; overall.textContent = show(amdahl(view.total_s, [row]), "x"); gain.textContent = show(saved(row), "s"); daily.textContent = show(saved(row) / row.days, "s"); };
    slider.oninput = () => { row.speedup = Math.exp(slider.value / 1000 * Math.log(LARGEST)); update(); };
    days.oninput = () => { row.days = Math.max(.1, Number(days.value) || .1); update(); };
    use.onchange = () => { row.used = use.checked; if (row.used) exclude(row); update(); };
  });
  // changes of the same part exclude each other: what both would save of it is not known
  function exclude(row) {
    for (const other of rows) if (other !== row && other.targets.some(target => row.targets.includes(target))) { other.used = false; other.box.checked = false; }
  }
  const bar = make("div", node, null, { class: "bar", style: "margin:.6rem 0 0" }), money = { gpus: 0, price: 0, day: 0, hours: 8760 };
  make("span", bar, "Worth it?");
  for (const [key, title] of [["gpus", "GPUs"], ["price", "price of a GPU-hour"], ["day", "cost of a day"], ["hours", "hours a year"]]) {
    const input = labelled(bar, title, make("input", null, null, { type: "number", min: 0, step: "any", class: "short", value: money[key] || "" }));
    input.oninput = () => { money[key] = Math.max(0, Number(input.value) || 0); update(); };
  }
  function update() {
    rows.forEach(row => row.update());
    const used = rows.filter(row => row.used), whole = amdahl(view.total_s, used), days = d3.sum(used, row => row.days);
    result.textContent = used.length ? `Together ${whole.toFixed(3)} x: ${show(view.total_s, "s")} become ${show(view.total_s / whole, "s")}, for ${digits(days)} day${days === 1 ? "" : "s"}` : "Choose a change.";
    const ready = used.length && money.gpus && money.price && money.day && money.hours, made = ready ? payback(money, whole, days) : null;
    worth.textContent = made ? `Saves ${plain(Math.round(made.yearly), 6)} a year; paid back in ${Number.isFinite(made.days) ? `${digits(made.days)} days` : "never"}, net ${plain(Math.round(made.net), 6)} in the first year` : "";
  }
  make("p", node, "Speedups are of the parts that a change touches; changes of the same part exclude each other here. Amdahl: overall = total / (total - saved).", { class: "soft" });
  update();
}
