// Errors and changes: predicted against measured, rows inside their interval, and after over before.

// ticks of a logarithmic axis: decades, on short axes with steps between them, so many that their texts do not touch
function decades(low, high, most) {
  for (const steps of [[1, 1.5, 2, 2.5, 3, 4, 5, 6, 8], [1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) for (const step of steps) found.push(step * 10 ** power);
    const inside = found.filter(value => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
    if (inside.length <= most) return inside;
    if (steps.length === 1) return inside.filter((_, at) => at % Math.ceil(inside.length / most) === 0);
  }
  return [];
}

const isInside = point => point.low !== null && point.high !== null && point.low <= point.measured && point.measured <= point.high;
const MOST_WHISKERS = 60, EVERY = "all groups";

function judged(parent, view) {
  const node = section(parent, view), bar = make("div", node, null, { class: "bar" });
  let quantity = view.quantities[0], group = EVERY;
  const groupsOf = () => view.groups.map((name, at) => ({ name, at })).filter(one => quantity.points.some(point => point.group === one.at));
  const shownPoints = () => quantity.points.filter(point => group === EVERY || view.groups[point.group] === group);
  let drawing = null, chooser = null;
  const key = () => { legend.textContent = ""; write(); };
  if (view.quantities.length > 1) select(bar, "Quantity", view.quantities.map(one => one.name), event => {
    quantity = view.quantities.find(one => one.name === event.target.value);
    group = EVERY;
    offer();
    drawing.redraw();
    key();
  });
  const holder = make("span", bar);
  function offer() {
    holder.textContent = "";
    if (groupsOf().length > 1) chooser = select(holder, "Group", [EVERY, ...groupsOf().map(one => one.name)], () => { group = chooser.value; drawing.redraw(); key(); });
  }
  offer();
  drawing = chart(node, `${view.title}: ${quantity.points.length} points`, (svg, width) => {
    const points = shownPoints(), side = Math.min(width, 620), M = { l: 74, r: 16, t: 22, b: 42 }, height = Math.round(Math.max(280, Math.min(side * .82, 480)));
    const whiskers = points.length <= MOST_WHISKERS, ends = points.flatMap(point => [point.measured, point.predicted, ...(whiskers && point.low && point.high ? [point.low, point.high] : [])]);
    const room = ends.length && d3.max(ends) / d3.min(ends) < 1.5 ? 2 : 1.25, domain = [d3.min(ends) / room, d3.max(ends) * room];
    const x = d3.scaleLog(domain, [M.l, side - M.r]), y = d3.scaleLog(domain, [height - M.b, M.t]), names = groupsOf().map(one => one.name), pen = scale(names);
    const coloured = names.length <= MOST_SLOTS, fill = point => (coloured ? pen(view.groups[point.group]) : colour(0)), text = value => show(value, quantity.unit, 3);
    const axis = svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height - M.b})`);
    axis.call(d3.axisBottom(x).tickValues(decades(...domain, Math.floor((side - M.l - M.r) / 78))).tickFormat(text));
    svg.append("g").attr("class", "axis").attr("transform", `translate(${M.l},0)`).call(d3.axisLeft(y).tickValues(decades(...domain, Math.floor((height - M.t - M.b) / 34))).tickFormat(text));
    svg.append("text").attr("x", (side + M.l) / 2).attr("y", height - 5).attr("text-anchor", "middle").text("measured");
    svg.append("text").attr("x", 4).attr("y", 12).text("predicted");
    const line = (factor, dash) => svg.append("line").attr("x1", x(Math.max(domain[0], domain[0] / factor))).attr("y1", y(Math.max(domain[0], domain[0] * factor))).attr("x2", x(Math.min(domain[1], domain[1] / factor))).attr("y2", y(Math.min(domain[1], domain[1] * factor))).attr("stroke", "currentColor").attr("stroke-opacity", dash ? .45 : .7).attr("stroke-dasharray", dash);
    line(1, null);
    for (const factor of [1.2, 1 / 1.2]) line(factor, "5 4");
    if (whiskers) svg.append("g").selectAll("line").data(points.filter(point => point.low && point.high)).join("line").attr("x1", point => x(point.measured)).attr("x2", point => x(point.measured)).attr("y1", point => y(point.low)).attr("y2", point => y(point.high)).attr("stroke", fill).attr("stroke-opacity", .55).attr("stroke-width", 1.5);
    const circles = svg.append("g").selectAll("circle").data(points).join("circle").attr("cx", point => x(point.measured)).attr("cy", point => y(point.predicted)).attr("r", whiskers ? 4 : 3)
      .attr("fill", point => (isInside(point) ? fill(point) : "var(--card)")).attr("fill-opacity", point => (isInside(point) ? .6 : 1)).attr("stroke", fill).attr("stroke-width", 1.2);
    if (whiskers) circles.attr("tabindex", 0);
    hinted(circles, point => [view.groups[point.group], `measured ${text(point.measured)}`, `predicted ${text(point.predicted)}${point.low && point.high ? ` (80 %: ${text(point.low)} to ${text(point.high)})` : ""}`, `predicted / measured ${digits(point.predicted / point.measured, 3)}`, point.low && point.high ? (isInside(point) ? "inside the interval" : "outside the interval") : "no interval"].join("\n"));
    return height;
  });
  const legend = make("p", node, "", { class: "soft" });
  function write() {
    const names = groupsOf().map(one => one.name), pen = scale(names), points = shownPoints(), stated = points.filter(point => point.low && point.high);
    if (names.length > 1 && names.length <= MOST_SLOTS && group === EVERY) for (const name of names) swatch(legend, pen(name), name);
    const share = stated.length > 1 ? `${show(stated.filter(isInside).length / stated.length, "fraction")} of the ${stated.length} drawn lie inside. ` : "";
    make("span", legend, `Filled: inside the 80 % interval; hollow: outside. ${share}Line: equal; dashed: 20 % off.${view.left_out ? ` A sample, with as many rows of each group: ${view.left_out} more are not drawn.` : ""}`);
  }
  write();
  if (!bar.textContent) bar.remove();
}

function coverage(parent, view) {
  const node = section(parent, view), TALL = 38, STATED = .8, FEW = 10;
  chart(node, `${view.title}: ${view.groups.map(one => `${one.name} ${show(one.inside, "fraction")}`).slice(0, 10).join(", ")}`, (svg, width) => {
    const wide = Math.max(120, width - 190), x = d3.scaleLinear([0, 1], [0, wide]);
    const row = svg.selectAll("g").data(view.groups).join("g").attr("transform", (_, at) => `translate(0,${TALL * at + 14})`).attr("tabindex", 0);
    row.append("text").attr("y", 12).attr("class", "halo").attr("font-weight", one => (one.whole ? 650 : 400)).text(one => clipped(one.name, width - 4));
    row.append("rect").attr("y", 17).attr("height", 12).attr("width", wide).attr("fill", "currentColor").attr("fill-opacity", .08);
    row.filter(one => one.inside !== null).append("rect").attr("y", 17).attr("height", 12).attr("width", one => x(one.inside)).attr("fill", one => (one.whole ? colour(6) : colour(0))).attr("fill-opacity", one => (one.rows < FEW ? .4 : .85));
    row.append("line").attr("x1", x(STATED)).attr("x2", x(STATED)).attr("y1", 15).attr("y2", 31).attr("stroke", colour(1)).attr("stroke-width", 2);
    row.append("text").attr("x", wide + 6).attr("y", 27).text(one => clipped(`${one.inside === null ? "no interval" : show(one.inside, "fraction")} of ${plain(one.rows, 4)}, off ${show(one.mape, "fraction")}`, width - wide - 8));
    hinted(row, one => [one.name, `${plain(one.rows, 4)} rows`, one.inside === null ? "no interval is stated" : `${show(one.inside, "fraction")} inside the 80 % interval`, `off by ${show(one.mape, "fraction")} in the mean`, one.bias !== null && `predicted / measured - 1: ${show(one.bias, "fraction")} in the mean`, one.width !== null && `high / low end of the interval: ${digits(one.width, 3)}`].filter(Boolean).join("\n"));
    svg.append("text").attr("x", x(STATED)).attr("y", 11).attr("text-anchor", "middle").attr("class", "soft").text("80 %");
    return TALL * view.groups.length + 12;
  });
  make("p", node, `Bar: share of the rows whose measurement lies inside the interval, which states 80 %; off: mean of |predicted / measured - 1|. Least first, wholes in grey; pale: fewer than ${FEW} rows.${view.left_out ? ` ${view.left_out} more groups are in the table.` : ""}`, { class: "soft" });
}

const VERDICT_COLOURS = { slower: 1, faster: 0, unclear: 4, same: 6 };

function changes(parent, view) {
  const node = section(parent, view), TALL = 40, MOST_FACTOR = 4, pen = row => colour(VERDICT_COLOURS[row.verdict] ?? 6);
  make("p", node, view.decision, { class: "decision" });
  const whole = view.after_s - view.before_s, all = d3.max(view.rows, row => Math.abs(row.after_s - row.before_s));
  const furthest = d3.max(view.rows, row => Math.max(row.ratio, 1 / row.ratio)), far = Math.min(MOST_FACTOR * furthest, Math.max(1.05, furthest, d3.max(view.rows, row => Math.max(row.high || 1, 1 / (row.low || 1))))) ** 1.08;
  chart(node, view.title, (svg, width) => {
    const right = 150, wide = Math.max(120, width - right), x = d3.scaleLog([1 / far, far], [8, wide - 8]).clamp(true), whole_height = TALL * view.rows.length;
    const label = value => `${digits(value, 3)} x`;
    const fitting = Math.max(2, Math.floor(wide / 64)), places = far < 1.6 ? d3.ticks(1 / far, far, fitting) : decades(1 / far, far, fitting), marks = d3.sort([...places.filter(value => Math.abs(x(value) - x(1)) > 44), 1]);
    const axis = svg.append("g").attr("class", "axis").attr("transform", "translate(0,20)").call(d3.axisTop(x).tickValues(marks).tickFormat(label));
    axis.selectAll("text").attr("y", -8);
    const lines = svg.append("g");
    if (view.threshold) lines.append("rect").attr("x", x(1 - view.threshold)).attr("width", Math.max(1, x(1 + view.threshold) - x(1 - view.threshold))).attr("y", 20).attr("height", whole_height).attr("fill", "currentColor").attr("fill-opacity", .07);
    lines.append("line").attr("x1", x(1)).attr("x2", x(1)).attr("y1", 20).attr("y2", 20 + whole_height).attr("stroke", "currentColor").attr("stroke-opacity", .5);
    if (view.limit) lines.append("line").attr("x1", x(1 + view.limit)).attr("x2", x(1 + view.limit)).attr("y1", 20).attr("y2", 20 + whole_height).attr("stroke", colour(1)).attr("stroke-dasharray", "5 4");
    const row = svg.selectAll("g.row").data(view.rows).join("g").attr("class", "row").attr("transform", (_, at) => `translate(0,${TALL * at + 22})`).attr("tabindex", 0);
    row.append("text").attr("y", 13).attr("class", "halo").text(item => clipped(item.name, width - 4));
    row.filter(item => item.low !== null || item.high !== null).append("line").attr("x1", item => x(item.low ?? 1 / far)).attr("x2", item => x(item.high ?? far)).attr("y1", 26).attr("y2", 26).attr("stroke", pen).attr("stroke-width", 1.8);
    row.append("circle").attr("cx", item => x(item.ratio)).attr("cy", 26).attr("r", 5).attr("fill", pen);
    const most = right - 20 - 74, change = item => item.after_s - item.before_s;
    row.append("rect").attr("x", wide + 4).attr("y", 20).attr("height", 12).attr("width", item => (all ? Math.max(1, most * Math.abs(change(item)) / all) : 0)).attr("fill", pen).attr("fill-opacity", .45);
    row.append("text").attr("x", item => wide + 8 + (all ? Math.max(1, most * Math.abs(change(item)) / all) : 0)).attr("y", 30).text(item => (change(item) ? `${change(item) < 0 ? "-" : "+"}${show(Math.abs(change(item)), "s", 3)}` : "0"));
    hinted(row, item => [item.name, `before ${show(item.before_s, "s")}`, `after ${show(item.after_s, "s")}, ${digits(item.ratio, 4)} x`, item.low !== null && item.high !== null && `95 % interval ${digits(item.low, 3)} x to ${digits(item.high, 3)} x`, item.verdict, whole && `${show(change(item) / whole, "fraction")} of the change of all rows`, `${show(item.before_s / view.before_s, "fraction")} of the time before`].filter(Boolean).join("\n"));
    return whole_height + 26;
  });
  const key = make("p", node, "", { class: "soft" }), present = new Set(view.rows.map(row => row.verdict));
  for (const verdict of Object.keys(VERDICT_COLOURS)) if (present.has(verdict)) swatch(key, colour(VERDICT_COLOURS[verdict]), verdict);
  make("span", key, `Dot and line: after / before and its 95 % interval; grey band: changes that do not matter${view.limit ? "; dashed: --fail-on" : ""}. Bar on the right: after less before.${view.left_out ? ` ${view.left_out} smaller differences are in the table.` : ""}`);
}
