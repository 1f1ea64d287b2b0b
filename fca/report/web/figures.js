
// ---- figures

const views = new Map(); // figure -> Vega view
const NARROW = 600, WIDE = 1000, LEAST = 200; // pixels: of places where a legend has one column or two, of a panel
const CANVAS = 3000; // lines from which SVG is too slow
const SHRINK = 1.15; // a figure of fixed width that is wider than its place by this much is shrunk; wider ones scroll
let quiet = 0; // > 0 while we set selections ourselves

/** The data of a figure, which the page holds as columns and lines, as Vega-Lite takes them. */
function unpacked(figure) {
  const datasets = Object.entries(figure.datasets).map(([name, { fields, lines }]) =>
    [name, lines.map((line) => Object.fromEntries(fields.map((field, at) => [field, line[at]])))]);
  return { ...figure, datasets: Object.fromEntries(datasets) };
}

/** Labels and legends as narrow as the place; a small figure may give half of it to names. */
function narrowed(node, width, share) {
  if (Array.isArray(node)) return node.map((child) => narrowed(child, width, share));
  if (node === null || typeof node !== "object") return node;
  const made = Object.fromEntries(Object.entries(node).map(([name, child]) => [name, name === "datasets" ? child : narrowed(child, width, share)]));
  if (made.labelLimit) made.labelLimit = Math.min(made.labelLimit, share * width);
  if (made.legend?.columns && width < WIDE) delete made.legend.columns; // that of the configuration
  return made;
}

async function drawFigure(place, theme) {
  const name = place.dataset.figure, width = place.clientWidth, share = place.classList.contains("small") ? 0.5 : 0.35;
  const figure = narrowed(unpacked(data.figures[name]), width, share), config = narrowed(data.config[theme], width, share);
  const columns = width < NARROW ? 1 : width < WIDE ? 2 : undefined; // of a legend, which is never wider than its place
  if (columns && !place.classList.contains("small")) Object.assign(config.legend, { columns, labelLimit: width / columns - 50 });
  const lines = Math.max(0, ...Object.values(figure.datasets).map((one) => one.length));
  const small = place.classList.contains("small");
  const made = async (spec) => {
    views.get(name)?.finalize();
    const { view } = await window.vegaEmbed(place, { ...spec, config }, {
      mode: "vega-lite",
      renderer: lines > CANVAS ? "canvas" : "svg",
      tooltip: { theme, formatTooltip: (value, clean) => tooltip(place, value, clean) },
      downloadFileName: name,
      actions: small ? false : { export: true, source: false, compiled: false, editor: false },
      loader: { target: "_blank", rel: "noopener" }, // of the full picture that a click opens
      logLevel: 1, // errors
    });
    const marks = place.querySelector(".marks");
    marks.setAttribute("role", "img");
    marks.setAttribute("aria-label", place.dataset.label);
    for (const part of marks.children) part.setAttribute("aria-hidden", "true"); // the table below has the values
    place.querySelector("summary")?.setAttribute("aria-label", "Save this figure as it is shown");
    views.set(name, view);
    return view;
  };
  place.classList.toggle("fixed", Boolean(figure.usermeta?.fixed));
  place.classList.remove("shrunk");
  let view = await made(figure);
  if (figure.spec?.width && !figure.usermeta?.fixed) {
    const fit = fitted(place, figure, panels(place));
    if (fit.columns < Math.min(figure.columns, panels(place)) || !("child_width" in view.getState().signals)) {
      view = await made({ ...figure, columns: fit.columns, spec: { ...figure.spec, width: fit.width } });
    }
    place.columns = fit.columns;
    await widen(place, view, fit.columns);
  }
  place.classList.toggle("shrunk", drawnWidth(place) <= SHRINK * width); // rather than with its last column cut
  if (!small) followLegend(view);
}

const panels = (place) => Math.max(1, place.querySelectorAll("g.cell > g").length);

