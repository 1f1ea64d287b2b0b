
// ---- start

const root = document.documentElement;
root.dataset.theme = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
let drawing = Promise.resolve();
const redraw = () => { window.figuresDrawn = drawing = drawing.then(() => drawFigures(root.dataset.theme)); };

document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  redraw();
});

let width = window.innerWidth, waiting;
window.addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { if (width !== window.innerWidth) { width = window.innerWidth; redraw(); } }, 250);
});

// On paper the sentences are open; tables stay closed unless a reader opened them.
window.addEventListener("beforeprint", () => {
  for (const words of document.querySelectorAll("details.words:not([open])")) { words.open = true; words.dataset.printed = ""; }
});
window.addEventListener("afterprint", () => {
  for (const words of document.querySelectorAll("[data-printed]")) { words.open = false; delete words.dataset.printed; }
});

// What was chosen, and where the reader was, outlive a reload of the page.
const STATE = `fca ${location.pathname}`;
let before = null;
try { before = JSON.parse(sessionStorage.getItem(STATE)); } catch { /* none is kept */ }
window.addEventListener("pagehide", () => {
  const kept = { theme: root.dataset.theme, scroll: window.scrollY, compared: [...compared], chosen: fields.map((field) => [field, [...chosen[field]]]) };
  try { sessionStorage.setItem(STATE, JSON.stringify(kept)); } catch { /* nothing is kept */ }
});
if (before) {
  root.dataset.theme = before.theme;
  for (const run of before.compared) if (data.tables.runs.lines.some((line) => line.includes(run))) compared.add(run);
  for (const [field, values] of before.chosen) {
    if (field in chosen) chosen[field] = new Set(values.filter((value) => data.filters[field].includes(value)));
  }
}

// A page that is served is made again while runs finish.
if (location.protocol === "http:") {
  const version = async () => (await fetch(location.href, { method: "HEAD" })).headers.get("Last-Modified");
  let first = null;
  setInterval(async () => {
    const now = await version().catch(() => null); // the server has ended
    if (first !== null && now !== null && now !== first) location.reload();
    first ??= now;
  }, 2000);
}

drawFilters();
placeMenus();
document.querySelectorAll("[data-table]").forEach(drawTable);
drawComparison();
redraw();
if (before) window.figuresDrawn.then(() => window.scrollTo(0, before.scroll));
