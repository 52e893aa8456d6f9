// Tables that can be sorted and filtered: a button in each heading, and a field above tables of many rows.
"use strict";

(() => {
  const LONG = 10; // Rows from which on a table has a field.
  const order = new Map(); // table's id -> [column, sign]
  const wanted = new Map(); // table's id -> what is in its field

  const rowsOf = (table) => [...table.tBodies[0].rows];

  // By what a cell says that it is to be sorted by, else by its text: numbers before words.
  function key(row, column) {
    const cell = row.cells[column];
    const text = cell?.dataset.by ?? cell?.textContent.trim() ?? "";
    const number = Number.parseFloat(text);
    return [Number.isFinite(number) ? number : Infinity, text];
  }

  function sort(table) {
    const [column, sign] = order.get(table.id) ?? [];
    if (column === undefined) return;
    const rows = rowsOf(table).map((row) => [key(row, column), row]);
    rows.sort(([[a, x]], [[b, y]]) => sign * (a === b ? x.localeCompare(y) : a < b ? -1 : 1));
    for (const [, row] of rows) table.tBodies[0].append(row);
    for (const head of table.tHead.querySelectorAll("[data-sorts]")) {
      const is = Number(head.dataset.sorts) === column;
      if (is) head.ariaSort = sign > 0 ? "ascending" : "descending";
      else head.removeAttribute("aria-sort");
    }
  }

  // A row stays if it has all the words.
  function filter(table) {
    const words = (wanted.get(table.id) ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rowsOf(table)) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) shown += 1;
    }
    return shown;
  }

  function addField(table) {
    const id = `${table.id}-filter`;
    if (document.getElementById(id)) return;
    const place = document.querySelector(`[data-filters="${table.id}"]`);
    if (!place && rowsOf(table).length < LONG) return;
    const label = document.createElement("label");
    label.className = "filter";
    const field = document.createElement("input");
    const shown = document.createElement("span");
    shown.setAttribute("role", "status");
    Object.assign(field, { type: "search", id, autocomplete: "off", value: wanted.get(table.id) ?? "" });
    field.addEventListener("input", () => {
      wanted.set(table.id, field.value);
      // It may have been shown anew.
      const now = document.getElementById(table.id);
      const count = now ? filter(now) : 0;
      shown.textContent = field.value ? ` ${count} shown` : "";
    });
    label.append("Filter ", field);
    const line = document.createElement("span");
    line.append(label, shown);
    if (place) place.prepend(line);
    else (table.closest(".scroll") ?? table).before(line);
  }

  function addButton(table, head) {
    if (head.querySelector("button")) return;
    const column = Number(head.dataset.sorts);
    const button = document.createElement("button");
    Object.assign(button, { type: "button", id: `${table.id}-${column}` });
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      const [known, sign] = order.get(table.id) ?? [];
      order.set(table.id, [column, known === column ? -sign : 1]);
      sort(table);
    });
    head.append(button);
  }

  window.prepareTables = () => {
    document.querySelectorAll("table.sortable").forEach((table, index) => {
      table.id ||= `table-${index}`;
      for (const head of table.tHead.querySelectorAll("[data-sorts]")) addButton(table, head);
      addField(table);
      sort(table);
      filter(table);
    });
  };
  window.prepareTables();
})();
