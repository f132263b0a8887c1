// The what-if path: a waterfall of steps with intervals; each can be left out or weakened, and the rest is computed anew.

// As perfmodel.investment.what_if computes it: each step acts on what the steps before it left. A step changes the time
// of its targets by the ratio that the scenario gives; a target that an earlier, left-out step would have changed takes
// its own time instead.
function walk(begin, steps) {
  const factor = new Map();
  let total = begin, growth = 1, scenario = begin;
  return steps.map(step => {
    const whole = Math.abs(step.before_s - scenario) <= 1e-9 * scenario;
    const now = whole ? total / scenario : d3.mean(step.targets, target => factor.get(target) ?? 1) ?? 1;
    const before = step.before_s * now, ratio = step.speedup > 0 ? 1 / step.speedup : 0;
    const after = step.used ? before * ratio : before;
    const grown = step.step_speedup * step.total_s / scenario;
    for (const target of step.targets) factor.set(target, step.after_s > 0 ? after / step.after_s : 1);
    const start = total;
    total += after - before;
    scenario = step.total_s;
    if (step.used) growth *= grown;
    return { start, total, saved: start - total, speedup: begin / (total / growth), alone: start * (step.used ? grown : 1) / total };
  });
}

function path(parent, view) {
  const node = section(parent, view);
  const steps = view.steps.map(step => ({ ...step, used: true, speedup: step.after_s > 0 ? step.before_s / step.after_s : Infinity, own: step.after_s > 0 ? step.before_s / step.after_s : Infinity }));
  let made = walk(view.begin_s, steps), changed = false;
  const drawing = chart(node, view.title, (svg, width) => waterfall(svg, width, view, steps, made, changed));
  const result = make("p", node, "", { class: "result", "data-result": "path", role: "status" });
  const grid = make("table", make("div", node, null, { class: "scroll" })), head = make("tr", make("thead", grid)), body = make("tbody", grid);
  for (const [title, kind] of [["use", ""], ["step", ""], ["its targets", "number"], ["their speedup", ""], ["total after it", "number"], ["so far", "number"], ["check", ""]]) make("th", head, title, { class: kind });
  const cells = steps.map((step, at) => {
    const line = make("tr", body), use = make("input", make("td", line), null, { type: "checkbox", "aria-label": `use step ${at + 1}: ${step.name}` });
    use.checked = true;
    use.onchange = () => { step.used = use.checked; update(); };
    make("td", line, step.name, { title: `${step.name}: ${step.basis}` });
    make("td", line, show(step.before_s, "s"), { class: "number" });
    const cell = make("td", line), text = make("span", null, "");
    if (step.own > 1 && Number.isFinite(step.own)) {
      const slider = make("input", cell, null, { type: "range", min: 0, max: 1000, value: 1000, "aria-label": `speedup of step ${at + 1}: ${step.name}` });
      slider.oninput = () => { step.speedup = Math.exp(slider.value / 1000 * Math.log(step.own)); update(); };
    }
    cell.appendChild(text);
    const total = make("td", line, "", { class: "number" }), far = make("td", line, "", { class: "number" });
    make("td", line, step.flags.length ? "doubtful" : "ok", { title: step.flags.join("; "), class: step.flags.length ? "bad-text" : "" });
    return { text, total, far };
  });
  function update() {
    made = walk(view.begin_s, steps);
    changed = steps.some(step => !step.used || step.speedup !== step.own);
    made.forEach((one, at) => {
      cells[at].text.textContent = ` ${Number.isFinite(steps[at].speedup) ? `${digits(steps[at].speedup)} x` : "taken out"}`;
      cells[at].total.textContent = show(one.total, "s");
      cells[at].far.textContent = show(one.speedup, "x");
    });
    const last = made[made.length - 1];
    result.textContent = `${show(view.begin_s, "s")} become ${show(last.total, "s")}: ${digits(last.speedup)} x`;
    drawing.redraw();
  }
  make("p", node, "Leave steps out or weaken them: the totals follow from the scenario's own ratios. Whiskers: 80 % interval where a step was predicted by computing the changed run; they belong to the path as given.", { class: "soft" });
  update();
}

function waterfall(svg, width, view, steps, made, changed) {
  const HEIGHT = 30, rows = [{ name: "before", from: 0, to: view.begin_s, whole: true }, ...made.map((one, at) => ({ name: steps[at].name, from: one.start, to: one.total, step: steps[at], one })), { name: "after", from: 0, to: made[made.length - 1].total, whole: true }];
  const left = Math.min(230, width * .34), most = Math.max(view.begin_s, ...made.map(one => one.total), ...steps.map(step => (changed ? 0 : step.high_s || 0)));
  const x = d3.scaleLinear([0, most], [left, width - 84]);
  const row = svg.selectAll("g").data(rows).join("g").attr("transform", (_, at) => `translate(0,${HEIGHT * at})`).attr("tabindex", 0).attr("opacity", item => (item.step && !item.step.used ? .35 : 1));
  row.append("text").attr("x", left - 8).attr("y", 16).attr("text-anchor", "end").text(item => clipped(item.name, left - 10));
  row.append("rect").attr("y", 3).attr("height", 18).attr("x", item => x(Math.min(item.from, item.to))).attr("width", item => Math.max(1.5, Math.abs(x(item.to) - x(item.from)))).attr("rx", 2)
    .attr("fill", item => (item.whole ? colour(6) : item.to <= item.from ? colour(0) : colour(1)));
  row.filter((_, at) => at < rows.length - 1).append("line").attr("x1", item => x(item.to)).attr("x2", item => x(item.to)).attr("y1", 21).attr("y2", HEIGHT + 3).attr("stroke", "currentColor").attr("stroke-opacity", .4).attr("stroke-dasharray", "2 2");
  if (!changed) {
    const known = row.filter(item => item.step && item.step.low_s && item.step.high_s).append("g").attr("stroke", "currentColor").attr("stroke-width", 1.3);
    known.append("line").attr("x1", item => x(item.step.low_s)).attr("x2", item => x(item.step.high_s)).attr("y1", 12).attr("y2", 12);
    for (const end of ["low_s", "high_s"]) known.append("line").attr("x1", item => x(item.step[end])).attr("x2", item => x(item.step[end])).attr("y1", 8).attr("y2", 16);
  }
  row.append("text").attr("x", item => x(Math.max(item.from, item.to, (!changed && item.step && item.step.high_s) || 0)) + 6).attr("y", 16).text(item => (item.whole ? show(item.to, "s") : `${item.to > item.from ? "+" : "-"}${show(Math.abs(item.to - item.from), "s", 3)}`));
  hinted(row, item => (item.whole ? `${item.name}: ${show(item.to, "s")}` : [`${item.name} (${item.step.kind})`, `targets: ${item.step.targets.join(", ")}`, `${show(item.from, "s")} become ${show(item.to, "s")}, ${show(item.one.speedup, "x")} so far`, item.step.basis, ...item.step.flags].join("\n")));
  return HEIGHT * rows.length;
}
