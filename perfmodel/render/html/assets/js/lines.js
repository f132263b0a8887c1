// Lines over an axis, by uPlot: readings of the monitor, latency over the load, time over size, memory over a step.
const MOST_SERIES = 16;
// between the ticks of a clock [s]: none below a second, which its texts do not show
const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 480, 720].map(minutes => 60 * minutes), ...[1, 2, 4, 7, 14, 30, 90, 365].map(days => 86400 * days)];

// Times of the viewer's zone in 24 hours, with the day below the first of each day.
function clockTexts(_, places, axis, space, step) {
  const time = d3.timeFormat(step < 60 ? "%H:%M:%S" : step < 86400 ? "%H:%M" : "%d %b"), day = d3.timeFormat("%b %d");
  let last = "";
  return places.map(value => {
    const at = new Date(value * 1000), own = day(at), text = own === last ? time(at) : `${time(at)}\n${own}`;
    last = own;
    return text;
  });
}

function lines(parent, view) {
  const node = section(parent, view), clock = view.x_label === "time", shown = view.series.slice(0, MOST_SERIES);
  const holder = make("div", node, null, { class: "chart" });
  const low = d3.min(view.x.filter(value => value > 0)), log = !clock && !view.steps && view.x.length > 2 && low > 0 && d3.max(view.x) / low > 30;
  const values = [view.x], series = [{ label: clock ? "time" : view.x_label, value: (_, value) => (value === null ? "-" : clock ? new Date(value * 1000).toLocaleTimeString("en-GB") : digits(value)) }], bands = [];
  shown.forEach((line, at) => {
    const pen = at % SLOTS, dash = at >= SLOTS ? [6, 3] : line.name === "capacity" || line.name === "ideal" ? [4, 4] : undefined;
    if (line.low.length) {
      values.push(line.high, line.low);
      for (const end of ["high", "low"]) series.push({ label: `${line.name}, ${end}`, width: 0, points: { show: false }, value: (_, value) => show(value, view.unit), class: "band", pen });
      bands.push({ series: [values.length - 2, values.length - 1], pen });
    }
    values.push(line.values);
    series.push({ label: line.name, width: 1.6, pen, dash, spanGaps: true, points: { show: !view.steps && view.x.length < 60, size: 5 }, value: (_, value) => show(value, view.unit), paths: view.steps ? uPlot.paths.stepped({ align: 1 }) : undefined });
  });
  const most = d3.max(values.slice(1).flatMap(list => d3.max(list.filter(value => value !== null)) ?? []));
  let plot = null;
  function options(width) {
    const ink = style("--ink"), line = style("--line"), font = "12px system-ui, sans-serif";
    const size = (_, texts) => Math.max(50, 24 + 7 * Math.max(0, ...(texts || []).map(text => String(text).length)));
    return {
      width, height: width < 520 ? 210 : 260, ms: 1e-3, padding: [10, 14, 0, 0],
      scales: { x: { time: clock, distr: log ? 3 : 1 }, y: { range: (_, min, max) => (most > 0 && min >= 0 ? [0, max * 1.08 || 1] : uPlot.rangeNum(min, max, .1, true)) } },
      axes: [
        { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, font, label: clock ? undefined : view.x_label, labelFont: font, labelSize: 16, size: clock ? 46 : 34, ...(clock ? { space: 60, incrs: CLOCK_STEPS, values: clockTexts } : { values: (_, list) => list.map(value => (value === null ? "" : digits(value))) }) },
        { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, font, size, ...(view.unit === "iB" ? { incrs: d3.range(50).map(power => 2 ** power) } : {}), values: (_, list) => list.map(value => (value === null ? "" : ticks(view.unit)(value))) },
      ],
      series: series.map((one, at) => (at ? { ...one, stroke: one.width ? colour(one.pen) : "transparent" } : one)),
      bands: bands.map(band => ({ series: band.series, fill: d3.color(colour(band.pen)).copy({ opacity: .2 }).formatRgb() })),
      cursor: { drag: { x: true, y: false } }, legend: { live: true },
    };
  }
  function draw() {
    const width = Math.max(240, Math.floor(holder.clientWidth));
    if (plot && plot.width === width) return;
    if (plot) plot.destroy();
    plot = new uPlot(options(width), values, holder);
    for (const row of holder.querySelectorAll(".u-legend .band")) row.style.display = "none";
  }
  new ResizeObserver(draw).observe(holder);
  const again = () => { if (plot) plot.destroy(); plot = null; draw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  drawings.add(again);
  draw();
  holder.setAttribute("role", "img");
  holder.setAttribute("aria-label", `${view.title}: ${shown.map(line => line.name).join(", ")}`);
  make("p", node, `${bands.length ? (clock ? "Band: smallest and largest reading of a point. " : "Band: 80 % interval. ") : ""}Drag to zoom, double click for the whole; a click in the legend hides a line.${view.series.length > MOST_SERIES ? ` ${view.series.length - MOST_SERIES} more lines are in the table.` : ""}`, { class: "soft" });
}
