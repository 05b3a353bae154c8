(() => {
  // -- of a job: its findings, or those of one rank ------------------------------------------------------
  const whose = document.getElementById("whose");
  const show = document.getElementById("show-hidden");
  const chosen = () => {
    const value = whose ? whose.value : "all";
    const left = [];
    for (const item of document.querySelectorAll(".cards > li")) {
      const ranks = (item.dataset.ranks ?? "").split(" ");
      item.hidden = !(value === "all" || (value === "job" ? item.hasAttribute("data-job") : ranks.includes(value)));
      if (item.hidden) left.push(String(item.value));
    }
    // The timeline offers the findings that are shown.
    for (const option of document.querySelectorAll(".tl-pick option[data-finding]")) {
      option.hidden = left.includes(option.dataset.finding);
      option.disabled = option.hidden;
    }
    if (show) {
      left.sort((one, other) => one - other);
      const numbers = left.length > 1 ? `${left.slice(0, -1).join(", ")} and ${left.at(-1)}` : left.join("");
      const whom = value === "job" ? `${left.length > 1 ? "are" : "is"} a rank’s own` : `${left.length > 1 ? "are" : "is"} of others`;
      document.getElementById("hidden").textContent = left.length ? `${numbers} ${whom}:` : "";
      show.hidden = !left.length;
    }
    for (const list of document.querySelectorAll(".cards")) {
      const none = [...list.children].every((item) => item.hidden);
      list.hidden = none;
      if (list.previousElementSibling?.classList.contains("known")) list.previousElementSibling.hidden = none;
    }
  };
  const all = () => { if (whose) { whose.value = "all"; chosen(); } };
  if (whose) { whose.addEventListener("change", chosen); show.addEventListener("click", () => { all(); whose.focus(); }); chosen(); }

  // -- a link opens what it leads to; on paper all is open -------------------------------------------------
  const open = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    if (target.closest("li[hidden]")) all();
    for (let part = target.querySelector("details") ?? target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", open);
  open();
  const closed = [];
  let was;
  addEventListener("beforeprint", () => {
    was = whose?.value;
    all();
    for (const details of document.querySelectorAll("details:not([open])")) { details.open = true; closed.push(details); }
    ta.pictures?.();
  });
  addEventListener("afterprint", () => {
    for (const details of closed.splice(0)) details.open = false;
    if (whose) { whose.value = was; chosen(); }
  });
  document.addEventListener("toggle", () => ta.pictures?.(), true);

  // -- the contents say which section one is in --------------------------------------------------------
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const sections = [...links.keys()].map((name) => document.getElementById(name)).filter(Boolean);
  const current = () => {
    const passed = sections.filter((section) => section.getBoundingClientRect().top < 120);
    for (const link of links.values()) link.removeAttribute("aria-current");
    const link = passed.length ? links.get(passed[passed.length - 1].id) : undefined;
    if (link) link.setAttribute("aria-current", "true");
  };
  let asked = false;
  addEventListener("scroll", () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; current(); });
  }, { passive: true });
})();
