"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// ---- tables

const PAGE = 50;
const tables = []; // functions that draw a table again
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
  const { columns, lines, all } = data.tables[name];
  let sorted = { at: -1, down: false }, page = 0;
  const input = element("input", { type: "search", placeholder: "filter: resnet ncl<=3 top1>90", "aria-label": `Filter ${name}`, oninput: () => { page = 0; draw(); } });
  const count = element("span", { class: "soft", role: "status" });
  const back = element("button", { type: "button", onclick: () => { page -= 1; draw(); } }, "‹ back");
  const next = element("button", { type: "button", onclick: () => { page += 1; draw(); } }, "next ›");
  const file = element("a", { href: `tables/${name}.csv` }, all > lines.length ? `all ${all} lines: tables/${name}.csv` : `tables/${name}.csv`);
  const head = element("thead"), body = element("tbody");
  const table = element("table", { "aria-label": name }, head, body);
  place.append(
    element("div", { class: "tools" }, input, count, back, next, file),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table ${name}` }, table),
  );

  const heads = columns.map((column, at) => element("button", { type: "button", onclick: () => {
    sorted = { at, down: sorted.at === at && !sorted.down };
    page = 0;
    draw();
  } }));
  const cells = columns.map((column, at) => element("th", { scope: "col", class: right(column), title: column.meaning ?? null }, heads[at]));
  const run = name === "runs" ? columns.findIndex((column) => column.name === "run_id") : -1; // whose lines can be compared
  const boxed = (line) => (run < 0 ? [] : [element("td", {}, comparing(line[run]))]);
  head.append(element("tr", {}, ...(run < 0 ? [] : [element("td", {}, "compare")]), ...cells));

  function draw() {
    const byFilter = Object.entries(chosen).filter(([, values]) => values.size)
      .map(([field, values]) => [columns.findIndex((column) => column.name === field), values])
      .filter(([at]) => at >= 0);
    const matches = matcher(input.value, columns);
    const found = lines.filter((line) => byFilter.every(([at, values]) => line[at] === null || values.has(line[at])) && matches(line));
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
      element("tr", {}, ...boxed(line), ...line.map((value, at) => cell(value, columns[at])))));
  }
  tables.push(draw);
  draw();
}
