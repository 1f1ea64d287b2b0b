
// ---- comparison of runs: their files are scripts beside the page, loaded when they are asked for

const compared = new Set(), known = new Map(); // run ids; run id -> its file
let thumbnails = {};
window.fcaRun = (run, found) => known.set(run, found);
window.fcaThumbnails = (found) => { thumbnails = found; };

function loaded(name) {
  return new Promise((done) => {
    document.head.append(element("script", { src: `compare/${encodeURIComponent(name)}.js`, onload: done, onerror: done }));
  });
}

/** A run as a heading names it. */
function heading(run) {
  const { columns, lines } = data.tables.runs, at = (name) => columns.findIndex((column) => column.name === name);
  const row = lines.find((line) => line[at("run_id")] === run);
  return at("model") < 0 ? run : `${row[at("model")] ?? ""} ${run}`;
}

/** The box of a run in the table of runs. */
function comparing(run) {
  const box = element("input", { type: "checkbox", "aria-label": `Compare run ${run}`, onchange: () => {
    if (!compared.delete(run)) compared.add(run);
    drawComparison();
  } });
  box.checked = compared.has(run);
  return box;
}

async function drawComparison() {
  const place = document.getElementById("comparison"), runs = [...compared];
  if (runs.length < 2) {
    place.replaceChildren(element("p", { class: "soft" }, "Choose two or more runs in the first column to compare them."));
    return;
  }
  const missing = runs.filter((run) => !known.has(run));
  await Promise.all([...missing.map(loaded), ...(Object.keys(thumbnails).length ? [] : [loaded("thumbnails")])]);
  const curves = element("div", { class: "figure" });
  place.replaceChildren(element("h3", {}, `${runs.length} runs compared`), differencesOf(runs), curves, ...classesOf(runs), ...imagesOf(runs));
  await drawCurves(curves, runs);
}

function simpleTable(label, head, lines) {
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, element("table", { "aria-label": label },
    element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col", class: "plain" }, name)))),
    element("tbody", {}, ...lines.map((line) => element("tr", {}, ...line.map((one) => element("td", {}, one)))))));
}

function differencesOf(runs) {
  const { columns, lines } = data.tables.runs, id = columns.findIndex(({ name }) => name === "run_id");
  const rows = runs.map((run) => lines.find((line) => line[id] === run));
  const differing = columns.map((_, at) => at).filter((at) => new Set(rows.map((row) => String(row[at]))).size > 1);
  return simpleTable("What differs", ["", ...runs.map(heading)], differing.filter((at) => at !== id).map((at) =>
    [columns[at].name + (columns[at].kind === "percent" ? " (%)" : ""), ...rows.map((row) => shown(row[at], columns[at].kind))]));
}

async function drawCurves(place, runs) {
  const values = runs.flatMap((run) => (known.get(run)?.curve ?? []).flatMap(({ epoch, ...figures }) =>
    Object.entries(figures).filter(([name]) => name !== "lr").map(([measure, value]) => ({ run, epoch, measure, value }))));
  if (!values.length) return place.replaceChildren(element("p", { class: "soft" }, "No learning curves: these trainings kept no history."));
  await window.vegaEmbed(place, {
    data: { values },
    facet: { field: "measure", type: "nominal", title: null },
    columns: place.clientWidth < NARROW ? 1 : 3,
    spec: {
      width: place.clientWidth < NARROW ? place.clientWidth - 70 : place.clientWidth / 3 - 70,
      height: 160,
      mark: { type: "line", point: true },
      encoding: {
        x: { field: "epoch", type: "quantitative", axis: { tickMinStep: 1 } },
        y: { field: "value", type: "quantitative", title: null, scale: { zero: false } },
        color: { field: "run", type: "nominal" }, shape: { field: "run", type: "nominal" },
        tooltip: [{ field: "run" }, { field: "epoch" }, { field: "measure" }, { field: "value", format: ".4f" }],
      },
    },
    resolve: { scale: { y: "independent" } },
    config: data.config[root.dataset.theme],
  }, { mode: "vega-lite", renderer: "svg", actions: false, logLevel: 1 });
  const marks = place.querySelector(".marks");
  marks.setAttribute("role", "img");
  marks.setAttribute("aria-label", "Learning curves of the compared runs");
  for (const part of marks.children) part.setAttribute("aria-hidden", "true");
}

/** Accuracy of each class that two of the runs know, the widest differences first. */
function classesOf(runs) {
  const share = (run, key) => { const at = known.get(run)?.classes?.[key]; return at ? at[0] / at[1] : null; };
  const keys = [...new Set(runs.flatMap((run) => Object.keys(known.get(run)?.classes ?? {})))];
  const lines = keys.map((key) => ({ key, shares: runs.map((run) => share(run, key)) }))
    .map((line) => ({ ...line, has: line.shares.filter((one) => one !== null) })).filter(({ has }) => has.length > 1)
    .map((line) => ({ ...line, apart: Math.max(...line.has) - Math.min(...line.has) })).sort((a, b) => b.apart - a.apart);
  if (!lines.length) return [element("p", { class: "soft" }, "No class that two of these runs predict.")];
  return [element("h3", {}, "Accuracy by class (%), widest difference first"),
    simpleTable("Accuracy by class", ["class", ...runs.map(heading), "difference"], lines.slice(0, PAGE).map(({ key, shares, apart }) =>
      [key, ...shares.map((one) => (one === null ? "" : (100 * one).toFixed(1))), (100 * apart).toFixed(1)]))];
}

/** The images that some of the runs get right and others wrong, of classes that all of them know. */
function imagesOf(runs) {
  const found = runs.map((run) => known.get(run)).filter((one) => one?.classes);
  if (found.length < 2 || new Set(found.map((one) => one.fingerprint)).size > 1) return [];
  const wrong = new Map(found.flatMap((one) => Object.entries(one.wrong)));
  const disputed = [...wrong].filter(([image, [label]]) =>
    found.every((one) => label in one.classes) && new Set(found.map((one) => one.wrong[image]?.[1] ?? label)).size > 1);
  const cards = disputed.sort(([a], [b]) => (b in thumbnails) - (a in thumbnails)).slice(0, PAGE).map(([image, [label]]) =>
    element("figure", {}, ...(thumbnails[image] ? [element("img", { src: thumbnails[image], alt: image, width: 128, height: 128 })] : []),
      element("figcaption", {}, element("b", {}, `${image}: ${label}`), element("br"), `predicted ${found.map((one) => one.wrong[image]?.[1] ?? label).join(" | ")}`)));
  const about = `${disputed.length} images on which they disagree` + (disputed.length > cards.length ? `, ${cards.length} shown` : "");
  return [element("h3", {}, about), element("div", { class: "gallery" }, ...cards)];
}
