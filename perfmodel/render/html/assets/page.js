"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("page"), tip = document.getElementById("tip");
  // Okabe and Ito's colours, told apart by readers who see red and green alike
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#F0E442"];
  const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];

  // every text goes through textContent: names of kernels are foreign
  const make = (tag, parent, text, attributes) => {
    const node = document.createElement(tag);
    if (text !== undefined && text !== null) node.textContent = text;
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    if (parent) parent.appendChild(node);
    return node;
  };
  const digits = value => String(Number(value.toPrecision(4)));
  function show(value, unit) {
    if (value === null || value === undefined || value === "") return "-";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value !== "number") return String(value);
    if (unit === "fraction") return (100 * value).toPrecision(3) + " %";
    if (unit === "iB") { let i = 0; while (value >= 1024 && i < 4) { value /= 1024; i += 1; } return digits(value) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][i]; }
    if (!unit) return Number.isInteger(value) && Math.abs(value) < 1e15 ? String(value) : digits(value);
    if (value === 0) return "0 " + unit;
    const found = PREFIXES.find(([size]) => Math.abs(value) >= size) || PREFIXES[PREFIXES.length - 1];
    return digits(value / found[0]) + " " + found[1] + unit;
  }
  function hint(event, text) {
    tip.textContent = text; tip.hidden = !text;
    if (!text) return;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 6)) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 6)) + "px";
  }
  const section = (parent, view) => { const node = make("section", parent, null, { "data-kind": view.kind }); make("h2", node, view.title); return node; };
  const labelled = (parent, text, node) => { const label = make("label", parent, text + " "); label.appendChild(node); return node; };

  function heading(parent, view) {
    const node = make("header", parent);
    make("h1", node, view.title);
    if (view.decision) make("p", node, view.decision, { class: "decision" });
    const facts = make("ul", node, null, { class: "facts" });
    for (const [key, value] of Object.entries(view.context)) make("li", facts, key.replaceAll("_", " ") + ": " + (Array.isArray(value) ? value.join(", ") : value));
    if (view.notes.length) { const list = make("ul", node, null, { class: "notes" }); for (const note of view.notes) make("li", list, note); }
  }

  const ROW = 26;
  function table(parent, view) {
    const node = section(parent, view), bar = make("div", node, null, { class: "bar" });
    const search = labelled(bar, "Filter", make("input", null, null, { type: "search", "aria-label": "filter rows" }));
    const all = labelled(bar, "All columns", make("input", null, null, { type: "checkbox" }));
    const count = make("span", bar, "", { class: "soft" });
    const scroll = make("div", node, null, { class: "scroll", tabindex: 0 }), grid = make("table", scroll);
    const head = make("tr", make("thead", grid)), body = make("tbody", grid);
    let order = view.rows.map((_, i) => i), sorted = null, down = false, marked = -1, kept = order;
    const text = (row, column) => column.text === null ? show(row[view.columns.indexOf(column)], column.unit) : row[column.text];
    const columns = () => view.columns.filter(column => all.checked || (column.shown && !column.prose));
    function draw() {
      const shown = columns(), first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - 8), last = Math.min(kept.length, first + Math.ceil(scroll.clientHeight / ROW) + 24);
      body.replaceChildren();
      if (first) make("td", make("tr", body), null, { colspan: shown.length, style: `height:${first * ROW}px;padding:0` });
      for (let i = first; i < last; i += 1) {
        const row = view.rows[kept[i]], line = make("tr", body, null, kept[i] === marked ? { class: "mark" } : {});
        for (const column of shown) { const cell = text(row, column); make("td", line, cell, { class: typeof row[view.columns.indexOf(column)] === "number" ? "number" : "", title: cell }); }
      }
      if (last < kept.length) make("td", make("tr", body), null, { colspan: shown.length, style: `height:${(kept.length - last) * ROW}px;padding:0` });
    }
    function refresh() {
      const words = search.value.toLowerCase();
      kept = words ? order.filter(i => view.rows[i].some(value => value !== null && String(value).toLowerCase().includes(words))) : order;
      count.textContent = `${kept.length} of ${view.rows.length} rows` + (view.left_out ? `, ${view.left_out} more in JSON` : "");
      head.replaceChildren();
      for (const column of columns()) {
        const at = view.columns.indexOf(column), cell = make("th", head, null, { scope: "col", "aria-sort": sorted === at ? (down ? "descending" : "ascending") : "none" });
        const button = make("button", cell, column.title + (sorted === at ? (down ? " ▼" : " ▲") : ""));
        button.onclick = () => { down = sorted === at ? !down : typeof view.rows[0][at] === "number"; sorted = at; sort(); };
      }
      draw();
    }
    function sort() {
      const sign = down ? -1 : 1, empty = value => value === null || value === "";
      order = view.rows.map((_, i) => i).sort((a, b) => {
        const x = view.rows[a][sorted], y = view.rows[b][sorted];
        if (empty(x) || empty(y)) return empty(x) - empty(y) || a - b;
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y))) || a - b;
      });
      refresh();
    }
    scroll.onscroll = draw; search.oninput = () => { scroll.scrollTop = 0; refresh(); }; all.onchange = refresh; refresh();
    return { mark(name) {
      marked = view.rows.findIndex(row => row.includes(name));
      if (marked < 0) return false;
      search.value = ""; refresh(); scroll.scrollTop = Math.max(0, kept.indexOf(marked) * ROW - 60); draw(); node.scrollIntoView({ block: "nearest" }); return true;
    } };
  }

  function bars(parent, view) {
    const node = section(parent, view), total = d3.sum(view.bars, bar => bar.time_s), kept = view.bars.filter(bar => bar.time_s > 0);
    const height = 30 * kept.length + 26, svg = d3.select(node).append("svg").attr("viewBox", `0 0 720 ${height}`).attr("role", "img").attr("aria-label", view.title);
    const x = d3.scaleLinear([0, d3.max(kept, bar => bar.time_s) || 1], [0, 470]);
    const row = svg.selectAll("g").data(kept).join("g").attr("transform", (_, i) => `translate(120,${30 * i + 4})`);
    row.append("text").attr("x", -8).attr("y", 16).attr("text-anchor", "end").text(bar => bar.name);
    row.append("rect").attr("height", 22).attr("width", bar => Math.max(1, x(bar.time_s))).attr("rx", 3).attr("fill", (_, i) => COLOURS[i % COLOURS.length])
      .on("pointermove", (event, bar) => hint(event, [bar.name + ": " + show(bar.time_s, "s"), ...bar.parts.map(part => show(part.time_s, "s") + "  " + part.what + (part.detail ? ": " + part.detail : ""))].join("\n")))
      .on("pointerleave", event => hint(event, ""));
    row.append("text").attr("x", bar => x(bar.time_s) + 6).attr("y", 16).text(bar => show(bar.time_s, "s") + ", " + (total ? (100 * bar.time_s / total).toPrecision(3) : 0) + " %");
  }

  function roofline(parent, view) {
    const node = section(parent, view), bar = make("div", node, null, { class: "bar" });
    const pick = (title, values) => { const select = labelled(bar, title, make("select")); for (const value of ["all", ...new Set(values)]) make("option", select, value, { value }); select.onchange = draw; return select; };
    const dtype = pick("dtype", view.points.map(point => point.dtype)), op = pick("operator", view.points.map(point => point.op)), machine = pick("machine", view.points.map(point => point.machine));
    const reset = make("button", bar, "Reset zoom");
    const W = 760, H = 420, M = { l: 74, r: 16, t: 10, b: 42 };
    const svg = d3.select(node).append("svg").attr("viewBox", `0 0 ${W} ${H}`).attr("role", "img").attr("aria-label", "roofline");
    svg.append("clipPath").attr("id", "clip" + (++roofline.n)).append("rect").attr("x", M.l).attr("y", M.t).attr("width", W - M.l - M.r).attr("height", H - M.t - M.b);
    const plot = svg.append("g").attr("clip-path", `url(#clip${roofline.n})`), axisX = svg.append("g").attr("class", "axis"), axisY = svg.append("g").attr("class", "axis");
    svg.append("text").attr("x", (W + M.l) / 2).attr("y", H - 6).attr("text-anchor", "middle").text("arithmetic intensity [FLOP/B]");
    svg.append("text").attr("transform", `translate(14,${H / 2}) rotate(-90)`).attr("text-anchor", "middle").text("FLOP/s");
    const rates = view.points.flatMap(point => [point.attainable, point.achieved, point.predicted]).filter(value => value > 0);
    const ridges = view.ceilings.map(c => c.peak / c.bandwidth), xs = [...view.points.map(point => point.x), ...ridges];
    const x0 = d3.scaleLog([d3.min(xs) / 3, d3.max(xs) * 3], [M.l, W - M.r]), y0 = d3.scaleLog([d3.min(rates) / 3, d3.max([...rates, ...view.ceilings.map(c => c.peak)]) * 2], [H - M.b, M.t]);
    let x = x0, y = y0;
    const names = [...new Set(view.points.map(point => point.op))], colour = d3.scaleOrdinal(names, COLOURS);
    const chosen = item => (dtype.value === "all" || item.dtype === dtype.value) && (machine.value === "all" || item.machine === machine.value);
    function draw() {
      axisX.attr("transform", `translate(0,${H - M.b})`).call(d3.axisBottom(x).ticks(8, "~g")); axisY.attr("transform", `translate(${M.l},0)`).call(d3.axisLeft(y).ticks(6, "~s"));
      const line = c => { const [a, b] = x.domain(), ridge = c.peak / c.bandwidth; return d3.line(p => x(p[0]), p => y(p[1]))([[a, Math.min(c.peak, a * c.bandwidth)], ...(ridge > a && ridge < b ? [[ridge, c.peak]] : []), [b, Math.min(c.peak, b * c.bandwidth)]]); };
      plot.selectAll("path.roof").data(view.ceilings.filter(chosen)).join("path").attr("class", "roof").attr("fill", "none").attr("stroke", "currentColor").attr("stroke-width", 1.5).attr("d", line)
        .on("pointermove", (event, c) => hint(event, `${c.machine} ${c.dtype}\n${show(c.peak, "FLOP/s")} and ${show(c.bandwidth, "B/s")}, ridge at ${digits(c.peak / c.bandwidth)} FLOP/B`)).on("pointerleave", event => hint(event, ""));
      const points = view.points.filter(point => chosen(point) && (op.value === "all" || point.op === op.value));
      const rate = point => point.achieved || point.predicted || point.attainable;
      plot.selectAll("line.gap").data(points).join("line").attr("class", "gap").attr("stroke", point => colour(point.op)).attr("stroke-opacity", .45).attr("x1", point => x(point.x)).attr("x2", point => x(point.x)).attr("y1", point => y(point.attainable)).attr("y2", point => y(rate(point)));
      plot.selectAll("circle").data(points).join("circle").attr("r", 5).attr("tabindex", 0).attr("fill", point => point.achieved ? colour(point.op) : "transparent").attr("stroke", point => colour(point.op)).attr("stroke-width", 2).attr("cx", point => x(point.x)).attr("cy", point => y(rate(point)))
        .on("pointermove", (event, point) => hint(event, [`${point.name} ${point.dimensions} ${point.dtype}`, point.kernel, `attainable ${show(point.attainable, "FLOP/s")} (${point.limiter})`, point.predicted && `expected ${show(point.predicted, "FLOP/s")}`, point.achieved && `measured ${show(point.achieved, "FLOP/s")}`].filter(Boolean).join("\n"))).on("pointerleave", event => hint(event, ""));
    }
    const zoom = d3.zoom().scaleExtent([1, 60]).translateExtent([[0, 0], [W, H]]).extent([[0, 0], [W, H]]).on("zoom", event => { x = event.transform.rescaleX(x0); y = event.transform.rescaleY(y0); draw(); });
    svg.call(zoom); reset.onclick = () => svg.call(zoom.transform, d3.zoomIdentity); draw();
    make("p", node, "Filled: measured. Open: expected. The line reaches up to what is attainable.", { class: "soft" });
  }
  roofline.n = 0;

  // Amdahl's law, as perfmodel.investment.amdahl computes it: overall = total / (total - sum of saved times)
  const amdahl = (total, rows) => total / (total - d3.sum(rows, row => row.target_time_s * (1 - 1 / row.speedup)));
  function candidates(parent, view) {
    const node = section(parent, view), limit = 100;
    make("p", node, "Speedups are of the parts that a change touches. Changes of the same part exclude each other here.", { class: "soft" });
    const grid = make("table", make("div", node, null, { class: "scroll" })), head = make("tr", make("thead", grid)), body = make("tbody", grid);
    for (const title of ["use", "change", "touches", "its speedup", "days", "overall", "saves a day"]) make("th", head, title);
    const result = make("p", node, "", { class: "result", "data-result": "joint" });
    const rows = view.rows.map(row => ({ ...row, used: false }));
    rows.forEach((row, index) => {
      const line = make("tr", body), use = make("input", make("td", line), null, { type: "checkbox", "aria-label": "use " + row.name });
      make("td", line, row.name, { title: row.name }); make("td", line, show(row.target_time_s, "s"), { class: "number" });
      const cell = make("td", line), slider = make("input", cell, null, { type: "range", min: 0, max: 1000, value: 1000 * Math.log(Math.min(row.speedup, limit)) / Math.log(limit), "aria-label": "speedup of " + row.name }), text = make("span", cell, "");
      const days = make("input", make("td", line), null, { type: "number", min: .1, step: .5, value: row.days, style: "width:5rem", "aria-label": "days of " + row.name });
      const overall = make("td", line, "", { class: "number" }), gain = make("td", line, "", { class: "number" });
      row.used = index === 0; use.checked = row.used; row.box = use;
      row.update = () => { text.textContent = " " + row.speedup.toFixed(2) + " x"; const whole = amdahl(view.total_s, [row]); overall.textContent = whole.toFixed(3) + " x"; gain.textContent = show(row.target_time_s * (1 - 1 / row.speedup) / row.days, "s"); };
      slider.oninput = () => { row.speedup = Math.exp(slider.value / 1000 * Math.log(limit)); update(); };
      days.oninput = () => { row.days = Math.max(.1, Number(days.value) || .1); update(); };
      use.onchange = () => { row.used = use.checked; if (row.used) for (const other of rows) if (other !== row && other.targets.some(target => row.targets.includes(target))) { other.used = false; other.box.checked = false; } update(); };
    });
    function update() {
      rows.forEach(row => row.update());
      const used = rows.filter(row => row.used), whole = amdahl(view.total_s, used), days = d3.sum(used, row => row.days);
      result.textContent = used.length ? `Together ${whole.toFixed(3)} x: ${show(view.total_s, "s")} become ${show(view.total_s / whole, "s")}, for ${digits(days)} days` : "Choose a change.";
    }
    update();
  }

  function front(parent, view) {
    const node = section(parent, view), W = 760, H = 380, M = { l: 70, r: 16, t: 10, b: 42 };
    const svg = d3.select(node).append("svg").attr("viewBox", `0 0 ${W} ${H}`).attr("role", "img").attr("aria-label", view.title);
    const x = d3.scaleLinear([0, d3.max(view.points, p => p.x) * 1.05], [M.l, W - M.r]), y = d3.scaleLinear([0, d3.max(view.points, p => p.y) * 1.05], [H - M.b, M.t]);
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${H - M.b})`).call(d3.axisBottom(x)); svg.append("g").attr("class", "axis").attr("transform", `translate(${M.l},0)`).call(d3.axisLeft(y).ticks(6, "~s"));
    svg.append("text").attr("x", (W + M.l) / 2).attr("y", H - 6).attr("text-anchor", "middle").text(view.x); svg.append("text").attr("transform", `translate(14,${H / 2}) rotate(-90)`).attr("text-anchor", "middle").text(view.y);
    let best = -1; const best_of = [...view.points].sort((a, b) => b.x - a.x).filter(point => point.y > best && (best = point.y, true));
    svg.append("path").attr("fill", "none").attr("stroke", COLOURS[1]).attr("stroke-width", 2).attr("d", d3.line(p => x(p.x), p => y(p.y))(best_of));
    svg.selectAll("circle").data(view.points).join("circle").attr("cx", p => x(p.x)).attr("cy", p => y(p.y)).attr("r", 5).attr("fill", p => best_of.includes(p) ? COLOURS[1] : COLOURS[0])
      .on("pointermove", (event, p) => hint(event, `${p.name}\n${digits(p.x)} ${view.x}\n${digits(p.y)} ${view.y}`)).on("pointerleave", event => hint(event, ""));
  }

  const ARRAYS = { "<f4": Float32Array, "<u2": Uint16Array, "<u4": Uint32Array, "|u1": Uint8Array, "<i4": Int32Array };
  async function unpack(text, type) {
    const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new ARRAYS[type](await new Response(stream).arrayBuffer());
  }
  async function timeline(parent, view, tables) {
    const node = section(parent, view), bar = make("div", node, null, { class: "bar" });
    const search = labelled(bar, "Find", make("input", null, null, { type: "search", "aria-label": "find events by name" })), reset = make("button", bar, "Whole window"), status = make("span", bar, "unpacking", { class: "soft" });
    const LANE = 22, canvas = make("canvas", node, null, { tabindex: 0, role: "img", "aria-label": "time line of the GPUs: wheel zooms, drag moves" });
    const columns = {};
    for (const [key, text] of Object.entries(view.columns)) columns[key] = await unpack(text, view.types[key]);
    const { start, length, lane, name, kind, entry } = columns, context = canvas.getContext("2d"), pen = d3.scaleOrdinal(view.kinds, COLOURS);
    // the lanes apart, so that a pixel's events are found by bisection
    const lanes = view.lanes.map(() => []); for (let i = 0; i < start.length; i += 1) lanes[lane[i]].push(i);
    const longest = lanes.map(list => d3.max(list, i => length[i]) || 0);
    let from = 0, to = view.window_us, found = null, width = 0;
    function size() {
      width = Math.max(200, node.clientWidth - 30); const height = LANE * lanes.length + 22, scale = devicePixelRatio || 1;
      canvas.style.height = height + "px"; canvas.width = width * scale; canvas.height = height * scale; context.setTransform(scale, 0, 0, scale, 0, 0); draw();
    }
    function draw() {
      const begun = performance.now(), perPixel = (to - from) / width, ink = getComputedStyle(document.body).color;
      context.clearRect(0, 0, width, canvas.height); context.font = "11px system-ui"; context.textBaseline = "middle";
      lanes.forEach((list, row) => {
        const top = row * LANE + 2, busy = new Float32Array(width), hits = new Uint8Array(width), kinds = new Uint8Array(width);
        let i = d3.bisector(index => start[index]).left(list, from - longest[row]);
        for (; i < list.length && start[list[i]] < to; i += 1) {
          const index = list[i], end = start[index] + length[index]; if (end < from) continue;
          const a = (start[index] - from) / perPixel, b = (end - from) / perPixel, wide = b - a >= 3, hit = found && found[name[index]];
          if (wide) {
            const left = Math.max(0, a), right = Math.min(width, b); context.globalAlpha = found && !hit ? .2 : 1; context.fillStyle = pen(view.kinds[kind[index]]); context.fillRect(left, top, Math.max(1, right - left - .5), LANE - 4);
            if (right - left > 60) { context.save(); context.beginPath(); context.rect(left, top, right - left - 3, LANE - 4); context.clip(); context.fillStyle = "#fff"; context.fillText(view.names[name[index]], left + 4, top + LANE / 2 - 2); context.restore(); }
          } else for (let p = Math.max(0, Math.floor(a)); p <= Math.min(width - 1, Math.floor(b)); p += 1) { busy[p] += Math.max(0, Math.min(b, p + 1) - Math.max(a, p)); kinds[p] = kind[index]; if (hit) hits[p] = 1; }
        }
        // small events: how much of a pixel is busy decides how dark it is
        for (let p = 0; p < width; p += 1) if (busy[p] > 0) { context.globalAlpha = found ? (hits[p] ? 1 : .12) : Math.min(1, .15 + .85 * busy[p]); context.fillStyle = pen(view.kinds[kinds[p]]); context.fillRect(p, top, 1, LANE - 4); }
        context.globalAlpha = .75; context.fillStyle = ink; context.fillText(view.lanes[row], 4, top + LANE / 2 - 2); context.globalAlpha = 1;
      });
      context.fillStyle = ink; const base = lanes.length * LANE + 12; context.fillText(show(from * 1e-6, "s"), 4, base); context.textAlign = "right"; context.fillText(show(to * 1e-6, "s"), width - 4, base); context.textAlign = "left";
      canvas.dataset.drawMs = (performance.now() - begun).toFixed(1);
      status.textContent = `${view.count} events` + (view.left_out ? `, ${view.left_out} short ones left out` : "") + (found ? `, ${d3.sum(name, number => found[number] ? 1 : 0)} found` : "");
    }
    function at(event) {
      const box = canvas.getBoundingClientRect(), row = Math.floor((event.clientY - box.top) / LANE), time = from + (event.clientX - box.left) / width * (to - from), slack = 2 * (to - from) / width;
      if (!lanes[row]) return -1;
      let best = -1; for (let i = d3.bisector(index => start[index]).left(lanes[row], time - longest[row] - slack); i < lanes[row].length && start[lanes[row][i]] <= time + slack; i += 1) { const index = lanes[row][i]; if (start[index] + length[index] >= time - slack && (best < 0 || length[index] > length[best])) best = index; }
      return best;
    }
    function move(a, b) { const span = Math.max(.5, Math.min(b - a, view.window_us)); from = Math.max(0, Math.min(a, view.window_us - span)); to = from + span; draw(); }
    canvas.addEventListener("wheel", event => { event.preventDefault(); const box = canvas.getBoundingClientRect(), share = (event.clientX - box.left) / width, factor = Math.exp(.0015 * event.deltaY), middle = from + share * (to - from); move(middle - share * (to - from) * factor, middle + (1 - share) * (to - from) * factor); }, { passive: false });
    let dragged = null;
    canvas.onpointerdown = event => { dragged = { x: event.clientX, from, to, moved: false }; canvas.setPointerCapture(event.pointerId); };
    canvas.onpointermove = event => {
      if (dragged) { const shift = (dragged.x - event.clientX) / width * (dragged.to - dragged.from); dragged.moved = dragged.moved || Math.abs(event.clientX - dragged.x) > 3; if (dragged.moved) { hint(event, ""); move(dragged.from + shift, dragged.to + shift); } return; }
      const index = at(event); hint(event, index < 0 ? "" : `${view.names[name[index]]}\n${view.kinds[kind[index]]}, ${show(length[index] * 1e-6, "s")} at ${show(start[index] * 1e-6, "s")}`);
    };
    canvas.onpointerup = event => { const click = dragged && !dragged.moved; dragged = null; const index = click ? at(event) : -1; if (index >= 0 && entry[index] >= 0) tables.some(one => one.mark(view.entries[entry[index]])); };
    canvas.onpointerleave = event => hint(event, "");
    canvas.onkeydown = event => { const span = to - from, step = { ArrowLeft: [-.2, -.2], ArrowRight: [.2, .2], "+": [.2, -.2], "-": [-.25, .25] }[event.key]; if (step) { event.preventDefault(); move(from + step[0] * span, to + step[1] * span); } };
    search.oninput = () => { const words = search.value.toLowerCase(); found = words ? view.names.map(text => text.toLowerCase().includes(words)) : null; draw(); };
    reset.onclick = () => move(0, view.window_us); new ResizeObserver(size).observe(node); size();
    const legend = make("p", node, "Colours: ", { class: "soft" }); for (const word of view.kinds) { make("span", legend, "■ ", { style: `color:${pen(word)}` }); make("span", legend, word + "  "); }
    make("p", node, "Wheel zooms, dragging moves, a click marks the operator's row. Narrow events are drawn as the share of a pixel that is busy.", { class: "soft" });
  }

  const DRAW = { heading, table, bars, roofline, candidates, front, timeline };
  async function start() {
    main.className = data.inputs.length > 1 ? "pair" : "";
    for (const views of data.inputs) {
      const parent = make("div", main, null, { class: "input" }), holders = views.map(view => view.kind === "timeline" ? make("div", parent) : (DRAW[view.kind] ? make("div", parent, null, { style: "min-width:0" }) : null)), tables = [];
      views.forEach((view, index) => { if (view.kind !== "timeline" && holders[index]) { const made = DRAW[view.kind](holders[index], view); if (view.kind === "table") tables.push(made); } });
      for (const [index, view] of views.entries()) if (view.kind === "timeline") await timeline(holders[index], view, tables);
    }
    document.documentElement.dataset.ready = "1";
  }
  start().catch(error => { make("p", main, "The page could not be drawn: " + error.message, { role: "alert" }); document.documentElement.dataset.ready = "failed"; });
})();
