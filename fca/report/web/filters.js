
// ---- filters: one choice of values (such as the data set or the model) filters every figure and every table

const MANY = 8; // values of a field that are buttons; more are a menu
const fields = Object.keys(data.filters).filter((field) => data.filters[field].length);
const chosen = Object.fromEntries(fields.map((field) => [field, new Set()]));
const words = (field, value) => data.names[field]?.[value] ?? String(value);

function drawFilters() {
  const bar = document.getElementById("filters");
  bar.hidden = !fields.length;
  bar.replaceChildren(
    ...fields.map((field) => (data.filters[field].length > MANY ? menuOf(field) : buttonsOf(field))),
    element("div", {}, element("button", { type: "button", id: "all", onclick: () => { choose(fields, () => []); } }, "show all")),
  );
  markFilters();
}

function buttonsOf(field) {
  const buttons = data.filters[field].map((value) => {
    const made = element("button", { type: "button", title: data.names[field]?.[value] ?? null, onclick: () => toggle(field, value) }, String(value));
    made.mark = () => made.setAttribute("aria-pressed", String(chosen[field].has(value)));
    return made;
  });
  return element("div", { role: "group", "aria-label": data.meanings[field] || field, "data-field": field },
    element("span", { class: "soft" }, field), ...buttons);
}

/** A button that opens a searchable list of checkboxes. */
function menuOf(field) {
  const values = data.filters[field], id = `menu-${field}`;
  const opens = element("button", { type: "button", popovertarget: id, "aria-haspopup": "dialog" });
  const boxes = values.map((value) => element("input", { type: "checkbox", onchange: () => toggle(field, value) }));
  const items = values.map((value, at) => element("li", {}, element("label", {}, boxes[at], words(field, value))));
  const search = element("input", { type: "search", autofocus: "", placeholder: `search ${values.length} values`, "aria-label": `Search ${field}`, oninput: () => {
    const wanted = search.value.toLowerCase();
    items.forEach((item) => { item.hidden = !item.textContent.toLowerCase().includes(wanted); });
  } });
  const menu = element("div", { class: "menu", popover: "auto", id, role: "dialog", "aria-label": `Filter by ${data.meanings[field] || field}` },
    search, element("ul", {}, ...items), element("button", { type: "button", onclick: () => choose([field], () => []) }, "show all"));
  opens.mark = () => {
    const picked = [...chosen[field]];
    opens.textContent = `${field}: ${picked.length === 1 ? words(field, picked[0]) : `${picked.length || "all"} of ${values.length}`} ▾`;
    opens.classList.toggle("some", picked.length > 0);
    boxes.forEach((box, at) => { box.checked = chosen[field].has(values[at]); });
  };
  return element("div", { "data-field": field }, opens, menu);
}

function markFilters() {
  for (const button of document.querySelectorAll("#filters button")) button.mark?.();
  document.getElementById("all").disabled = !fields.some((field) => chosen[field].size);
}

function toggle(field, value) {
  choose([field], (values) => (values.has(value) ? [...values].filter((one) => one !== value) : [...values, value]));
}

/** Replace what is chosen of these fields. `source`: the view whose legend was clicked keeps its selection. */
function choose(changed, values, source = null) {
  for (const field of changed) chosen[field] = new Set(values(chosen[field], field));
  return apply(changed, source);
}

/** Bring every figure and table to what is chosen. */
function apply(changed, source = null) {
  markFilters();
  for (const draw of tables) draw();
  return Promise.all([...views.values()].map((view) => setView(view, changed, view === source)));
}

/** Open a menu below its button, and inside the window. */
function placeMenus() {
  document.addEventListener("toggle", (event) => {
    const menu = event.target, button = document.querySelector(`[popovertarget="${menu.id}"]`);
    if (event.newState !== "open" || !button) return;
    const at = button.getBoundingClientRect();
    menu.style.top = `${at.bottom + 4}px`;
    menu.style.left = `${Math.max(8, Math.min(at.left, window.innerWidth - menu.offsetWidth - 8))}px`;
    menu.style.maxHeight = `${window.innerHeight - at.bottom - 16}px`;
  }, true);
  document.getElementById("contents").addEventListener("click", (event) => { if (event.target.href) event.currentTarget.hidePopover(); });
}
