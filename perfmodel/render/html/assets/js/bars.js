// Bars: time by dimension, operators against their bounds, the terms of set-ups, and the change from before to after.

function bars(parent, view) {
  const node = section(parent, view), total = d3.sum(view.bars, bar => bar.time_s), kept = view.bars.filter(bar => bar.time_s > ROUNDED * total);
  const pen = scale(view.bars.map(bar => bar.name));
  chart(node, `${view.title}: ${kept.map(bar => `${bar.name} ${show(bar.time_s / total, "fraction")}`).join(", ")}`, (svg, width) => {
    const left = 96, x = d3.scaleLinear([0, d3.max(kept, bar => bar.time_s) || 1], [0, Math.max(60, width - left - 140)]);
    const row = svg.selectAll("g").data(kept).join("g").attr("transform", (_, at) => `translate(${left},${26 * at + 2})`);
    row.append("text").attr("x", -8).attr("y", 15).attr("text-anchor", "end").text(bar => bar.name);
    hinted(row.append("rect").attr("height", 20).attr("width", bar => Math.max(1, x(bar.time_s))).attr("rx", 3).attr("tabindex", 0).attr("fill", bar => pen(bar.name)),
      bar => [`${bar.name}: ${show(bar.time_s, "s")}`, ...bar.parts.map(part => `${show(part.time_s, "s")}  ${part.what}${part.detail ? `: ${part.detail}` : ""}`)].join("\n"));
    row.append("text").attr("x", bar => x(bar.time_s) + 6).attr("y", 15).text(bar => `${show(bar.time_s, "s")}, ${show(bar.time_s / total, "fraction")}`);
    return 26 * kept.length + 6;
  });
  const largest = kept.filter(bar => bar.parts.length).sort((a, b) => b.time_s - a.time_s)[0];
  if (!largest) return;
  const more = make("details", node);
  make("summary", more, "Evidence: the largest parts of each dimension");
  for (const bar of [...kept].sort((a, b) => b.time_s - a.time_s)) {
    if (!bar.parts.length) continue;
    make("p", more, `${bar.name}, ${show(bar.time_s, "s")}`, { style: "margin:.4rem 0 0;font-weight:600" });
    const list = make("ul", more, null, { class: "notes" });
    for (const part of bar.parts) make("li", list, `${show(part.time_s, "s")}  ${part.what}${part.detail ? `: ${part.detail}` : ""}`);
  }
}

