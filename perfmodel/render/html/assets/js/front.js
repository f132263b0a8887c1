// Deployments: tokens a second of a GPU against those of a user; the line joins those that nothing beats in both.
function best(points) {
  let most = -Infinity;
  return [...points].sort((a, b) => b.x - a.x || b.y - a.y).filter(point => point.y > most && (most = point.y, true));
}

// an axis begins at 0 unless its points would crowd at its end, as those of one limit on the time per token do
function across(values) {
  const [low, high] = d3.extent(values), room = (high - low) * .15 || high * .15;
  return low > .6 * high ? [low - room, high + room] : [0, high * 1.08];
}

function front(parent, view, input, tables) {
  const node = section(parent, view), edge = best(view.points), groups = [...new Set(view.points.map(point => point.group))], pen = scale(groups);
  const describe = point => [point.name, point.group, point.users && `${digits(point.users)} users`, `${digits(point.x)} ${view.x}`, `${digits(point.y)} ${view.y}`, point.ttft_s && `first token after ${show(point.ttft_s, "s")}`, point.limiter && `waits for ${point.limiter}`, point.met === false && "misses the objective", edge.includes(point) ? "on the front" : ""].filter(Boolean).join("\n");
  chart(node, view.title, (svg, width) => {
    const height = Math.round(Math.min(400, Math.max(260, width * .45))), M = { l: 56, r: 16, t: 20, b: 40 };
    const x = d3.scaleLinear(across(view.points.map(p => p.x)), [M.l, width - M.r]), y = d3.scaleLinear([0, d3.max(view.points, p => p.y) * 1.1], [height - M.b, M.t]);
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height - M.b})`).call(d3.axisBottom(x).ticks(Math.max(3, width / 110)));
    svg.append("g").attr("class", "axis").attr("transform", `translate(${M.l},0)`).call(d3.axisLeft(y).ticks(6).tickFormat(ticks("")));
    svg.append("text").attr("x", (width + M.l) / 2).attr("y", height - 4).attr("text-anchor", "middle").text(view.x);
    svg.append("text").attr("x", 4).attr("y", 11).text(view.y);
    svg.append("path").attr("fill", "none").attr("stroke", "currentColor").attr("stroke-opacity", .6).attr("stroke-width", 1.5).attr("d", d3.line(p => x(p.x), p => y(p.y))(edge));
    const circles = svg.selectAll("circle").data(view.points).join("circle").attr("cx", p => x(p.x)).attr("cy", p => y(p.y)).attr("r", p => (edge.includes(p) ? 6 : 4)).attr("tabindex", 0)
      .attr("fill", p => pen(p.group)).attr("fill-opacity", p => (edge.includes(p) ? 1 : .35)).attr("stroke", p => pen(p.group));
    hinted(circles, describe);
    const mark = (_, point) => tables.find(one => one.key === view.table)?.markRow(point.row);
    circles.on("click", mark).on("keydown", (event, point) => { if (event.key === "Enter") mark(event, point); });
    labels(svg, edge, x, y, width);
    return height;
  });
  const key = make("p", node, "", { class: "soft" });
  if (groups.length > 1) for (const name of groups) swatch(key, pen(name), name);
  make("span", key, "Further up serves more users with a GPU, further right each user faster. Large points: no other is better in both. A click marks the row.");
}

// names of the points on the front, where there is room
function labels(svg, edge, x, y, width) {
  const taken = [];
  for (const point of edge) {
    const text = clipped(point.name.includes(point.group) && point.name !== point.group ? point.name.replace(point.group, "").trim() : point.users ? `${digits(point.users)} user${point.users === 1 ? "" : "s"}` : point.name, 190);
    const size = text.length * 6.6, right = x(point.x) + 10 + size < width, left = right ? x(point.x) + 9 : x(point.x) - 9 - size, box = [left, left + size, y(point.y) - 14, y(point.y) + 2];
    if (left < 60 || taken.some(other => box[0] < other[1] && box[1] > other[0] && box[2] < other[3] && box[3] > other[2])) continue;
    taken.push(box);
    svg.append("text").attr("class", "halo").attr("x", left).attr("y", y(point.y) - 3).text(text);
  }
}