function drawnWidth(place) {
  const marks = place.querySelector(".marks");
  return marks.viewBox ? marks.viewBox.baseVal.width : parseFloat(marks.style.width);
}

/** How many panels stand beside each other, at most as many as the figure asks for, and how wide each is. */
function fitted(place, figure, all) {
  let columns = Math.min(figure.columns, all);
  const beside = (drawnWidth(place) - columns * figure.spec.width) / columns; // axes and gaps of a panel
  const free = () => Math.floor(place.clientWidth / columns - beside);
  while (columns > 1 && free() < LEAST) columns -= 1;
  columns = Math.ceil(all / Math.ceil(all / columns)); // 2 and 2 rather than 3 and 1
  return { columns, width: Math.max(120, free()) };
}

/** Panels as wide as the page allows; twice, because wider axes have other labels. */
async function widen(place, view, columns) {
  const now = Math.min(columns, panels(place));
  for (let round = 0; round < 2 && "child_width" in view.getState().signals; round += 1) {
    const free = place.clientWidth - drawnWidth(place) - 4;
    if (Math.abs(free) < now + 4) return;
    await view.signal("child_width", Math.max(120, Math.floor(view.signal("child_width") + free / now))).resize().runAsync();
  }
}

async function setView(view, changed, keep) {
  const signals = view.getState().signals;
  for (const field of changed) {
    if (`only_${field}` in signals) view.signal(`only_${field}`, [...chosen[field]]);
    if (!keep && `picked_${field}` in signals) view.data(`picked_${field}_store`, []);
  }
  sayUnfiltered(view, signals);
  quiet += 1;
  try {
    await view.runAsync();
    const place = view.container().closest(".figure");
    if (place.columns) await widen(place, view, place.columns); // a choice may leave fewer panels
  } finally { quiet -= 1; }
}

/** Below a figure without such a column: that the filter does not change it. */
function sayUnfiltered(view, signals) {
  const place = view.container().closest(".figure");
  const lacking = place.classList.contains("small") ? [] : fields.filter((field) => chosen[field].size && !(`only_${field}` in signals));
  const note = place.nextElementSibling?.matches(".unfiltered") ? place.nextElementSibling : element("p", { class: "unfiltered" });
  note.textContent = `Of all: this figure has no ${lacking.map((field) => data.meanings[field] || field).join(", no ")}.`;
  if (lacking.length) place.after(note);
  else note.remove();
}

function followLegend(view) {
  const signals = view.getState().signals;
  for (const field of fields) {
    if (!(`picked_${field}` in signals)) continue;
    view.addSignalListener(`picked_${field}`, (_, picked) => {
      if (quiet) return;
      setTimeout(() => choose([field], () => picked[field] ?? [], view)); // not while this view is still running
    });
  }
}

/** Names and values of a mark, and the command that repeats its run, or the analysis of a mark of several runs. */
function tooltip(place, value, clean) {
  if (typeof value !== "object" || value === null) return clean(String(value));
  const lines = Object.entries(value).filter(([, text]) => text !== undefined && text !== null && text !== "null")
    .map(([key, text]) => `<tr><td class="key">${clean(key)}</td><td class="value">${clean(String(text))}</td></tr>`);
  const command = commands.get(value.run_id) ?? place.dataset.again;
  return `<table><tbody>${lines.join("")}</tbody></table>${command ? `<code>${clean(command)}</code>` : ""}`;
}

const commands = new Map(); // run -> the command that repeats it
{
  const { columns, lines } = data.tables.runs;
  const [run, command] = ["run_id", "command"].map((name) => columns.findIndex((column) => column.name === name));
  if (run >= 0 && command >= 0) for (const line of lines) commands.set(line[run], line[command]);
}

/** Every figure, one after the other, so that the page answers meanwhile. */
async function drawFigures(theme) {
  for (const place of document.querySelectorAll("[data-figure]")) {
    await drawFigure(place, theme);
    await new Promise((rest) => { setTimeout(rest); });
  }
  await apply(fields);
}
