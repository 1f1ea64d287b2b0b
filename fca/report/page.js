"use strict";
// One choice of values (such as the data set or the model) filters every figure and every table.
const data = JSON.parse(document.getElementById("data").textContent);
const chosen = Object.fromEntries(Object.keys(data.filters).map((field) => [field, new Set()]));
const views = new Map(); // figure -> Vega view
const tables = []; // functions that draw a table again
let quiet = 0; // > 0 while we set selections ourselves

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// ---- filters

function drawFilters() {
  const bar = document.getElementById("filters");
  const groups = Object.entries(data.filters).filter(([, values]) => values.length);
  bar.hidden = !groups.length;
  const anything = groups.some(([field]) => chosen[field].size);
  bar.replaceChildren(
    ...groups.map(([field, values]) =>
      element("div", { role: "group", "aria-label": field }, element("span", { class: "soft" }, field),
        ...values.map((value) => element("button", {
          type: "button",
          "aria-pressed": String(chosen[field].has(value)),
          title: data.names[field]?.[value] ?? null,
          onclick: () => { toggle(field, value); },
        }, String(value))))),
    element("div", {}, element("button", { type: "button", ...(anything ? {} : { disabled: "" }), onclick: showAll }, "show all")),
  );
}

function toggle(field, value) {
  if (!chosen[field].delete(value)) chosen[field].add(value);
  apply([field]);
}

function showAll() {
  for (const values of Object.values(chosen)) values.clear();
  apply(Object.keys(chosen));
}

/** Bring every figure and table to what is chosen. `source`: the view whose legend was clicked keeps its selection. */
function apply(fields, source = null) {
  const focused = document.activeElement?.textContent;
  drawFilters();
  [...document.querySelectorAll("#filters button")].find((button) => button.textContent === focused)?.focus();
  for (const draw of tables) draw();
  return Promise.all([...views.values()].map((view) => setView(view, fields, view === source)));
}

async function setView(view, fields, keep) {
  const signals = view.getState().signals;
  for (const field of fields) {
    if (`only_${field}` in signals) view.signal(`only_${field}`, [...chosen[field]]);
    if (!keep && `picked_${field}` in signals) view.data(`picked_${field}_store`, []);
  }
  quiet += 1;
  try { await view.runAsync(); } finally { quiet -= 1; }
}

function followLegend(view) {
  const signals = view.getState().signals;
  for (const field of Object.keys(chosen)) {
    if (!(`picked_${field}` in signals)) continue;
    view.addSignalListener(`picked_${field}`, (_, picked) => {
      if (quiet) return;
      chosen[field] = new Set(picked[field] ?? []);
      setTimeout(() => apply([field], view)); // not while this view is still running
    });
  }
}

// ---- figures

async function drawFigures(theme) {
  for (const place of document.querySelectorAll("[data-figure]")) {
    const name = place.dataset.figure;
    views.get(name)?.finalize();
    const spec = { ...data.figures[name], config: data.config[theme] };
    const made = await window.vegaEmbed(place, spec, {
      mode: "vega-lite",
      renderer: "svg",
      tooltip: { theme },
      downloadFileName: name,
      actions: { export: true, source: false, compiled: false, editor: false },
    });
    views.set(name, made.view);
    followLegend(made.view);
  }
  await apply(Object.keys(chosen));
}

// ---- tables

const PAGE = 50;
const right = ({ kind }) => (kind === "text" || kind === "image" ? null : "right");

function shown(value, kind) {
  if (value === null || kind === "image") return "";
  if (kind === "percent") return (100 * value).toFixed(2);
  if (kind === "number" && !Number.isInteger(value)) return String(Number(value.toPrecision(4)));
  return String(value);
}

function cell(value, column) {
  if (column.kind === "image" && value) return element("td", {}, element("img", { src: value, alt: column.name, loading: "lazy" }));
  return element("td", { class: right(column), title: value === null ? null : String(value) }, shown(value, column.kind));
}

