(() => {
  // -- a link into a card shows its timeline; on paper all of them are shown -----------------------------
  const open = () => {
    const card = location.hash.startsWith("#finding-") && document.getElementById(location.hash.slice(1));
    if (card) card.querySelector("details").open = true;
  };
  addEventListener("hashchange", open);
  open();
  const closed = [];
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll(".where:not([open])")) { details.open = true; closed.push(details); }
  });
  addEventListener("afterprint", () => { for (const details of closed.splice(0)) details.open = false; });

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
