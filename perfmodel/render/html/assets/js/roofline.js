// The roofline: hover, zoom, selection by operator, and a switch of machine, dtype and cache level.
function roofline(parent, view, input, tables) {
  const node = section(parent, view), bar = make("div", node, null, { class: "bar" });
  const machines = [...new Set(view.points.map(point => point.machine))], dtypes = [...new Set(view.points.map(point => point.dtype))];
  const figures = name => (data.machines.machines[name] || { figures: [] }).figures;
  const levels = [...new Set(machines.flatMap(name => figures(name).filter(one => one.group === "memory").map(one => one.key)))];
  const known = [...new Set(machines.flatMap(name => figures(name).filter(one => one.group === "peak").map(one => one.key)))];
  const redraw = () => drawing.redraw();
  const pick = (title, values, first) => { const made = select(bar, title, first ? [first, ...values] : values, redraw); made.parentElement.hidden = values.length + (first ? 1 : 0) < 2; return made; };
  const machine = pick("machine", machines, machines.length > 1 ? "all" : null);
  const dtype = pick("dtype", [...new Set([...dtypes, ...known])], "those used");
  const level = pick("data from", levels.length ? levels : ["memory"]);
  const reset = make("button", bar, "Reset zoom", { type: "button" });
  const names = [...new Set(view.points.map(point => point.op))], pen = scale(names), off = new Set();
  const chips = make("div", node, null, { class: "bar chips", role: "group", "aria-label": "operators" });
  if (names.length > 1) for (const name of names) {
    const chip = make("button", chips, null, { "aria-pressed": "true", type: "button" });
    swatch(chip, pen(name), name).style.marginRight = "0";
    chip.onclick = event => {
      if (event.shiftKey) for (const other of names) { if (other !== name) off.add(other); else off.delete(other); } else if (off.has(name)) off.delete(name); else off.add(name);
      [...chips.children].forEach((one, at) => one.setAttribute("aria-pressed", String(!off.has(names[at]))));
      redraw();
    };
  }
  const main_level = levels[0] || "memory", cached = () => level.value !== main_level;
  const shows = item => machine.value === "all" || item.machine === machine.value;
  const wanted = item => (dtype.value === "those used" ? true : item.dtype === dtype.value);

  // the ceilings of the specification; without it those that follow from the points
  function roofs() {
    const made = [];
    for (const name of machines.filter(name => shows({ machine: name }))) {
      const memory = figures(name).find(one => one.group === "memory" && one.key === level.value && one.value) || figures(name).find(one => one.group === "memory" && one.key === level.value);
      const own = view.ceilings.filter(one => one.machine === name);
      const bandwidth = memory ? memory.value || memory.sustained : cached() ? 0 : d3.max(own, one => one.bandwidth);
      if (!bandwidth) continue;
      const engine = new Map(view.points.filter(point => point.machine === name).map(point => [point.dtype, point.engine]));
      const kinds = dtype.value === "those used" ? dtypes : [dtype.value];
      for (const kind of kinds) {
        const peaks = figures(name).filter(one => one.group === "peak" && one.key === kind);
        const from = own.find(one => one.dtype === kind);
        const peak = dtype.value === "those used" && from ? from.peak : (peaks.find(one => (engine.get(kind) || "").startsWith(one.engine)) || peaks[0] || { value: 0 }).value;
        if (peak > 0) made.push({ machine: name, dtype: kind, peak, bandwidth, level: level.value });
      }
    }
    return made;
  }
  const limit = point => (cached() && point.fits_in === level.value && point.resident ? point.resident : point.attainable);
  const rate = point => point.achieved || point.predicted || point.attainable;
  let transform = d3.zoomIdentity;
  const drawing = chart(node, "roofline: rate over arithmetic intensity, both logarithmic", draw);

  function draw(svg, width) {
    const height = Math.round(Math.min(460, Math.max(280, width * .5))), M = { l: 62, r: 14, t: 18, b: 40 }, lines = roofs();
    const points = view.points.filter(point => shows(point) && wanted(point) && !off.has(point.op));
    const xs = [...view.points.map(point => point.x), ...lines.map(one => one.peak / one.bandwidth)].filter(value => value > 0);
    const ys = [...view.points.flatMap(point => [point.attainable, rate(point)]), ...lines.map(one => one.peak)].filter(value => value > 0);
    const x0 = d3.scaleLog([d3.min(xs) / 3, d3.max(xs) * 3], [M.l, width - M.r]), y0 = d3.scaleLog([d3.min(ys) / 3, d3.max(ys) * 3], [height - M.b, M.t]);
    const clip = `clip${++roofline.count}`;
    svg.append("clipPath").attr("id", clip).append("rect").attr("x", M.l).attr("y", M.t).attr("width", width - M.l - M.r).attr("height", height - M.t - M.b);
    const gridX = svg.append("g").attr("class", "axis"), gridY = svg.append("g").attr("class", "axis"), plot = svg.append("g").attr("clip-path", `url(#${clip})`);
    svg.append("text").attr("x", (width + M.l) / 2).attr("y", height - 4).attr("text-anchor", "middle").text(`arithmetic intensity [FLOP/B]${cached() ? ", of device memory traffic" : ""}`);
    svg.append("text").attr("x", 4).attr("y", 11).text("rate [FLOP/s]");
    const zoom = d3.zoom().scaleExtent([1, 60]).translateExtent([[0, 0], [width, height]]).extent([[0, 0], [width, height]]).on("zoom", event => { transform = event.transform; place(); });
    svg.call(zoom).call(zoom.transform, transform);
    reset.onclick = () => svg.call(zoom.transform, d3.zoomIdentity);

    function place() {
      const begun = performance.now(), x = transform.rescaleX(x0), y = transform.rescaleY(y0), [a, b] = x.domain();
      gridX.attr("transform", `translate(0,${height - M.b})`).call(d3.axisBottom(x).ticks(Math.max(3, width / 110), "~g"));
      gridY.attr("transform", `translate(${M.l},0)`).call(d3.axisLeft(y).ticks(6, "~s"));
      const roof = one => { const ridge = one.peak / one.bandwidth; return d3.line(p => x(p[0]), p => y(p[1]))([[a, Math.min(one.peak, a * one.bandwidth)], ...(ridge > a && ridge < b ? [[ridge, one.peak]] : []), [b, Math.min(one.peak, b * one.bandwidth)]]); };
      hinted(plot.selectAll("path.roof").data(lines).join("path").attr("class", "roof").attr("fill", "none").attr("stroke", "currentColor").attr("stroke-width", 1.6).attr("d", roof),
        one => `${one.machine} ${one.dtype}\n${show(one.peak, "FLOP/s")} and ${show(one.bandwidth, "B/s")} from ${one.level}, ridge at ${digits(one.peak / one.bandwidth)} FLOP/B`);
      plot.selectAll("line.gap").data(points).join("line").attr("class", "gap").attr("stroke", point => pen(point.op)).attr("stroke-opacity", .5).attr("x1", point => x(point.x)).attr("x2", point => x(point.x)).attr("y1", point => y(limit(point))).attr("y2", point => y(rate(point)));
      const circles = plot.selectAll("circle").data(points).join("circle").attr("r", points.length > 300 ? 3 : 5).attr("tabindex", 0).attr("fill", point => (point.achieved ? pen(point.op) : "transparent")).attr("stroke", point => pen(point.op)).attr("stroke-width", 2)
        .attr("opacity", point => (cached() && point.fits_in !== level.value ? .25 : 1)).attr("cx", point => x(point.x)).attr("cy", point => y(rate(point)));
      hinted(circles, point => [`${point.name} ${point.dimensions} ${point.dtype}`, point.machine, point.kernel, `attainable ${show(point.attainable, "FLOP/s")} (${point.limiter})`, point.resident && `from ${point.fits_in} ${show(point.resident, "FLOP/s")} (${point.resident_limiter})`, point.predicted && `expected ${show(point.predicted, "FLOP/s")}`, point.achieved && `measured ${show(point.achieved, "FLOP/s")}`].filter(Boolean).join("\n"));
      circles.on("click", (_, point) => tables.some(one => one.mark(point.name))).on("keydown", (event, point) => { if (event.key === "Enter") tables.some(one => one.mark(point.name)); });
      label(x, y, a, b);
      svg.node().dataset.drawMs = (performance.now() - begun).toFixed(1);
    }
    // names of ceilings: peaks at the right above their roof, bandwidths on the slope; one that would lie over another
    // goes below its line, or along it
    function label(x, y, a, b) {
      const several = new Set(lines.map(one => one.machine)).size > 1, taken = [], right = width - M.r - 4;
      const called = (one, text) => { const whole = `${several ? `${one.machine} ` : ""}${text}`; return { text: whole, size: 7 * whole.length }; };
      const flat = lines.filter(one => b > one.peak / one.bandwidth);
      const peaks = d3.sort(d3.groups(flat, one => `${one.machine} ${show(one.peak, "", 3)}`), ([, group]) => -group[0].peak).map(([, group]) => {
        const one = group[0], name = called(one, `${group.map(same => same.dtype).join(", ")} ${show(one.peak, "FLOP/s", 3)}`), ridge = x(Math.max(a, one.peak / one.bandwidth));
        const lefts = d3.range(0, 480, 60).map(shift => right - shift - name.size).filter((left, at) => !at || left > ridge);
        return { ...name, end: true, places: lefts.flatMap(left => [-5, 14].map(below => ({ left, y: y(one.peak) + below }))) };
      });
      const slopes = d3.groups(lines, one => `${one.machine} ${one.bandwidth}`).flatMap(([, group]) => {
        const { bandwidth, level } = group[0], from = Math.max(a, y.domain()[0] / bandwidth), to = Math.min(b, d3.max(group, one => one.peak) / bandwidth);
        if (to <= from * 2) return [];
        const name = called(group[0], `${level} ${show(bandwidth, "B/s", 3)}`);
        const places = [.25, .5, .7, .1].flatMap(share => {
          const at = Math.exp((1 - share) * Math.log(from) + share * Math.log(to)), across = x(at), up = y(at * bandwidth);
          return [{ left: Math.max(M.l + 2, across - 8 - name.size), y: up - 6 }, { left: across + 8, y: up + 14 }];
        });
        return [{ ...name, places }];
      });
      const labels = [...peaks, ...slopes].map(one => ({ ...one, ...one.places.find(place => free(place, one.size, taken)) })).filter(one => one.left !== undefined);
      plot.selectAll("text").data(labels).join("text").attr("class", "halo").attr("text-anchor", one => (one.end ? "end" : "start")).attr("x", one => one.left + (one.end ? one.size : 0)).attr("y", one => one.y).text(one => one.text).raise();
    }
    function free({ left, y }, size, taken) {
      const box = [left, left + size, y - 11, y + 3];
      if (y < M.t || y > height - M.b || left < M.l || left + size > width) return false;
      if (taken.some(other => box[0] < other[1] && box[1] > other[0] && box[2] < other[3] && box[3] > other[2])) return false;
      taken.push(box);
      return true;
    }
    return height;
  }
  make("p", node, `Filled: measured. Open: expected. The line reaches up to what is attainable.${levels.length > 1 ? " Data from a cache: its bandwidth, and the operators whose data fit in it." : ""} Shift and click on an operator shows it alone.${view.left_out ? ` ${view.left_out} points with less time are left out.` : ""}`, { class: "soft" });
}
roofline.count = 0;
