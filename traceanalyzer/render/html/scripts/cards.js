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
})();
