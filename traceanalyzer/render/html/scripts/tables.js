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
})();
