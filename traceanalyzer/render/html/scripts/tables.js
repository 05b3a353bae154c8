(() => {
  // -- filter of the table of ops ----------------------------------------------------------------------
  for (const field of document.querySelectorAll(".filter")) {
    const section = document.getElementById(field.dataset.table);
    const bodies = [...section.querySelectorAll("tbody")];
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase();
      let shown = 0;
      for (const body of bodies) {
        body.hidden = !body.textContent.toLowerCase().includes(wanted);
        shown += !body.hidden;
      }
      section.querySelector(".found").textContent = wanted ? `${shown} of ${bodies.length} ops` : "";
    });
  }

  // -- tables are sorted by a click on a head: by exact values where there are some --------------------
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const value = cell?.querySelector("data")?.value ?? cell?.textContent.trim() ?? "";
    return value !== "" && Number.isFinite(Number(value)) ? Number(value) : value;
  };
  const compared = (one, other) => (typeof one === typeof other ? (one < other ? -1 : one > other ? 1 : 0) : typeof one === "number" ? 1 : -1);
  for (const table of document.querySelectorAll("main table")) {
    const heads = [...(table.tHead?.rows[0]?.cells ?? [])];
    const parts = () => (table.tBodies.length > 1 ? [...table.tBodies] : [...(table.tBodies[0]?.rows ?? [])]);
    if (!heads.length || parts().length < 3) continue;
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending" && !(column === 0 && !head.hasAttribute("aria-sort"));
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = parts();
        const keys = new Map(rows.map((part) => [part, keyOf(part.rows?.[0] ?? part, column)]));
        rows.sort((one, other) => (down ? -1 : 1) * compared(keys.get(one), keys.get(other)));
        rows[0].parentElement.append(...rows);
      });
    });
  }

  // -- what each cell is, for narrow windows, where rows are stacked -----------------------------------
  for (const table of document.querySelectorAll("main table:not(.heat)")) {
    const heads = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.textContent.trim());
    if (!heads.length) continue;
    table.classList.add("stacks");
    for (const row of table.querySelectorAll("tbody tr, tfoot tr")) {
      [...row.cells].forEach((cell, i) => { if (cell.tagName === "TD" && heads[i] && cell.textContent.trim()) cell.dataset.label = heads[i]; });
    }
  }

  // -- from an op to its occurrences on the timeline ----------------------------------------------------
  const leading = (text, label) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "tl-go";
    button.textContent = text;
    button.setAttribute("aria-label", `${text}: ${label}`);
    return button;
  };
  for (const body of document.querySelectorAll(".ops-table tbody[data-name]")) {
    const [, trace, place] = body.id.split("-");
    const parts = [];
    if (document.getElementById("timelines")) {
      const button = leading("timeline", body.dataset.name);
      button.addEventListener("click", () => ta.follow(`#of-${trace}-${place}`));
      parts.push(button);
    }
    body.rows[0].cells[0].append(" ", ...parts);
  }
})();
