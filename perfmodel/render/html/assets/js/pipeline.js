// The micro batches of a training step by stage: forward and backward passes on a canvas, with what waits.
async function pipeline(parent, view) {
  const node = section(parent, view), bar = make("div", node, null, { class: "bar" }), reset = make("button", bar, "Whole step", { type: "button" });
  make("span", bar, `${view.count} passes on ${view.stages} stages${view.parts > 1 ? ` of ${view.parts} parts` : ""}`, { class: "soft" });
  const canvas = make("canvas", node, null, { class: "drawn", tabindex: 0, role: "img", "aria-label": "micro batches by stage: wheel or plus and minus zoom, drag or arrows move, Home shows all" });
  const columns = {};
  for (const [key, text] of Object.entries(view.columns)) columns[key] = await unpackArray(text, view.types[key]);
  const { gpu, part, micro, backward, start, end } = columns, context = canvas.getContext("2d");
  const tall = Math.max(8, Math.min(26, Math.floor(420 / view.stages))), left = 62, right = 58;
  let from = 0, to = view.end_s, width = 0;
  function size() {
    const now = Math.max(200, node.clientWidth - parseFloat(getComputedStyle(node).paddingLeft) * 2), ratio = devicePixelRatio || 1, height = tall * view.stages + 22;
    if (now === width) return;
    width = now;
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw();
  }
  const across = () => width - left - right, x = time => left + (time - from) / (to - from) * across();
  function draw() {
    const begun = performance.now(), ink = style("--ink"), pens = [colour(0), colour(1)];
    context.clearRect(0, 0, width, canvas.height);
    context.textBaseline = "middle";
    context.font = "11px system-ui, sans-serif";
    context.save();
    context.beginPath();
    context.rect(left, 0, across(), tall * view.stages);
    context.clip();
    context.textAlign = "center";
    for (let at = 0; at < start.length; at += 1) {
      if (end[at] < from || start[at] > to) continue;
      const a = x(start[at]), b = x(end[at]), top = gpu[at] * tall + 1;
      context.fillStyle = pens[backward[at]];
      context.globalAlpha = view.parts > 1 ? 1 - .55 * part[at] / view.parts : .9;
      context.fillRect(a, top, Math.max(.6, b - a - (b - a > 4 ? .7 : 0)), tall - 2);
      if (b - a > 8 + 6 * String(micro[at] + 1).length && tall >= 12) { context.globalAlpha = 1; context.fillStyle = onto(pens[backward[at]]); context.fillText(String(micro[at] + 1), (a + b) / 2, top + tall / 2 - 1); }
    }
    context.globalAlpha = 1;
    context.restore();
    frame(ink);
    canvas.dataset.drawMs = (performance.now() - begun).toFixed(1);
  }
  function frame(ink) {
    context.fillStyle = ink;
    const every = Math.ceil(12 / tall);
    for (let stage = 0; stage < view.stages; stage += every) {
      const y = stage * tall + tall / 2;
      context.textAlign = "left";
      context.fillText(`stage ${stage}`, 4, y, left - 8);
      context.textAlign = "right";
      context.fillText(`${show(view.busy[stage], "fraction")}`, width - 4, y, right - 6);
    }
    const base = tall * view.stages + 12, edge = x(view.passes_end_s);
    if (edge > left && edge < width - right) { context.setLineDash([3, 3]); context.strokeStyle = ink; context.beginPath(); context.moveTo(edge, 0); context.lineTo(edge, tall * view.stages); context.stroke(); context.setLineDash([]); }
    context.textAlign = "left";
    context.fillText(show(from, "s"), left, base);
    context.textAlign = "right";
    context.fillText(show(to, "s"), width - right, base);
    context.fillText("busy", width - 4, base);
    context.textAlign = "left";
  }
  const timeAt = event => from + (event.clientX - canvas.getBoundingClientRect().left - left) / across() * (to - from);
  function move(a, b) {
    const span = Math.max(view.end_s / 1e4, Math.min(b - a, view.end_s));
    from = Math.max(0, Math.min(a, view.end_s - span));
    to = from + span;
    draw();
  }
  canvas.addEventListener("wheel", event => { event.preventDefault(); const middle = timeAt(event), factor = Math.exp(.0015 * event.deltaY); move(middle - (middle - from) * factor, middle + (to - middle) * factor); }, { passive: false });
  let dragged = null;
  canvas.onpointerdown = event => { dragged = { x: event.clientX, from, to }; canvas.setPointerCapture(event.pointerId); };
  canvas.onpointerup = () => { dragged = null; };
  canvas.onpointermove = event => {
    if (dragged) { const shift = (dragged.x - event.clientX) / across() * (dragged.to - dragged.from); move(dragged.from + shift, dragged.to + shift); return; }
    const stage = Math.floor((event.clientY - canvas.getBoundingClientRect().top) / tall), time = timeAt(event);
    const at = start.findIndex((begin, place) => gpu[place] === stage && begin <= time && end[place] >= time);
    hint(event, at < 0 ? (stage < view.stages ? `stage ${stage} waits or exchanges\nbusy ${show(view.busy[stage], "fraction")} of the step` : "") : `stage ${stage}${view.parts > 1 ? `, part ${part[at]}` : ""}: micro batch ${micro[at] + 1}, ${backward[at] ? "backward" : "forward"}\n${show(end[at] - start[at], "s")}, from ${show(start[at], "s")}`);
  };
  canvas.onpointerleave = event => hint(event, "");
  canvas.onkeydown = event => {
    const span = to - from, step = { ArrowLeft: [-.2, -.2], ArrowRight: [.2, .2], "+": [.2, -.2], "-": [-.25, .25], Home: [-1, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    if (event.key === "Home") move(0, view.end_s); else move(from + step[0] * span, to + step[1] * span);
  };
  reset.onclick = () => move(0, view.end_s);
  const key = make("p", node, "", { class: "soft" });
  swatch(key, colour(0), "forward");
  swatch(key, colour(1), "backward");
  make("span", key, `Numbers: micro batches.${view.parts > 1 ? " Paler: later parts of a stage." : ""} Empty: the bubble. Dashed: end of the passes; exchanges and the update follow. Wheel zooms, dragging moves.`);
  new ResizeObserver(size).observe(node);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  drawings.add(() => { width = 0; size(); });
  size();
}
