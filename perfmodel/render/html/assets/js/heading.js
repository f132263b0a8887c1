// The first screen: what it is, what limits and what to do first, key figures, then conditions and notes.
const SHOWN_NOTES = 2;

function heading(parent, view, input) {
  const node = make("header", parent);
  make("h1", node, view.title);
  if (view.decision) make("p", node, view.decision, { class: "decision" });
  if (view.figures.length) {
    const list = make("ul", node, null, { class: "figures" });
    for (const figure of view.figures) drawFigure(list, figure, input);
  }
  const facts = make("ul", node, null, { class: "facts" });
  for (const [key, value] of Object.entries(view.context)) {
    make("li", facts, `${key.replaceAll("_", " ").replace(/ s$/, "")}: ${Array.isArray(value) ? value.join(", ") : show(value, view.units[key])}`);
  }
  notes(node, view.notes);
}

function drawFigure(list, figure, input) {
  const node = make("li", list, null, figure.tone ? { class: figure.tone } : {});
  make("span", node, figure.label, { class: "label" });
  const value = make("span", node, null, { class: "value" });
  const text = figure.text || show(figure.value, figure.unit);
  if (figure.origin) originButton(value, text, `${input}-${figure.origin[0]}`, figure.origin[1], figure.origin[2]);
  else value.textContent = text;
  if (figure.low !== undefined && figure.low !== null && figure.high !== null) make("span", node, `${show(figure.low, figure.unit, 3)} to ${show(figure.high, figure.unit, 3)} (80 %)`, { class: "span" });
  if (figure.note) make("span", node, figure.note, { class: "span", title: figure.note });
}

function notes(node, texts) {
  if (!texts.length) return;
  const first = make("ul", node, null, { class: "notes" });
  for (const text of texts.slice(0, SHOWN_NOTES)) make("li", first, text);
  if (texts.length <= SHOWN_NOTES) return;
  const more = make("details", node);
  make("summary", more, `${texts.length - SHOWN_NOTES} more note${texts.length === SHOWN_NOTES + 1 ? "" : "s"}`);
  const list = make("ul", more, null, { class: "notes" });
  for (const text of texts.slice(SHOWN_NOTES)) make("li", list, text);
}