function times(parent, view) {
  const node = section(parent, view), ROW_HEIGHT = 40, several = view.bars.some(bar => bar.machine);
  const measured = view.bars.some(bar => bar.measured_s), most = d3.max(view.bars, bar => Math.max(bar.high_s || 0, bar.measured_s || 0, bar.expected_s || 0));
  chart(node, view.title, (svg, width) => {
    const x = d3.scaleLinear([0, most], [0, width - 96]);
    const row = svg.selectAll("g").data(view.bars).join("g").attr("transform", (_, at) => `translate(0,${ROW_HEIGHT * at})`).attr("tabindex", 0);
    row.append("text").attr("y", 13).text(bar => clipped(`${bar.name}${several ? `, ${bar.machine}` : ""}`, width - 4));
    const solid = row.append("g").attr("transform", "translate(0,18)");
    solid.append("rect").attr("height", 13).attr("width", bar => Math.max(1, x(bar.measured_s || bar.expected_s || 0))).attr("rx", 2).attr("fill", bar => (bar.measured_s ? colour(0) : colour(5))).attr("fill-opacity", .75);
    solid.append("line").attr("x1", bar => x(bar.bound_s || 0)).attr("x2", bar => x(bar.bound_s || 0)).attr("y1", -1).attr("y2", 15).attr("stroke", colour(1)).attr("stroke-width", 2.5);
    const whisker = solid.filter(bar => bar.low_s && bar.high_s).append("g").attr("stroke", "currentColor").attr("stroke-width", 1.2);
    whisker.append("line").attr("x1", bar => x(bar.low_s)).attr("x2", bar => x(bar.high_s)).attr("y1", 6.5).attr("y2", 6.5);
    for (const end of ["low_s", "high_s"]) whisker.append("line").attr("x1", bar => x(bar[end])).attr("x2", bar => x(bar[end])).attr("y1", 3).attr("y2", 10);
    whisker.append("circle").attr("cx", bar => x(bar.expected_s)).attr("cy", 6.5).attr("r", 2.5).attr("fill", "currentColor");
    solid.append("text").attr("x", bar => x(Math.max(bar.high_s || 0, bar.measured_s || 0, bar.expected_s || 0)) + 6).attr("y", 11).text(bar => show(bar.measured_s || bar.expected_s, "s"));
    hinted(row, bar => [bar.name, bar.machine, `limited by ${bar.limiter}`, bar.measured_s && `measured ${show(bar.measured_s, "s")}`, `expected ${show(bar.expected_s, "s")}${bar.low_s ? ` (${show(bar.low_s, "s", 3)} to ${show(bar.high_s, "s", 3)})` : ""}`, `bound ${show(bar.bound_s, "s")}`, `${bar.calls} calls`].filter(Boolean).join("\n"));
    return ROW_HEIGHT * view.bars.length;
  });
  const key = make("p", node, "", { class: "soft" });
  swatch(key, measured ? colour(0) : colour(5), measured ? "measured" : "expected");
  swatch(key, colour(1), "bound (line)");
  make("span", key, `Dot and whisker: expected, 80 % interval. All calls of an operator together.${view.left_out ? ` ${view.left_out} smaller ones are in the table.` : ""}`);
}

function swatch(parent, colour, text) {
  const node = make("span", parent, null, { style: "margin-right:1rem;white-space:nowrap" });
  make("span", node, null, { class: "swatch", style: `background:${colour}` });
  make("span", node, text);
  return node;
}

// blue for products, orange for memory, green for exchanges, grey for waiting; the order in which they are drawn
const TERM_COLOURS = {
  products: "--c0", attention: "--c5", head: "--c8", memory_bound: "--c4", casts: "--c9", recompute: "--c3", tensor: "--c2", context: "--c10",
  expert: "--c11", data: "--c12", sends: "--c7", optimizer: "--c1", compression: "--c9", bubble: "--c6", stragglers: "--c6", loading: "--c6",
  weights: "--c0", kv: "--c4", kernels: "--c5", prefill: "--c2", gaps: "--c13", host: "--c6",
  compute: "--c0", "exposed communication": "--c2", transfer: "--c4", launch: "--c3", sync: "--c5", idle: "--c6",
};
const TERM_ORDER = Object.keys(TERM_COLOURS);

