// What pages of `midspan lab serve` do of themselves: filter, sort, and follow what changes. All else works without.
"use strict";

const told = document.getElementById("told");

function rowsOf(table) {
  return [...table.tBodies[0].rows];
}

// Filter: a row stays if it has all the words.
function filter() {
  for (const field of document.querySelectorAll("[data-filters]")) {
    const table = document.getElementById(field.dataset.filters);
    if (!table) continue;
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rowsOf(table)) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) shown += 1;
    }
    if (words.length) told.textContent = `${shown} shown`;
  }
}

// Sort: by what cells say they are to be sorted by, else by their text.
const order = new Map(); // table's id -> [column, sign]

function sortKey(row, column) {
  const cell = row.cells[column];
  const text = cell.dataset.by ?? cell.textContent.trim();
  const number = Number.parseFloat(text);
  return [Number.isNaN(number) ? Infinity : number, text];
}

function sort(table) {
  const [column, sign] = order.get(table.id) ?? [];
  if (column === undefined) return;
  const rows = rowsOf(table).map((row) => [sortKey(row, column), row]);
  rows.sort(([[a, x]], [[b, y]]) => sign * (a === b ? x.localeCompare(y) : a < b ? -1 : 1));
  for (const [, row] of rows) table.tBodies[0].append(row);
  for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
  table.tHead.rows[0].cells[column].setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
}

function prepare() {
  for (const head of document.querySelectorAll("th[data-sorts]:not(:has(button))")) {
    const button = document.createElement("button");
    button.type = "button";
    button.id = `${head.closest("table").id}-${head.cellIndex}`;
    button.textContent = head.textContent;
    button.addEventListener("click", () => {
      const table = head.closest("table");
      const [column, sign] = order.get(table.id) ?? [];
      order.set(table.id, [head.cellIndex, column === head.cellIndex ? -sign : 1]);
      sort(table);
    });
    head.replaceChildren(button);
  }
  for (const table of document.querySelectorAll("table.sortable")) sort(table);
  filter();
}

// What somebody has chosen, opened or is at outlives the part of the page that it is in.
function nameOf(element) {
  return element.id || (element.name && `${element.name} ${element.value}`);
}

function replace(old, young) {
  const at = old.contains(document.activeElement) ? nameOf(document.activeElement) : "";
  const chosen = new Set([...old.querySelectorAll("input:checked")].map(nameOf));
  const open = [...old.querySelectorAll("details")].map((details) => details.open);
  old.replaceWith(young);
  prepare();
  for (const input of young.querySelectorAll("input")) input.checked = chosen.has(nameOf(input));
  young.querySelectorAll("details").forEach((details, index) => {
    details.open = open[index] ?? details.open;
  });
  if (at) [...young.querySelectorAll("*")].find((it) => nameOf(it) === at)?.focus();
}

async function refresh() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  let changed = false;
  for (const old of document.querySelectorAll("[data-live]")) {
    const young = page.getElementById(old.id);
    // What sorting and choosing did to the old one is not news.
    if (!young || seen.get(old.id) === young.innerHTML) continue;
    seen.set(old.id, young.innerHTML);
    replace(old, document.adoptNode(young));
    changed = true;
  }
  if (changed) told.textContent = "Updated";
}

const seen = new Map();
for (const part of document.querySelectorAll("[data-live]")) seen.set(part.id, part.innerHTML);

async function follow() {
  let since = "";
  for (;;) {
    try {
      const answer = await fetch(`/changes?since=${encodeURIComponent(since)}`);
      const now = answer.ok ? await answer.text() : since;
      // The first answer is of about when the page was made: it may be newer.
      if (now !== since) await refresh();
      since = now;
    } catch {
      // The server has ended; it may come again.
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}

document.addEventListener("input", (event) => {
  if (event.target.matches("[data-filters]")) filter();
});
prepare();
follow();
