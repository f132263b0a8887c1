// The work of the GPUs over time on a canvas: busy share by pixel, zoom to single kernels, search by name.
const LANE = 22;

async function timeline(parent, view, input, tables) {
  const node = section(parent, view), bar = make("div", node, null, { class: "bar" });
  const search = labelled(bar, "Find", make("input", null, null, { type: "search", "aria-label": "find events by name" }));
  const reset = make("button", bar, "Whole window", { type: "button" }), status = make("span", bar, "unpacking", { class: "soft", role: "status" });
  const canvas = make("canvas", node, null, { class: "drawn", tabindex: 0, role: "img", "aria-label": "time line of the GPUs: wheel or plus and minus zoom, drag or arrows move, Home shows all" });
  const columns = {};
  for (const [key, text] of Object.entries(view.columns)) columns[key] = await unpackArray(text, view.types[key]);
  const { start, length, lane, name, kind, entry } = columns, context = canvas.getContext("2d"), pen = scale(view.kinds);
  // the lanes apart, so that a pixel's events are found by bisection
  const lanes = view.lanes.map(() => []);
  for (let at = 0; at < start.length; at += 1) lanes[lane[at]].push(at);
  const longest = lanes.map(list => d3.max(list, at => length[at]) || 0);
  const gutter = () => Math.min(96, 8 + 6.3 * d3.max(view.lanes, text => text.length));
  let from = 0, to = view.window_us, found = null, width = 0, left = 0;
  function size() {
    const now = Math.max(200, node.clientWidth - parseFloat(getComputedStyle(node).paddingLeft) * 2), ratio = devicePixelRatio || 1, height = LANE * lanes.length + 20;
    if (now === width) return;
    left = gutter();
    width = now;
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw();
  }
  function draw() {
    const begun = performance.now(), ink = style("--ink"), pens = view.kinds.map(pen);
    context.clearRect(0, 0, width, canvas.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    lanes.forEach((list, row) => drawLane(list, row, pens, ink));
    const base = lanes.length * LANE + 11;
    context.fillStyle = ink;
    context.fillText(show(from * 1e-6, "s"), left, base);
    context.textAlign = "center";
    context.fillText(`${show((to - from) * 1e-6, "s")} in view`, left + (width - left) / 2, base);
    context.textAlign = "right";
    context.fillText(show(to * 1e-6, "s"), width - 4, base);
    context.textAlign = "left";
    canvas.dataset.drawMs = (performance.now() - begun).toFixed(1);
    const hits = found ? d3.sum(name, number => (found[number] ? 1 : 0)) : 0;
    status.textContent = `${view.count} events${view.left_out ? `, ${view.left_out} short ones left out` : ""}${found ? `, ${hits} found` : ""}`;
  }
  function drawLane(list, row, pens, ink) {
    const top = row * LANE + 2, across = width - left, perPixel = (to - from) / across, pixels = Math.ceil(across);
    const busy = new Float32Array(pixels), hits = new Uint8Array(pixels), kinds = new Uint8Array(pixels);
    for (let place = d3.bisector(at => start[at]).left(list, from - longest[row]); place < list.length && start[list[place]] < to; place += 1) {
      const at = list[place], end = start[at] + length[at];
      if (end < from) continue;
      const a = (start[at] - from) / perPixel, b = (end - from) / perPixel, hit = found && found[name[at]];
      if (b - a >= 3) drawEvent(at, Math.max(0, a), Math.min(across, b), top, found && !hit, pens);
      else for (let p = Math.max(0, Math.floor(a)); p <= Math.min(pixels - 1, Math.floor(b)); p += 1) {
        busy[p] += Math.max(0, Math.min(b, p + 1) - Math.max(a, p));
        kinds[p] = kind[at];
        if (hit) hits[p] = 1;
      }
    }
    // small events: how much of a pixel is busy decides how dark it is
    for (let p = 0; p < pixels; p += 1) if (busy[p] > 0) {
      context.globalAlpha = found ? (hits[p] ? 1 : .12) : Math.min(1, .15 + .85 * busy[p]);
      context.fillStyle = pens[kinds[p]];
      context.fillRect(left + p, top, 1, LANE - 4);
    }
    context.globalAlpha = 1;
    context.fillStyle = ink;
    context.fillText(view.lanes[row], 4, top + LANE / 2 - 2, left - 8);
  }
  function drawEvent(at, a, b, top, dim, pens) {
    context.globalAlpha = dim ? .2 : 1;
    context.fillStyle = pens[kind[at]];
    context.fillRect(left + a, top, Math.max(1, b - a - .5), LANE - 4);
    if (b - a > 60) {
      context.save();
      context.beginPath();
      context.rect(left + a, top, b - a - 3, LANE - 4);
      context.clip();
      context.fillStyle = onto(pens[kind[at]]);
      context.fillText(view.names[name[at]], left + a + 4, top + LANE / 2 - 2);
      context.restore();
    }
  }
  const timeAt = event => from + (event.clientX - canvas.getBoundingClientRect().left - left) / (width - left) * (to - from);
  function under(event) {
    const row = Math.floor((event.clientY - canvas.getBoundingClientRect().top) / LANE), time = timeAt(event), slack = 2 * (to - from) / width;
    if (!lanes[row]) return -1;
    let best = -1;
    for (let place = d3.bisector(at => start[at]).left(lanes[row], time - longest[row] - slack); place < lanes[row].length && start[lanes[row][place]] <= time + slack; place += 1) {
      const at = lanes[row][place];
      if (start[at] + length[at] >= time - slack && (best < 0 || length[at] > length[best])) best = at;
    }
    return best;
  }
  function move(a, b) {
    const span = Math.max(.5, Math.min(b - a, view.window_us));
    from = Math.max(0, Math.min(a, view.window_us - span));
    to = from + span;
    draw();
  }
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    const middle = timeAt(event), factor = Math.exp(.0015 * event.deltaY);
    move(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }, { passive: false });
  let dragged = null;
  canvas.onpointerdown = event => { dragged = { x: event.clientX, from, to, moved: false }; canvas.setPointerCapture(event.pointerId); };
  canvas.onpointermove = event => {
    if (dragged) {
      const shift = (dragged.x - event.clientX) / (width - left) * (dragged.to - dragged.from);
      dragged.moved = dragged.moved || Math.abs(event.clientX - dragged.x) > 3;
      if (dragged.moved) { hint(event, ""); move(dragged.from + shift, dragged.to + shift); }
      return;
    }
    const at = under(event);
    hint(event, at < 0 ? "" : `${view.names[name[at]]}\n${view.kinds[kind[at]]}, ${show(length[at] * 1e-6, "s")} at ${show(start[at] * 1e-6, "s")}`);
  };
  canvas.onpointerup = event => {
    const at = dragged && !dragged.moved ? under(event) : -1;
    dragged = null;
    if (at >= 0 && entry[at] >= 0) tables.some(one => one.mark(view.entries[entry[at]]));
  };
  canvas.onpointerleave = event => hint(event, "");
  canvas.onkeydown = event => {
    const span = to - from, step = { ArrowLeft: [-.2, -.2], ArrowRight: [.2, .2], "+": [.2, -.2], "-": [-.25, .25], Home: [-Infinity, Infinity] }[event.key];
    if (!step) return;
    event.preventDefault();
    if (event.key === "Home") move(0, view.window_us); else move(from + step[0] * span, to + step[1] * span);
  };
  search.oninput = () => { const words = search.value.toLowerCase(); found = words ? view.names.map(text => text.toLowerCase().includes(words)) : null; draw(); };
  reset.onclick = () => move(0, view.window_us);
  const key = make("p", node, "", { class: "soft" }), used = new Set(kind);
  view.kinds.forEach((word, at) => { if (used.has(at)) swatch(key, pen(word), word); });
  make("span", key, "Wheel zooms, dragging moves, a click marks the operator's row. Narrow events: the darker, the busier the pixel.");
  new ResizeObserver(size).observe(node);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  drawings.add(() => { width = 0; size(); });
  size();
}
