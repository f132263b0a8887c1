// What every part of the page uses: nodes, numbers with units, hints, drawings that keep the size of their text.
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("page");
const tip = document.getElementById("tip");

// Okabe and Ito's colours, told apart by readers who see red and green alike; lighter ones where the page is dark
const SLOTS = 8;
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = number => style(`--c${number % SLOTS}`);
const MOST_SLOTS = 14;
const scale = names => { const places = new Map(names.map((name, at) => [name, at])); return name => style(`--c${(places.get(name) || 0) % (names.length > SLOTS ? MOST_SLOTS : SLOTS)}`); };
const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "u"], [1e-9, "n"]];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB"];

// every text goes through textContent: names of kernels are foreign
function make(tag, parent, text, attributes) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (parent) parent.appendChild(node);
  return node;
}

// shares below this are what rounded clocks leave of nothing
const ROUNDED = 1e-6;
const digits = (value, most = 4) => String(Number(value.toPrecision(most)));

function show(value, unit, most = 4) {
  if (value === null || value === undefined || value === "") return "-";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object") return "mean" in value ? show(value.mean, unit, most) : JSON.stringify(value);
  if (typeof value !== "number") return String(value);
  if (unit === "fraction" && Math.abs(value) < ROUNDED) return "0 %";
  if (unit === "fraction") return `${Math.abs(value) < 1e-3 ? digits(100 * value, 1) : digits(100 * value, 3)} %`;
  if (unit === "x") return `${digits(value)} x`;
  if (unit === "FLOP/B") return `${digits(value)} FLOP/B`;
  if (unit === "iB") {
    let step = 0;
    while (Math.abs(value) >= 1024 && step < BINARY.length - 1) { value /= 1024; step += 1; }
    return `${digits(value)} ${BINARY[step]}`;
  }
  if (!unit) return plain(value, most);
  if (value === 0) return `0 ${unit}`;
  const found = PREFIXES.find(([size]) => Math.abs(value) >= size) || PREFIXES[PREFIXES.length - 1];
  if (unit === "s" && found[0] >= 1) return `${digits(value, most)} s`;
  return `${digits(value / found[0], most)} ${found[1]}${unit}`;
}

function plain(value, most) {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value >= 1e5 ? value.toLocaleString("en").replaceAll(",", " ") : String(value);
  return digits(value, most);
}

function hint(event, text) {
  tip.textContent = text;
  tip.hidden = !text;
  if (!text) return;
  const box = tip.getBoundingClientRect(), at = event.target.getBoundingClientRect();
  const x = event.clientX === undefined ? at.right : event.clientX, y = event.clientY === undefined ? at.bottom : event.clientY;
  tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 6))}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 6))}px`;
}

// shows a text while the pointer or the keyboard is on a drawn thing
const hinted = (selection, text) => selection
  .on("pointermove focus", (event, item) => hint(event, text(item)))
  .on("pointerleave blur", event => hint(event, ""));

// What is drawn for the width and the colours of the window is drawn anew for paper before the browser lays that out.
// Paper cannot be clicked: what is folded up is opened.
const drawings = new Set();
let folded = [];
function onPaper(is) {
  document.documentElement.classList.toggle("paper", is);
  if (is) folded = [...document.querySelectorAll("details:not([open])")];
  for (const one of folded) one.open = is;
  for (const again of drawings) again();
}
addEventListener("beforeprint", () => onPaper(true));
addEventListener("afterprint", () => onPaper(false));

function section(parent, view) {
  const node = make("section", parent, null, { "data-kind": view.kind, "aria-label": view.title });
  if (view.title) make("h2", node, view.title);
  return node;
}

function labelled(parent, text, node) {
  const label = make("label", parent, `${text} `);
  label.appendChild(node);
  return node;
}

function select(parent, title, values, changed) {
  const node = labelled(parent, title, make("select"));
  for (const value of values) make("option", node, value, { value });
  node.onchange = changed;
  return node;
}

// a drawing that is made again when its width changes, so that its text keeps its size; draw returns its height
function chart(parent, label, draw) {
  const node = make("div", parent, null, { class: "chart" });
  const svg = d3.select(node).append("svg").attr("role", "img").attr("aria-label", label);
  let width = 0;
  function redraw() {
    if (!width) return;
    svg.selectAll("*").remove();
    const height = draw(svg, width);
    svg.attr("viewBox", `0 0 ${width} ${height}`);
  }
  function resize() {
    const now = Math.max(240, Math.floor(node.clientWidth));
    if (now !== width) { width = now; redraw(); }
  }
  new ResizeObserver(resize).observe(node);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  drawings.add(() => { width = 0; resize(); });
  resize();
  return { svg, redraw };
}

// as much of a text as fits into some pixels, in the font of drawings
const ruler = document.createElement("canvas").getContext("2d");
function clipped(text, pixels) {
  ruler.font = "12px system-ui, sans-serif";
  const wide = words => ruler.measureText(words).width;
  let short = text;
  for (let most = Math.floor(text.length * pixels / wide(text)); wide(short) > pixels && most > 2; most -= 1) short = `${text.slice(0, Math.ceil(most * .6) - 1)}…${text.slice(text.length - Math.floor(most * .4))}`;
  return short;
}

// black or white, whichever is read more easily on a colour
const onto = colour => (d3.lab(colour).l > 50 ? "#000" : "#fff");

// ticks of an axis in a unit; of a time axis in one prefix
const ticks = unit => value => (unit ? show(value, unit, 3) : d3.format("~s")(value));

const ARRAYS = { "<f4": Float32Array, "<u2": Uint16Array, "<u4": Uint32Array, "|u1": Uint8Array, "<i4": Int32Array };
async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}
const unpackArray = async (text, type) => new ARRAYS[type](await (await inflated(text)).arrayBuffer());
const unpackRows = async view => (view.packed ? (await inflated(view.packed)).json() : view.rows);