function terms(parent, view) {
  const node = section(parent, view), present = new Set(view.bars.flatMap(bar => Object.keys(bar.terms).filter(name => bar.terms[name] > 0)));
  const names = [...TERM_ORDER.filter(name => present.has(name)), ...[...present].filter(name => !TERM_ORDER.includes(name)).sort()];
  const pen = name => style(TERM_COLOURS[name] || `--c${names.indexOf(name) % SLOTS}`);
  const total = bar => d3.sum(Object.values(bar.terms)), most = d3.max(view.bars, bar => Math.max(total(bar), bar.high_s || 0));
  const tall = view.bars.length > 1 ? 40 : 44;
  chart(node, view.title, (svg, width) => {
    const x = d3.scaleLinear([0, most], [0, width - 84]);
    const row = svg.selectAll("g.bar").data(view.bars).join("g").attr("class", "bar").attr("transform", (_, at) => `translate(0,${tall * at})`);
    row.filter(bar => bar.name).append("text").attr("y", 12).text(bar => clipped(bar.name, width));
    row.each(function (bar) {
      const g = d3.select(this).append("g").attr("transform", `translate(0,${bar.name ? 17 : 2})`), high = bar.name ? 16 : 26, whole = total(bar);
      let start = 0;
      const parts = names.filter(name => bar.terms[name] > 0).map(name => { const part = { name, time: bar.terms[name], start }; start += part.time; return part; });
      hinted(g.selectAll("rect").data(parts).join("rect").attr("x", part => x(part.start)).attr("width", part => Math.max(.5, x(part.time) - .5)).attr("height", high).attr("tabindex", 0).attr("fill", part => pen(part.name)),
        part => `${part.name.replaceAll("_", " ")}: ${show(part.time, "s")}, ${show(part.time / whole, "fraction")}`);
      if (bar.low_s && bar.high_s) for (const [a, b, y1, y2] of [[bar.low_s, bar.high_s, high / 2, high / 2], [bar.low_s, bar.low_s, high / 2 - 4, high / 2 + 4], [bar.high_s, bar.high_s, high / 2 - 4, high / 2 + 4]]) g.append("line").attr("x1", x(a)).attr("x2", x(b)).attr("y1", y1).attr("y2", y2).attr("stroke", "currentColor").attr("stroke-width", 1.5);
      g.append("text").attr("x", x(Math.max(whole, bar.high_s || 0)) + 6).attr("y", high / 2 + 4).text(show(whole, "s"));
    });
    return tall * view.bars.length - (view.bars.length > 1 ? 0 : 10);
  });
  const key = make("p", node, "", { class: "soft" }), first = view.bars[0], whole = total(first);
  for (const name of names) swatch(key, pen(name), name.replaceAll("_", " ") + (view.bars.length === 1 ? ` ${show(first.terms[name] / whole, "fraction")}` : ""));
  make("p", node, `Bars: ${view.unit}, by part${view.bars[0].low_s ? "; whisker: 80 % interval" : ""}.${view.left_out ? ` ${view.left_out} more are in the table.` : ""}`, { class: "soft" });
}

function pair(parent, view) {
  const node = section(parent, view), changes = view.rows.filter(row => Math.abs(row.after_s - row.before_s) > ROUNDED * (view.before_s + view.after_s));
  if (view.decision) make("p", node, view.decision, { class: "decision" });
  if (!changes.length) return;
  const most = d3.max(changes, row => Math.abs(row.after_s - row.before_s));
  chart(node, view.title, (svg, width) => {
    const x = d3.scaleLinear([-most, most], [70, width - 70]);
    svg.append("line").attr("x1", x(0)).attr("x2", x(0)).attr("y1", 0).attr("y2", 38 * changes.length).attr("stroke", "currentColor").attr("stroke-opacity", .5);
    const row = svg.selectAll("g").data(changes).join("g").attr("transform", (_, at) => `translate(0,${38 * at})`).attr("tabindex", 0);
    const change = item => item.after_s - item.before_s;
    row.append("text").attr("y", 12).attr("class", "halo").text(item => clipped(`${item.name}${item.state ? ` (${item.state})` : ""}`, width - 4));
    row.append("rect").attr("y", 17).attr("height", 13).attr("x", item => Math.min(x(0), x(change(item)))).attr("width", item => Math.max(1, Math.abs(x(change(item)) - x(0)))).attr("fill", item => (change(item) < 0 ? colour(0) : colour(1)));
    row.append("text").attr("y", 28).attr("x", item => x(change(item)) + (change(item) < 0 ? -6 : 6)).attr("text-anchor", item => (change(item) < 0 ? "end" : "start")).text(item => `${change(item) < 0 ? "-" : "+"}${show(Math.abs(change(item)), "s", 3)}`);
    hinted(row, item => `${item.name}\n${view.ends ? view.ends[0] : "before"} ${show(item.before_s, "s")}\n${view.ends ? view.ends[1] : "after"} ${show(item.after_s, "s")}${item.before_s ? `, ${show(item.after_s / item.before_s - 1, "fraction")}` : ""}`);
    return 38 * changes.length;
  });
  make("p", node, `${view.difference || "After less before"}: blue to the left is faster, orange to the right slower.${view.left_out ? ` ${view.left_out} smaller changes are left out.` : ""}`, { class: "soft" });
}
