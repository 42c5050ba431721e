// Makes the tables sort and filter. Without it they are plain tables with all rows.
const PAGE_ROWS = 50;

async function loadDataTables() {
  const text = document.getElementById("datatables").textContent.trim();
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const source = await new Response(unpacked).text();
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return (await import(url)).default;
  } finally {
    URL.revokeObjectURL(url);
  }
}

// Missing values stand last in both directions.
function missingLast(compare) {
  return (a, b) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : compare(a, b));
}

function chooser(table, index) {
  const label = document.createElement("label");
  const select = document.createElement("select");
  const name = table.column(index).header().textContent.trim();
  label.append(name, select);
  const cells = table.column(index).nodes().toArray();
  const texts = [...new Set(cells.map((cell) => cell.textContent.trim()))];
  texts.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  select.append(new Option("all", ""), ...texts.map((text) => new Option(text, text)));
  select.addEventListener("change", () => {
    table.column(index).search(select.value, { exact: select.value !== "" }).draw();
  });
  return label;
}

function activate(DataTable, region) {
  const element = region.querySelector("table");
  const headers = [...element.tHead.rows[0].cells];
  const choices = headers.flatMap((cell, index) => ("choice" in cell.dataset ? [index] : []));
  const isLong = element.tBodies[0].rows.length > PAGE_ROWS;
  const choosers = document.createElement("div");
  choosers.className = "choosers";
  const table = new DataTable(element, {
    autoWidth: false,
    order: [],
    paging: isLong,
    pageLength: PAGE_ROWS,
    lengthMenu: [PAGE_ROWS, 200, { label: "all", value: -1 }],
    columnDefs: [{ targets: "n", type: "figure" }],
    layout: {
      topStart: choosers,
      topEnd: "search",
      bottomStart: isLong ? ["info", "pageLength"] : "info",
      bottomEnd: isLong ? "paging" : null,
    },
    language: {
      info: "_TOTAL_ of _MAX_ rows",
      infoEmpty: "no row",
      infoFiltered: "",
      lengthMenu: "_MENU_ rows per page",
    },
  });
  choosers.append(...choices.map((index) => chooser(table, index)));
  const title = document.getElementById(region.getAttribute("aria-labelledby"))?.textContent.trim();
  const namePages = () =>
    region.querySelector(".dt-paging nav")?.setAttribute("aria-label", `Pages of ${title}`);
  table.on("draw", namePages);
  namePages();
  const scroller = region.querySelector(".dt-layout-table");
  for (const name of ["role", "tabindex", "aria-labelledby"]) {
    scroller.setAttribute(name, region.getAttribute(name));
    region.removeAttribute(name);
  }
  region.classList.add("active");
  return table;
}

// A plot shows few of its lines; readers choose which, in a list and by a click on the legend.
function pickLines(figure) {
  const lines = Map.groupBy(figure.querySelectorAll("[data-line]"), (g) => g.dataset.line);
  if (lines.size < 2) return;
  const picker = document.createElement("details");
  const summary = document.createElement("summary");
  picker.className = "picker screen";
  picker.append(summary);
  const boxes = new Map();
  const count = () => {
    const shown = [...boxes.values()].filter((box) => box.checked).length;
    summary.textContent = `Lines: ${shown} of ${lines.size}`;
  };
  for (const [name, groups] of lines) {
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = groups[0].getAttribute("display") !== "none";
    box.addEventListener("change", () => {
      for (const group of groups) group.setAttribute("display", box.checked ? "inline" : "none");
      count();
    });
    label.style.borderColor = getComputedStyle(groups[0].querySelector("path, use")).stroke;
    label.append(box, name);
    picker.append(label);
    boxes.set(name, box);
  }
  for (const entry of figure.querySelectorAll("[data-entry]")) {
    const box = boxes.get(entry.dataset.entry);
    if (!box) continue;
    entry.classList.add("entry");
    entry.addEventListener("click", () => box.click());
    box.addEventListener("change", () => entry.classList.toggle("off", !box.checked));
  }
  count();
  figure.append(picker);
}

// A long folded table is text until it is shown, which makes a large page open quickly. Browsers
// that run no script read it as a table.
function buildTables(root) {
  for (const held of root.querySelectorAll(".table > noscript")) {
    const region = held.parentElement;
    held.outerHTML = held.textContent;
    unlinkRecords(region);
  }
}

// Records are next to the page in its study's folder only: a page that was sent has no links to them.
function unlinkRecords(root) {
  const page = `/${document.documentElement.dataset.study}/report.html`;
  if (decodeURIComponent(location.pathname).endsWith(page)) return;
  for (const link of root.querySelectorAll('a[href$=".json"]')) {
    link.replaceWith(decodeURIComponent(link.getAttribute("href")));
  }
}

// On paper everything is shown.
function showAllInPrint(tables) {
  const lengths = new Map();
  addEventListener("beforeprint", () => {
    buildTables(document);
    for (const details of document.querySelectorAll("details")) details.open = true;
    for (const table of tables.values()) {
      lengths.set(table, table.page.len());
      table.page.len(-1).draw();
    }
  });
  addEventListener("afterprint", () => {
    for (const [table, length] of lengths) table.page.len(length).draw();
  });
}

// What is folded opens if a link leads into it.
function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target?.closest("details");
  if (!folded) return;
  folded.open = true;
  target.scrollIntoView();
}

unlinkRecords(document);
for (const fold of document.querySelectorAll("details.fold")) {
  fold.addEventListener("toggle", () => buildTables(fold));
}
addEventListener("hashchange", unfold);
unfold();
document.querySelectorAll("figure.plot").forEach(pickLines);
const DataTable = await loadDataTables();
DataTable.type("figure", {
  order: {
    pre: (value) => (value === "" || Number.isNaN(Number(value)) ? null : Number(value)),
    asc: missingLast((a, b) => a - b),
    desc: missingLast((a, b) => b - a),
  },
});
// Folded tables become interactive when they are unfolded: a large page opens quickly.
const tables = new Map();
function activateShown() {
  for (const region of document.querySelectorAll(".interactive")) {
    const isFolded = region.closest("details:not([open])");
    if (tables.has(region) || isFolded) continue;
    buildTables(region.parentElement);
    tables.set(region, activate(DataTable, region));
  }
}
activateShown();
for (const fold of document.querySelectorAll("details.fold")) {
  fold.addEventListener("toggle", activateShown);
}
showAllInPrint(tables);
document.documentElement.dataset.tables = "active";
