// All views of all inputs, in order; tables first, so that drawings can mark their rows.
const DRAW = { heading, bars, times, terms, pair, path, pipeline, roofline, lines, front, candidates, timeline, judged, coverage, changes };

// line plots stand two in a row; one without a neighbour takes the whole width
function pairs(views) {
  const found = new Set();
  for (let at = 0; at + 1 < views.length; at += 1) if (!found.has(at) && views[at].kind === "lines" && views[at + 1].kind === "lines") { found.add(at); found.add(at + 1); }
  return found;
}

async function drawInput(views, number) {
  const parent = make("div", main, null, { class: "input" }), half = pairs(views), holders = views.map((_, at) => make("div", parent, null, half.has(at) ? { class: "half" } : {}));
  const head = views.find(view => view.kind === "heading") || { context: {} }, named = head.context.hardware;
  const input = { number, context: head.context, machine: Array.isArray(named) ? named[0] : named };
  const tables = [];
  for (const [at, view] of views.entries()) if (view.kind === "table") tables.push(await table(holders[at], view, input));
  for (const [at, view] of views.entries()) {
    if (view.kind === "heading") heading(holders[at], view, number);
    else if (DRAW[view.kind]) await DRAW[view.kind](holders[at], view, input, tables);
  }
}

async function start() {
  main.className = data.inputs.length > 1 ? "pair" : "";
  if (data.pair) pair(make("div", main, null, { class: "whole" }), data.pair);
  for (const [number, views] of data.inputs.entries()) await drawInput(views, number);
  document.documentElement.dataset.ready = "1";
  document.documentElement.dataset.readyMs = performance.now().toFixed(0);
  openAddress();
}
// what is computed here and not in Python, for scripts beside the page and for its tests
window.perfmodel = { amdahl, payback, walk, best, across, clipped, clockTexts, CLOCK_STEPS, decades };
start().catch(error => {
  make("p", main, `The page could not be drawn: ${error.message}`, { role: "alert" });
  document.documentElement.dataset.ready = "failed";
});