/** `resnet ncl<=3 top1>90`: every word must be in some cell, every comparison true; percent as shown. */
function matcher(text, columns) {
  const tests = text.trim().split(/\s+/).filter(Boolean).map((word) => {
    const [, name, sign, wanted] = word.match(/^(\w+)(<=|>=|!=|=|<|>)(.+)$/) ?? [];
    const at = columns.findIndex((column) => column.name === name);
    if (at < 0) return (line) => line.some((value, i) => shown(value, columns[i].kind).toLowerCase().includes(word.toLowerCase()));
    const kind = columns[at].kind;
    const unit = kind === "percent" ? 100 : 1;
    return (line) => {
      if (line[at] === null) return false;
      const [a, b] = kind === "text" ? [String(line[at]), wanted] : [unit * line[at], Number(wanted)];
      return { "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b, "=": a === b, "!=": a !== b }[sign];
    };
  });
  return (line) => tests.every((test) => test(line));
}

function compare(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

function drawTable(place) {
  const name = place.dataset.table;
  const { columns, lines } = data.tables[name];
  let sorted = { at: -1, down: false }, page = 0;
  const input = element("input", { type: "search", placeholder: "filter: resnet ncl<=3 top1>90", "aria-label": `Filter ${name}`, oninput: () => { page = 0; draw(); } });
  const count = element("span", { class: "soft", role: "status" });
  const back = element("button", { type: "button", onclick: () => { page -= 1; draw(); } }, "‹ back");
  const next = element("button", { type: "button", onclick: () => { page += 1; draw(); } }, "next ›");
  const file = element("a", { href: `tables/${name}.csv` }, `tables/${name}.csv`);
  const head = element("thead"), body = element("tbody");
  const table = element("table", { "aria-label": name }, head, body);
  place.append(element("div", { class: "tools" }, input, count, back, next, file), element("div", { class: "scroll", tabindex: "0" }, table));

  const heads = columns.map((column, at) => element("button", { type: "button", onclick: () => {
    sorted = { at, down: sorted.at === at && !sorted.down };
    page = 0;
    draw();
  } }));
  const cells = columns.map((column, at) => element("th", { scope: "col", class: right(column), title: column.meaning ?? null }, heads[at]));
  head.append(element("tr", {}, ...cells));

  function draw() {
    const byFilter = Object.entries(chosen).filter(([, values]) => values.size)
      .map(([field, values]) => [columns.findIndex((column) => column.name === field), values])
      .filter(([at]) => at >= 0);
    const matches = matcher(input.value, columns);
    const found = lines.filter((line) => byFilter.every(([at, values]) => values.has(line[at])) && matches(line));
    if (sorted.at >= 0) {
      const missingLast = (line) => line[sorted.at] === null;
      found.sort((a, b) => missingLast(a) - missingLast(b) || (sorted.down ? -1 : 1) * compare(a[sorted.at], b[sorted.at]));
    }
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    page = Math.min(page, pages - 1);
    count.textContent = `${found.length} of ${lines.length} lines` + (pages > 1 ? `, page ${page + 1} of ${pages}` : "");
    back.hidden = next.hidden = pages === 1;
    back.disabled = page === 0;
    next.disabled = page === pages - 1;
    columns.forEach((column, at) => {
      const mark = sorted.at !== at ? "" : sorted.down ? " ▾" : " ▴";
      heads[at].textContent = column.name + (column.kind === "percent" ? " (%)" : "") + mark;
      cells[at].setAttribute("aria-sort", sorted.at !== at ? "none" : sorted.down ? "descending" : "ascending");
    });
    body.replaceChildren(...found.slice(page * PAGE, (page + 1) * PAGE).map((line) =>
      element("tr", {}, ...line.map((value, at) => cell(value, columns[at])))));
  }
  tables.push(draw);
  draw();
}

// ---- start

let theme = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
document.documentElement.dataset.theme = theme;
document.getElementById("theme").addEventListener("click", () => {
  theme = theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  drawFigures(theme);
});
drawFilters();
document.querySelectorAll("[data-table]").forEach(drawTable);
window.figuresDrawn = drawFigures(theme);
